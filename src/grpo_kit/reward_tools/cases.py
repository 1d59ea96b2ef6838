"""The examples that a reward file states of itself: `CASES`, and whether the function agrees with them."""

from dataclasses import dataclass, field, replace
from typing import Any

from grpo_kit.errors import shorten
from grpo_kit.recipe.recipe import Recipe
from grpo_kit.rewards.call import Fault, Score
from grpo_kit.rewards.files import import_reward
from grpo_kit.rewards.rewards import Completions, Reward
from grpo_kit.stats import ROUNDING

FORM = "write (completion, columns, expected) or (completion, columns, expected, options)"


@dataclass(frozen=True)
class Case:
    """One example: the score that a completion must get with these columns and options."""

    completion: str
    columns: dict[str, Any]
    expected: float | None
    options: dict[str, Any] = field(default_factory=dict)

    def row(self) -> dict[str, Any]:
        """Its columns as a data row; a `prompt` is written as plain text in a case."""
        columns = {name: value for name, value in self.columns.items() if name != "completion_ids"}
        return {**columns, "prompt": [{"role": "user", "content": str(columns.get("prompt", ""))}]}

    def completion_ids(self) -> list[int]:
        """As the case gives them, else one for each character."""
        return list(self.columns.get("completion_ids", [0] * len(self.completion)))


def read_cases(recipe: Recipe, reward: Reward) -> list[Case] | None:
    """The file's `CASES`; None where it has none. Raises RecipeError naming the one that is malformed."""
    key = f"rewards.{reward.label}"
    module = import_reward(recipe, key, reward.path, reward.source)
    cases = getattr(module, "CASES", None)
    if cases is None:
        return None
    if not isinstance(cases, list | tuple):
        raise recipe.error(key, f"{reward.path}: CASES is {shorten(cases)}; write a list, and in it {FORM[6:]}")
    for at, case in enumerate(cases):
        if not _well_formed(case):
            raise recipe.error(key, f"{reward.path}: CASES[{at}] is {shorten(case)}; {FORM}")
    return [Case(*case) for case in cases]


def failing_cases(reward: Reward, cases: list[Case]) -> tuple[list[str], bool]:
    """Where the function does not give the expected score, up to a case that reaches the time limit: was there one?

    Options are the case's own, never the recipe's.
    """
    failures = []
    for at, case in enumerate(cases):
        batch = Completions([case.completion], [case.completion_ids()], [case.row()])
        [score] = replace(reward, options=case.options).score(batch)
        if not same_score(score, case.expected):
            got = f"expected {said(case.expected)}, got {said(score)}"
            failures.append(f"CASES[{at}]: {quoted(case.completion)}: {got}")
        if isinstance(score, Fault) and score.kind == "timeout":
            return failures, True
    return failures, False


def same_score(one: Score, other: Score) -> bool:
    """Equal up to rounding, unscored both, or lost both in the same way."""
    if isinstance(one, Fault) or isinstance(other, Fault):
        return isinstance(one, Fault) and isinstance(other, Fault) and one.kind == other.kind
    if one is None or other is None:
        return one is other
    return abs(one - other) <= ROUNDING * max(1.0, abs(one), abs(other))


def said(score: Score) -> str:
    """A score in a message."""
    if isinstance(score, Fault):
        return f"none, because {score.what}{f' ({score.where})' if score.where else ''}"
    return "None" if score is None else f"{score:.4g}"


def quoted(text: str, width: int = 60) -> str:
    """A completion in one short line; control characters are written out, a backslash stays one."""
    return shorten(text, width).replace("\\\\", "\\")


def _well_formed(case: Any) -> bool:
    if not isinstance(case, list | tuple) or len(case) not in (3, 4):
        return False
    completion, columns, expected, *options = case
    columns_fit = all(isinstance(part, dict) and all(isinstance(k, str) for k in part) for part in (columns, *options))
    ids = columns.get("completion_ids", []) if isinstance(columns, dict) else []
    return (
        isinstance(completion, str)
        and columns_fit
        and isinstance(ids, list | tuple)
        and (expected is None or isinstance(expected, bool | int | float))
    )
