"""A recipe's rewards: functions from files, with the options and weights that the recipe gives them.

A reward is a file with a function of the file's name; see `docs/rewards.md`. Functions of the form
`f(completion, ...)` score one completion, `f(completions, ...)` a batch; both always get plain text.
"""

import inspect
import os
import pickle
import re
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from grpo_kit.answers import final_answer
from grpo_kit.errors import first_line, shorten
from grpo_kit.recipe.recipe import Recipe, RewardSection, validated
from grpo_kit.rewards.call import RewardCall, Score, score_batch, score_row
from grpo_kit.rewards.files import find_reward, import_reward, read_reward, reward_function
from grpo_kit.rewards.workers import Workers, shared_workers
from grpo_kit.stats import ROUNDING

GIVEN = ("prompt", "completion_ids")
"""Available to every reward besides the data's columns: the last user message as text, and the completion's tokens."""

TRAINER_GIVES = ("trainer_state", "log_metric", "log_extra")
"""What TRL gives to its reward functions; here only to those that run in the training process."""

UNAVAILABLE = ("environments",)

TIME_LIMIT_S = 2.0
"""For one completion, where the reward's file sets no other."""


LONGEST_S = 86_400.0

MOST_MARKS = 1e30


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


@cache
def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


@dataclass(frozen=True)
class Reward:
    """A reward function with the options and the weight that a recipe gives it.

    `only_if` is the label of a reward that must give full marks, else this one gives 0. `time_limit_s` is for a
    completion, or for a whole batch of the batch form.
    """

    label: str
    path: Path
    source: bytes
    function: Callable[..., Any]
    weight: float
    only_if: str | None
    options: dict[str, Any]
    full_marks: float
    batch_form: bool
    in_process: bool
    time_limit_s: float
    required: tuple[str, ...]
    optional: tuple[str, ...]
    takes_all: bool

    def is_right(self, score: float | None) -> bool:
        """Is this the full marks of the reward? (For the goal's reward: is the completion right?)"""
        return score is not None and score >= self.full_marks - ROUNDING

    def read_answer(self, completion: str) -> str | None:
        """The answer that a person is shown for a completion: read where this reward requires it to stand."""
        return final_answer(completion, self.parameter("require") or "none")

    @property
    def reads_answers(self) -> bool:
        """Whether it judges the answer that is read in a completion: it says where that must stand."""
        return self.parameter("require") is not None

    def parameter(self, name: str) -> Any:
        """The value in force of one of its options: the recipe's, else the function's default; None if it has none."""
        parameter = _parameters(self.function).get(name)
        return self.options.get(name, parameter.default if parameter is not None else None)

    def score(self, batch: Completions, workers: Workers | None = None, **given: Any) -> list[Score]:
        """For each completion a number, None where the row cannot be judged, or a Fault.

        Runs in worker processes (the shared ones, unless others are named) within the time limit, unless the file says
        IN_PROCESS; `given` is what the trainer gives to those that do. Raises RunError where no worker can be started.
        """
        call = RewardCall(self.path, self.source, pickle.dumps(self.options), self.batch_form, os.getcwd())
        function = partial(self.function, **self.options)
        columns = {name: batch.column(name) for name in self._columns(batch)}
        asked = self.asks_the_trainer()
        given = given or (outside_training() if asked else {})
        own = {name: given[name] for name in asked}
        if self.batch_form:
            if self.in_process:
                return score_batch(call, function, batch.texts, columns, **own)
            [scores] = (workers or shared_workers()).score(call, [(batch.texts, columns)], self.time_limit_s)
            return scores if isinstance(scores, list) else [scores] * len(batch.texts)
        rows = [(text, {name: columns[name][at] for name in columns}) for at, text in enumerate(batch.texts)]
        if self.in_process:
            return [score_row(call, function, text, {**row, **own}) for text, row in rows]
        return (workers or shared_workers()).score(call, rows, self.time_limit_s)

    def uses(self, column: str) -> bool:
        """Whether the function looks at a column, as far as its signature and its code show."""
        quoted = re.search(rf"[\"']{column}[\"']", self.source.decode(errors="replace"))
        return column in (*self.required, *self.optional) or (self.takes_all and quoted is not None)

    def asks_the_trainer(self) -> list[str]:
        """Of what the trainer gives, the names that the function takes."""
        return [name for name in TRAINER_GIVES if self.in_process and name in (*self.required, *self.optional)]

    def available(self, columns: Sequence[str]) -> list[str]:
        """What the function may ask for by name, with data of these columns."""
        more = ["prompts"] if self.batch_form else []
        return list(dict.fromkeys([*columns, *GIVEN, *more, *(TRAINER_GIVES if self.in_process else ())]))

    def _columns(self, batch: Completions) -> list[str]:
        available = [name for name in self.available(list(batch.rows[0])) if name not in TRAINER_GIVES]
        named = [name for name in (*self.required, *self.optional) if name in available]
        rest = [name for name in available if name != "prompt" or not self.batch_form] if self.takes_all else []
        return list(dict.fromkeys([*named, *rest]))


def outside_training(step: int = 0) -> dict[str, Any]:
    """What rewards in the training process are given where nothing is trained: a state of this step, deaf loggers."""
    from transformers import TrainerState

    return {"trainer_state": TrainerState(global_step=step), "log_metric": _deaf, "log_extra": _deaf}


def _deaf(name: str, value: Any) -> None:
    """Takes what a reward logs and does nothing with it."""


def load_rewards(recipe: Recipe) -> list[Reward]:
    """The recipe's rewards in its order. Imports their files; raises RecipeError for what is wrong with them."""
    return [_load(recipe, label, section) for label, section in recipe.rewards.items()]


def _load(recipe: Recipe, label: str, section: RewardSection) -> Reward:
    path = find_reward(recipe, label, section)
    key = f"rewards.{label}"
    source = read_reward(recipe, key, path)
    module = import_reward(recipe, key, path, source)
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
    if not isinstance(full_marks, int | float) or not abs(full_marks) < MOST_MARKS:
        raise recipe.error(key, f"{path}: FULL_MARKS is {shorten(full_marks)}; write the number that a right row earns")
    limit = getattr(module, "TIME_LIMIT_S", TIME_LIMIT_S)
    if isinstance(limit, bool) or not isinstance(limit, int | float) or not 0 < limit <= LONGEST_S:
        raise recipe.error(
            key, f"{path}: TIME_LIMIT_S is {shorten(limit)}; write seconds for one completion, a day at most"
        )
    in_process = getattr(module, "IN_PROCESS", False)
    if not isinstance(in_process, bool):
        raise recipe.error(key, f"{path}: IN_PROCESS is {shorten(in_process)}; write True or False")
    return Reward(
        label=label,
        path=path,
        source=source,
        function=function,
        weight=section.weight,
        only_if=section.only_if,
        options=_options(recipe, key, section, function),
        full_marks=float(full_marks),
        batch_form=batch_form,
        in_process=in_process,
        time_limit_s=float(limit),
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
    members = {name: hint for name, hint in annotations.items() if isinstance(hint, type) and issubclass(hint, Enum)}
    options |= {name: members[name](options[name]) for name in members.keys() & options.keys()}
    missing = [name for name, p in parameters.items() if p.default is p.empty and name not in options]
    if missing:
        raise recipe.error(key, f"needs the option {missing[0]}; write {key}: {{{missing[0]}: ...}}")
    return options
