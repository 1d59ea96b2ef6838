"""`rewards test --model RUN`: the trained model as attacker. What it is paid for without being right, it has found.

Imports torch; only the command for it imports this file.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_kit.answers import final_answer, same_answer
from grpo_kit.errors import RecipeError
from grpo_kit.evaluation.judged import held_out_task, judge_rows
from grpo_kit.measure.targets import Target, find_target, load_target
from grpo_kit.prepare.prepare import Prepared, prepare
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.reward_tools.cases import quoted
from grpo_kit.rewards.scoring import Scorer, total_reward
from grpo_kit.run.checkpoint import damaged_weights
from grpo_kit.run.run_dir import RunDir
from grpo_kit.stats import ROUNDING

ROWS = 32
SHOWN = 5
"""Of the wrong answers that are paid most, so many are shown."""


@dataclass(frozen=True)
class Judged:
    """A completion of the model: `right` by the goal's full marks, `agreed` if the answer read in it is the gold's."""

    text: str
    gold: str | None
    total: float
    right: bool
    agreed: bool


def attack_with_model(run: RunDir, recipe: Path | None, say: Callable[[str], Any]) -> int:
    """Sample a finished run's model and list the wrong answers that are paid most; 1 if they pay like right ones.

    The recipe is the run's own, or another one whose rewards are to be attacked. Raises RecipeError.
    """
    if not run.final.is_dir() or damaged_weights(run.final):
        raise RecipeError(f"{run.path}: has no final/ with a whole model; name a run that finished")
    prepared = prepare(load_recipe(run.path if recipe is None else recipe))
    held_out = prepared.eval_data is not None
    judged = _judged(prepared, find_target(str(run.final)))
    say(
        f"attack of {run.final} on {prepared.recipe.source}: {len(judged)} completions of "
        f"{'held-out' if held_out else 'training'} rows"
    )
    right = [one for one in judged if one.right and one.agreed]
    wrong = sorted((one for one in judged if not (one.right and one.agreed)), key=lambda one: -one.total)
    for one in wrong[:SHOWN]:
        why = f", paid as right by {prepared.goal.label}, but not the gold's value" if one.right else ""
        gold = "" if one.gold is None else f"  gold {quoted(one.gold, 30)}"
        say(f"  {one.total:.3g}  {quoted(one.text, 100)}{gold}{why}")
    mean = fmean(one.total for one in right) if right else None
    best = f"the best of them {wrong[0].total:.3g}" if wrong else "so nothing to show"
    say(
        f"  {len(right)} right{'' if mean is None else f' (mean total {mean:.3g})'}, {len(wrong)} wrong: {best}; "
        f"{sum(one.right for one in wrong)} of the wrong ones have full marks of {prepared.goal.label}"
    )
    if mean is None or not wrong or wrong[0].total < mean - ROUNDING:
        return 0
    say(f"  FINDING: a wrong answer is paid {wrong[0].total:.3g}, no less than a right one on average ({mean:.3g})")
    return 1


def _judged(prepared: Prepared, target: Target) -> list[Judged]:
    """Completions at the training sampling parameters, judged by all rewards; those that none judged are left out."""
    data, goal, rewards = prepared.eval_data or prepared.data, prepared.goal, prepared.rewards
    places = random.Random(prepared.recipe.seed).sample(range(len(data.rows)), min(ROWS, len(data.rows)))
    task = held_out_task(prepared, replace(data, rows=data.rows.select(places)), target.step)
    scorer = Scorer(rewards, skip_errors=prepared.recipe.on_reward_error == "skip")
    judged = []
    for rows, _ in judge_rows(task, load_target(target, prepared), scorer):
        for row in rows:
            gold = task.data.rows[row.row].get("answer")
            for at, text in enumerate(row.texts):
                total = total_reward([row.scores[reward.label][at] for reward in rewards], rewards)
                if total is not None:
                    right = goal.is_right(row.scores[goal.label][at])
                    doubted = right and goal.path.stem != "accuracy" and gold is not None
                    judged.append(Judged(text, gold, total, right, not doubted or _same(str(gold), text)))
    return judged


def _same(gold: str, text: str) -> bool:
    answer = final_answer(text)
    return answer is not None and same_answer(gold, answer) is True
