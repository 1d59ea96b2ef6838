"""Check the contract of reward files before anything is trained, and score completions with them.

A reward is a file with a function of the file's name; see `docs/rewards.md`. Functions of the form
`f(completion, ...)` score one completion, `f(completions, ...)` a batch; both always get plain text.
"""

import difflib
import inspect
import math
import sys
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from grpo_kit.answers import final_answer
from grpo_kit.errors import RunError
from grpo_kit.recipe import Recipe, RewardSection, validated
from grpo_kit.reward_files import find_reward, import_reward, looked_up, place, reads_messages, reward_function
from grpo_kit.schema import first_line, shorten
from grpo_kit.stats import ROUNDING

GIVEN = ("prompt", "completion_ids")
"""Available to every reward besides the data's columns: the last user message as text, and the completion's tokens."""

UNAVAILABLE = ("trainer_state", "log_metric", "log_extra", "environments")
"""What TRL gives to its reward functions and the kit does not."""

CANNED = ("", "The answer is 42.", r"<think>6 x 7</think> So it is \boxed{42}.", "<answer>42</answer>")
"""Completions on which every reward is tried before a run: it must return numbers for all of them."""


@dataclass(frozen=True)
class Completions:
    """What rewards judge: assistant turns as plain text, their tokens, and the data row of each."""

    texts: list[str]
    completion_ids: list[list[int]]
    rows: list[dict[str, Any]]

    def column(self, name: str) -> list[Any]:
        if name in ("prompt", "prompts"):
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
        columns = {name: batch.column(name) for name in names}
        if self.batch_form:
            given = {name: list(values) for name, values in columns.items()}
            result = self._call(0, completions=list(batch.texts), **given)
            return self._numbers(result, batch.texts)
        scores = []
        for index, text in enumerate(batch.texts):
            value = self._call(index, text, **{name: values[index] for name, values in columns.items()})
            scores.append(self._number(value, text))
        return scores

    def available(self, columns: Sequence[str]) -> list[str]:
        """What the function may ask for by name, with data of these columns."""
        return list(dict.fromkeys([*columns, *GIVEN, *(["prompts"] if self.batch_form else [])]))

    def _columns(self, batch: Completions) -> list[str]:
        available = self.available(list(batch.rows[0]))
        named = [name for name in (*self.required, *self.optional) if name in available]
        rest = [name for name in available if name != "prompt" or not self.batch_form] if self.takes_all else []
        return list(dict.fromkeys([*named, *rest]))

    def _call(self, index: int, *args: Any, **kwargs: Any) -> Any:
        try:
            return self.function(*args, **kwargs, **self.options)
        except (Exception, SystemExit) as error:
            text = args[0] if args else kwargs["completions"]
            name, line = place(error, self.path)
            old_form = isinstance(error, TypeError | IndexError | KeyError) and reads_messages(self.function)
            hint = '; completions and prompts are plain text: drop [0]["content"]' if old_form else ""
            raise RunError(
                f"{self.path}: {self.function.__name__} raised {type(error).__name__}: {first_line(error)} "
                f"({name}:{line}, completion {index}: {shorten(text)}){hint}"
            ) from error

    def _numbers(self, result: Any, texts: Sequence[str]) -> list[float | None]:
        """A batch-form result: a list, tuple, array or tensor of one number each; (n, 1) is flattened."""
        values = _plain(result)
        if not isinstance(values, list | tuple) or len(values) != len(texts):
            got = f"{len(values)} values" if isinstance(values, list | tuple) else type(result).__name__
            raise RunError(
                f"{self.path}: {self.function.__name__} returned {got} ({shorten(result)}) for {len(texts)} "
                f"completions; return a list of {len(texts)} numbers"
            )
        if values is not result and all(isinstance(value, list) and len(value) == 1 for value in values):
            values = [value[0] for value in values]
        return [self._number(value, text) for value, text in zip(values, texts, strict=True)]

    def _number(self, value: Any, text: str) -> float | None:
        plain = _plain(value)
        value = plain[0] if plain is not value and isinstance(plain, list) and len(plain) == 1 else plain
        if value is None:
            return None
        if not isinstance(value, bool | int | float) or not abs(value) <= sys.float_info.max:
            raise RunError(
                f"{self.path}: {self.function.__name__} returned {shorten(value)} ({type(value).__name__}) for the "
                f"completion {shorten(text)}; return a finite number, or None for a row that cannot be judged"
            )
        return float(value)


def _plain(value: Any) -> Any:
    """What numpy, torch or pandas made as Python's own lists and numbers; all else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def load_rewards(recipe: Recipe) -> list[Reward]:
    """The recipe's rewards in its order. Imports their files; raises RecipeError for what is wrong with them."""
    return [_load(recipe, label, section) for label, section in recipe.rewards.items()]


def check_rewards(recipe: Recipe, rewards: list[Reward], columns: tuple[str, ...], row: dict[str, Any] | None) -> None:
    """Do the columns that the rewards need exist, and do they return numbers on canned completions of one row?"""
    for reward in rewards:
        for name in reward.required:
            if name not in reward.available(columns):
                raise recipe.error(f"rewards.{reward.label}", _missing_column(name, columns))
        for name in looked_up(reward.function):
            if name not in (*reward.available(columns), *UNAVAILABLE):
                hint = f"; a column that may be missing needs a default: .get({name!r}, None)"
                raise recipe.error(f"rewards.{reward.label}", _missing_column(name, columns) + hint)
        if row is not None:
            try:
                reward.score(Completions(list(CANNED), [[0] * len(text) for text in CANNED], [row] * len(CANNED)))
            except RunError as error:
                raise recipe.error(f"rewards.{reward.label}", f"{error}") from error.__cause__


def _missing_column(name: str, columns: tuple[str, ...]) -> str:
    if name in UNAVAILABLE:
        return f"needs {name}, which rewards are not given here; remove the parameter"
    near = difflib.get_close_matches(name, columns, n=1, cutoff=0.4) or _same_meaning(name, columns)
    hint = f"; write {name}: '{{{near[0]}}}' in the dataset section" if near and name == "answer" else ""
    hint = hint or (f"; did you mean {near[0]!r}?" if near else "")
    have = ", ".join(column for column in columns if column != "prompt")
    return f"needs the column {name!r}, but the data has {have or 'none'}{hint}"


def _same_meaning(name: str, columns: tuple[str, ...]) -> list[str]:
    gold = ("answer", "solution", "target", "ground_truth", "label", "response", "output")
    return [column for column in gold if name in gold and column in columns]


def _load(recipe: Recipe, label: str, section: RewardSection) -> Reward:
    path = find_reward(recipe, label, section)
    key = f"rewards.{label}"
    module = import_reward(recipe, key, path)
    function = reward_function(recipe, key, path, module)
    parameters = list(inspect.signature(function).parameters.values())
    named = {p.name: p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)}
    batch_form = "completions" in named
    if ("completion" in named) if batch_form else list(named)[:1] != ["completion"]:
        raise recipe.error(key, f"{path}: the first parameter of {path.stem} must be completion (or completions)")
    if any(p.kind is p.POSITIONAL_ONLY for p in named.values() if batch_form or p.name != "completion"):
        raise recipe.error(key, f"{path}: {path.stem} gets columns by name; remove the / from its parameters")
    columns = [p for p in named.values() if p.name not in ("completion", "completions")]
    full_marks = getattr(module, "FULL_MARKS", 1.0)
    if not isinstance(full_marks, int | float) or not math.isfinite(full_marks):
        raise recipe.error(key, f"{path}: FULL_MARKS is {shorten(full_marks)}; write the number that a right row earns")
    return Reward(
        label=label,
        path=path,
        function=function,
        weight=section.weight,
        options=_options(recipe, key, section, function),
        full_marks=float(full_marks),
        batch_form=batch_form,
        required=tuple(p.name for p in columns if p.default is p.empty),
        optional=tuple(p.name for p in columns if p.default is not p.empty),
        takes_all=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def _options(recipe: Recipe, key: str, section: RewardSection, function: Callable[..., Any]) -> dict[str, Any]:
    """The recipe's options, checked against the annotations of the function's keyword-only parameters."""
    parameters = {p.name: p for p in inspect.signature(function).parameters.values() if p.kind is p.KEYWORD_ONLY}
    annotations = {name: p.annotation for name, p in parameters.items() if p.annotation is not p.empty}
    try:
        annotations = typing.get_type_hints(
            SimpleNamespace(__annotations__=annotations), inspect.unwrap(function).__globals__
        )
    except (NameError, TypeError, SyntaxError) as error:
        raise recipe.error(key, f"an option's annotation cannot be read: {first_line(error)}") from None
    options = validated(recipe, key, section.options, {name: annotations.get(name, Any) for name in parameters})
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in options]
    if missing:
        raise recipe.error(key, f"needs the option {missing[0]}; write {key}: {{{missing[0]}: ...}}")
    return options


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
