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
from grpo_kit.checkpoint import damaged_weights
from grpo_kit.errors import RecipeError
from grpo_kit.generate import sample, sampling_config
from grpo_kit.model import load_trained
from grpo_kit.prepare import Prepared, prepare
from grpo_kit.recipe import load_recipe
from grpo_kit.reward_tools.cases import quoted
from grpo_kit.rewards import Completions, outside_training
from grpo_kit.run_dir import RunDir
from grpo_kit.scoring import Scorer, total_reward
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
    judged = _judged(prepared, run.final)
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


def _judged(prepared: Prepared, folder: Path) -> list[Judged]:
    """Completions at the training sampling parameters, judged by all rewards; those that none judged are left out."""
    recipe, plan, goal = prepared.recipe, prepared.plan, prepared.goal
    data = prepared.eval_data or prepared.data
    rows = random.Random(recipe.seed).sample(data.rows, min(ROWS, len(data.rows)))
    model: Any = load_trained(str(folder), prepared.model_path)
    model.to(prepared.device.kind)
    drawn = list(
        sample(
            model,
            prepared.chat,
            replace(prepared.device, autocast=None),  # the weights are in the dtype to use
            rows,
            sampling_config(prepared.args, prepared.chat, plan.max_completion_length),
            samples=recipe.evaluation.samples,
            seed=recipe.seed,
            sequences_at_once=plan.completions_per_rollout,
        )
    )
    ids = [completion for one in drawn for completion in one.completion_ids]
    texts = [prepared.chat.decode(completion) for completion in ids]
    of_each = [rows[one.row] for one in drawn for _ in one.completion_ids]
    scorer = Scorer(prepared.rewards, skip_errors=recipe.on_reward_error == "skip")
    scores = scorer.score(Completions(texts, ids, of_each), **outside_training()).values
    judged = []
    for at, (text, row) in enumerate(zip(texts, of_each, strict=True)):
        total = total_reward([scores[reward.label][at] for reward in prepared.rewards], prepared.rewards)
        if total is not None:
            right = goal.is_right(scores[goal.label][at])
            gold = row.get("answer")
            doubted = right and goal.path.stem != "accuracy" and gold is not None
            judged.append(Judged(text, gold, total, right, not doubted or _same(str(gold), text)))
    return judged


def _same(gold: str, text: str) -> bool:
    answer = final_answer(text)
    return answer is not None and same_answer(gold, answer) is True
