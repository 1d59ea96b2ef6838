"""Find reward files, check their contract before anything is trained, and score completions with them.

A reward is a file with a function of the file's name; see `docs/rewards.md`. Functions of the form
`f(completion, ...)` score one completion, `f(completions, ...)` a batch; both always get plain text.
"""

import difflib
import importlib.util
import inspect
import math
import sys
import traceback
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo_kit.answers import final_answer
from grpo_kit.errors import RunError
from grpo_kit.recipe import Recipe, RewardSection, shorten, strict_model, validated
from grpo_kit.shipped import shipped
from grpo_kit.stats import ROUNDING

GIVEN = ("prompt", "completion_ids")
"""Available to every reward besides the data's columns: the last user message as text, and the completion's tokens."""

CANNED = ("", "The answer is 42.", r"<think>6 x 7</think> So it is \boxed{42}.", "<answer>42</answer>")
"""Completions on which every reward is tried before a run: it must return numbers for all of them."""


@dataclass(frozen=True)
class Completions:
    """What rewards judge: assistant turns as plain text, their tokens, and the data row of each."""

    texts: list[str]
    completion_ids: list[list[int]]
    rows: list[dict[str, Any]]

    def column(self, name: str, plural: bool) -> list[Any]:
        if name in ("prompt", "prompts") and (name == "prompts") == plural:
            return [row["prompt"][-1]["content"] for row in self.rows]
        return self.completion_ids if name == "completion_ids" else [row[name] for row in self.rows]


@dataclass(frozen=True)
class Reward:
    """A reward function with the options and the weight that a recipe gives it."""

    label: str
    path: Path
    function: Callable[..., Any]
    weight: float
    options: dict[str, Any]
    full_marks: float
    batch_form: bool
    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_all: bool

    def is_right(self, score: float | None) -> bool:
        """Is this the full marks of the reward? (For the goal's reward: is the completion right?)"""
        return score is not None and score >= self.full_marks - ROUNDING

    def read_answer(self, completion: str) -> str | None:
        """The answer that a person is shown for a completion: read where this reward requires it to stand."""
        return final_answer(completion, self.parameter("require") or "none")

    def parameter(self, name: str) -> Any:
        """The value in force of one of its options: the recipe's, else the function's default; None if it has none."""
        parameter = inspect.signature(self.function).parameters.get(name)
        return self.options.get(name, parameter.default if parameter is not None else None)

    def score(self, batch: Completions) -> list[float | None]:
        """One number per completion, None where the row cannot be judged. Raises RunError for anything else."""
        names = self._columns(batch)
        columns = {name: batch.column(name, self.batch_form) for name in names}
        if self.batch_form:
            result = self._call(0, completions=batch.texts, **columns)
            return self._numbers(result, batch.texts)
        scores = []
        for index, text in enumerate(batch.texts):
            value = self._call(index, text, **{name: values[index] for name, values in columns.items()})
            scores.append(self._number(value, text))
        return scores

    def _columns(self, batch: Completions) -> list[str]:
        if not self.takes_all:
            return [*self.required, *(n for n in self.optional if n in batch.rows[0] or n in GIVEN)]
        given = [f"{GIVEN[0]}s" if self.batch_form else GIVEN[0], *GIVEN[1:]]
        return [*(name for name in batch.rows[0] if name != "prompt"), *given]

    def _call(self, index: int, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.function(*args, **kwargs, **self.options)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            text = args[0] if args else kwargs["completions"]
            hint = ""
            if '["content"]' in inspect.getsource(self.function) or "['content']" in inspect.getsource(self.function):
                hint = '; completions are plain text: drop [0]["content"]'
            raise RunError(
                f"{self.path}: {self.function.__name__} raised {type(error).__name__}: {error} "
                f"({Path(frame.filename).name}:{frame.lineno}, completion {index}: {shorten(text)}){hint}"
            ) from error

    def _numbers(self, result: Any, texts: Sequence[str]) -> list[float | None]:
        """A batch-form result: a list, tuple, array or tensor of one number each; (n, 1) is flattened."""
        values = result.tolist() if hasattr(result, "tolist") else result
        if not isinstance(values, list | tuple) or len(values) != len(texts):
            got = f"{len(values)} values" if isinstance(values, list | tuple) else type(result).__name__
            raise RunError(
                f"{self.path}: {self.function.__name__} returned {got} ({shorten(result)}) for {len(texts)} "
                f"completions; return a list of {len(texts)} numbers"
            )
        if hasattr(result, "tolist") and all(isinstance(value, list) and len(value) == 1 for value in values):
            values = [value[0] for value in values]
        return [self._number(value, text) for value, text in zip(values, texts, strict=True)]

    def _number(self, value: Any, text: str) -> float | None:
        if hasattr(value, "item"):
            value = value.item()  # numpy and torch scalars
        if value is None:
            return None
        if not isinstance(value, bool | int | float) or not math.isfinite(value):
            raise RunError(
                f"{self.path}: {self.function.__name__} returned {shorten(value)} ({type(value).__name__}) for the "
                f"completion {shorten(text)}; return a finite number, or None for a row that cannot be judged"
            )
        return float(value)


def load_rewards(recipe: Recipe) -> list[Reward]:
    """The recipe's rewards in its order. Imports their files; raises RecipeError for what is wrong with them."""
    return [_load(recipe, label, section) for label, section in recipe.rewards.items()]


def reward_folders(recipe_file: Path) -> list[Path]:
    """Where rewards are looked for by name, in order: beside the recipe, one folder up, the shipped ones."""
    folder = recipe_file.resolve().parent
    return [folder / "rewards", folder.parent / "rewards", shipped("rewards")]


def find_reward(recipe: Recipe, label: str, section: RewardSection) -> Path:
    """The file of a reward. Raises RecipeError listing the names there are."""
    folders = reward_folders(recipe.source)
    wanted = section.file or f"{label}.py"
    places = [folder / wanted for folder in folders]
    if section.file:
        places = [recipe.source.resolve().parent / wanted, Path.cwd() / wanted, *places]
    found = next((path for path in places if path.is_file()), None)
    if found is None:
        names = sorted({path.stem for folder in folders if folder.is_dir() for path in folder.glob("*.py")})
        near = difflib.get_close_matches(label, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise recipe.error(f"rewards.{label}", f"no file {wanted} in rewards/ (there are {', '.join(names)}){hint}")
    return found.resolve()


def check_rewards(recipe: Recipe, rewards: list[Reward], columns: tuple[str, ...], row: dict[str, Any] | None) -> None:
    """Do the columns that the rewards need exist, and do they return numbers on canned completions of one row?"""
    for reward in rewards:
        for name in reward.required:
            if name not in columns and name not in GIVEN and not (reward.batch_form and name == "prompts"):
                near = difflib.get_close_matches(name, columns, n=1, cutoff=0.4) or _same_meaning(name, columns)
                hint = f"; write {name}: '{{{near[0]}}}' in the dataset section" if near and name == "answer" else ""
                hint = hint or (f"; did you mean {near[0]!r}?" if near else "")
                have = ", ".join(column for column in columns if column != "prompt")
                raise recipe.error(f"rewards.{reward.label}", f"needs the column {name!r}, but the data has {have}{hint}")
        if row is not None:
            try:
                reward.score(Completions(list(CANNED), [[0] * len(text) for text in CANNED], [row] * len(CANNED)))
            except RunError as error:
                raise recipe.error(f"rewards.{reward.label}", f"{error}") from error.__cause__


def _same_meaning(name: str, columns: tuple[str, ...]) -> list[str]:
    gold = ("answer", "solution", "target", "ground_truth", "label", "response", "output")
    return [column for column in gold if name in gold and column in columns]


def _load(recipe: Recipe, label: str, section: RewardSection) -> Reward:
    path = find_reward(recipe, label, section)
    key = f"rewards.{label}"
    module = _import(recipe, key, path)
    function = getattr(module, path.stem, None)
    if not inspect.isfunction(function):
        defined = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        raise recipe.error(key, f"{path} has no function {path.stem!r} (it defines {', '.join(defined) or 'none'})")
    parameters = list(inspect.signature(function).parameters.values())
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    batch_form = any(p.name == "completions" for p in named)
    if not named or (not batch_form and named[0].name != "completion"):
        raise recipe.error(key, f"{path}: the first parameter of {path.stem} must be completion (or completions)")
    columns = [p for p in named if p.name not in ("completion", "completions")]
    options = {p.name: p for p in parameters if p.kind is p.KEYWORD_ONLY}
    return Reward(
        label=label,
        path=path,
        function=function,
        weight=section.weight,
        options=_options(recipe, key, section, function, options),
        full_marks=float(getattr(module, "FULL_MARKS", 1.0)),
        batch_form=batch_form,
        required=tuple(p.name for p in columns if p.default is p.empty),
        optional=tuple(p.name for p in columns if p.default is not p.empty),
        takes_all=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _options(
    recipe: Recipe,
    key: str,
    section: RewardSection,
    function: Callable[..., Any],
    parameters: dict[str, inspect.Parameter],
) -> dict[str, Any]:
    """The recipe's options, checked against the annotations of the function's keyword-only parameters."""
    annotations = typing.get_type_hints(function)
    hints = {name: annotations.get(name, Any) for name in parameters}
    options = validated(recipe, key, section.options, strict_model(key, hints))
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in options]
    if missing:
        raise recipe.error(key, f"needs the option {missing[0]}; write {key}: {{{missing[0]}: ...}}")
    return options


def _import(recipe: Recipe, key: str, path: Path) -> ModuleType:
    """Import one reward file under a name of its own, so that two of the same stem do not meet."""
    name = f"grpo_kit_reward_{path.stem}_{abs(hash(path)):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        line = error.lineno if isinstance(error, SyntaxError) else traceback.extract_tb(error.__traceback__)[-1].lineno
        raise recipe.error(key, f"{path}:{line}: cannot be imported ({type(error).__name__}: {error})") from None
    return module


class TrlReward:
    """A `Reward` in the form that GRPOTrainer calls: it is given TRL's tokens and the indices of the data rows.

    Text is decoded from the tokens, so that it is the same on chat and on plain prompts and keeps tags that are
    special tokens; what the chat template opened (`<think>`) is put back in front.
    """

    def __init__(self, reward: Reward, rows: list[dict[str, Any]], decode: Callable[[list[int]], str]):
        self.__name__ = reward.label  # TRL's name of the metric
        self.reward, self.rows, self.decode = reward, rows, decode

    def __call__(self, completion_ids: list[list[int]], row: list[int], **_: Any) -> list[float | None]:
        texts = [self.decode(ids) for ids in completion_ids]
        return self.reward.score(Completions(texts, completion_ids, [self.rows[index] for index in row]))
