"""What can be known about a recipe's rewards before anything is trained: do they get what they need, do they judge?"""

import difflib
from typing import Any

from grpo_kit.recipe.recipe import Recipe
from grpo_kit.rewards.call import Fault
from grpo_kit.rewards.files import looked_up
from grpo_kit.rewards.rewards import TRAINER_GIVES, UNAVAILABLE, Completions, Reward
from grpo_kit.rewards.scoring import explain

CANNED = ("", "The answer is 42.", r"<think>6 x 7</think> So it is \boxed{42}.", "<answer>42</answer>")
"""Completions on which every reward is tried before a run: it must return numbers for all of them."""


def check_rewards(recipe: Recipe, rewards: list[Reward], columns: tuple[str, ...], row: dict[str, Any] | None) -> None:
    """Do the columns that the rewards need exist, and do they return numbers on canned completions of one row?"""
    for reward in rewards:
        key = f"rewards.{reward.label}"
        for name in reward.required:
            if name not in reward.available(columns):
                raise recipe.error(key, _missing_column(name, columns))
        for name in looked_up(reward.function):
            if name not in (*reward.available(columns), *TRAINER_GIVES, *UNAVAILABLE):
                hint = f"; a column that may be missing needs a default: .get({name!r}, None)"
                raise recipe.error(key, _missing_column(name, columns) + hint)
        if row is not None:
            _try_out(recipe, reward, row)


def _try_out(recipe: Recipe, reward: Reward, row: dict[str, Any]) -> None:
    batch = Completions(list(CANNED), [[0] * len(text) for text in CANNED], [row] * len(CANNED))
    for at, score in enumerate(reward.score(batch)):
        if isinstance(score, Fault):
            raise recipe.error(f"rewards.{reward.label}", explain(reward, score, at, CANNED[at]))


def _missing_column(name: str, columns: tuple[str, ...]) -> str:
    if name in TRAINER_GIVES:
        return (
            f"needs {name}, which only a reward in the training process is given: write IN_PROCESS = True in its file"
        )
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
