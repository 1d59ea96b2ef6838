"""The kit's own metrics of one generation batch: plain numbers in, plain numbers out."""

import math
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from grpo_kit.prepare.prepare import Prepared
from grpo_kit.rewards.rewards import Reward
from grpo_kit.rewards.scoring import Scores, total_reward
from grpo_kit.stats import is_flat, percentile, spread_of
from grpo_kit.trainer.rollout import Rollout

SECONDS = "kit/seconds/"

Group = range
"""Indices of the completions of one prompt within their batch."""


SMALL = 0.01
"""Share of full marks that a group's rewards must differ by at least to mean something."""


def rollout_metrics(rollout: Rollout, prepared: Prepared, answers: Sequence[str | None] = ()) -> dict[str, float]:
    """Shares are of groups or of completions, between 0 and 1; NaN where there is nothing to divide by.

    `answers` are those read in the completions; where the goal's reward reads none, their share is left out.
    """
    rewards, scores, goal = prepared.rewards, rollout.scores, prepared.goal
    judged = scores.values[goal.label]
    right = [goal.is_right(score) for score in judged]
    wrong = [score is not None and not goal.is_right(score) for score in judged]
    totals = totals_of(scores, rewards)
    groups = groups_of(len(totals), prepared.plan.num_generations)
    flat = [group for group in groups if is_flat([totals[i] for i in group])]
    return {
        "kit/accuracy": sum(right) / (sum(right) + sum(wrong)) if any(right) or any(wrong) else math.nan,
        "kit/flat_group_share": len(flat) / len(groups),
        "kit/all_right": sum(all(right[i] for i in group) for group in flat) / len(groups),
        "kit/all_wrong": sum(all(wrong[i] for i in group) for group in flat) / len(groups),
        "kit/truncated_share": fmean(prepared.chat.is_truncated(ids) for ids in rollout.completion_ids),
        "kit/unscored_share": fmean(total is None for total in totals),
        **({"kit/unread_share": fmean(answer is None for answer in answers)} if answers and goal.reads_answers else {}),
        "kit/small_spread_share": small_spread_share(
            totals, groups, sum(abs(r.weight) * r.full_marks for r in rewards)
        ),
        **token_metrics(rollout.completion_ids, groups),
        **reward_metrics(scores, rewards, groups),
        f"{SECONDS}generation": rollout.generation_s,
        f"{SECONDS}rewards": rollout.rewards_s,
    }


def token_metrics(completion_ids: Sequence[Sequence[int]], groups: Sequence[Group]) -> dict[str, float]:
    """How long completions are, how much of the sampled rectangle is padding, which groups are one text repeated."""
    tokens = sorted(map(len, completion_ids))
    same = [all(completion_ids[i] == completion_ids[group[0]] for i in group) for group in groups]
    return {
        "kit/identical_group_share": fmean(same),
        "kit/padding_share": 1 - fmean(tokens) / max(tokens[-1], 1),
        **{f"kit/tokens_p{q}": float(percentile(tokens, q)) for q in (50, 95)},
    }


def small_spread_share(values: Sequence[float | None], groups: Sequence[Group], full_marks: float) -> float:
    """The share of groups that are not flat, but differ by less than SMALL of full marks: by noise, most likely."""
    spreads = [spread_of([values[i] for i in group]) for group in groups]
    return fmean(0 < spread < SMALL * abs(full_marks) for spread in spreads)


def largest_of_b(model: Any) -> float:
    """The largest absolute entry of LoRA's B matrices, which begin at 0."""
    matrices = [weights for name, weights in model.named_parameters() if "lora_B" in name]
    return max((float(weights.detach().abs().max()) for weights in matrices if weights.numel()), default=math.nan)


def reward_metrics(scores: Scores, rewards: Sequence[Reward], groups: Sequence[Group]) -> dict[str, float]:
    """Per reward: what it judged, how long that took, and how much it says within the groups."""
    influence = variance_shares(scores, rewards, groups)
    found: dict[str, float] = {}
    for reward in rewards:
        values = scores.values[reward.label]
        key = f"kit/rewards/{reward.label}/"
        flat = [is_flat([values[i] for i in group]) for group in groups]
        found |= {
            f"{key}unscored_share": fmean(value is None for value in values),
            f"{key}timeout_share": scores.lost_share(reward.label, "timeout"),
            f"{key}flat_group_share": fmean(flat),
            f"{key}small_spread_share": small_spread_share(values, groups, reward.full_marks),
            f"{key}variance_share": influence[reward.label],
            f"{SECONDS}rewards/{reward.label}": scores.seconds[reward.label],
        }
    return found


def variance_shares(scores: Scores, rewards: Sequence[Reward], groups: Sequence[Group]) -> dict[str, float]:
    """What share of the total reward's variance within groups comes from each reward, weight included.

    The covariance of a reward's weighted scores with the total, over the total's variance: the shares add up to 1. A
    reward that works against the others has a negative one. NaN where all groups are flat.
    """
    totals = totals_of(scores, rewards)
    used = [[i for i in group if totals[i] is not None] for group in groups]
    used = [group for group in used if group and not is_flat([totals[i] for i in group])]
    total_spread = [_deviations([totals[i] or 0.0 for i in group]) for group in used]
    variance = sum(d * d for spread in total_spread for d in spread)
    shares = {}
    for reward in rewards:
        values = [reward.weight * (value or 0.0) for value in scores.values[reward.label]]  # unscored adds nothing
        own = [_deviations([values[i] for i in group]) for group in used]
        pairs = zip((d for spread in own for d in spread), (d for spread in total_spread for d in spread), strict=True)
        shares[reward.label] = sum(a * b for a, b in pairs) / variance if variance else math.nan
    return shares


def totals_of(scores: Scores, rewards: Sequence[Reward]) -> list[float | None]:
    """The total reward of each completion, None where no reward judged it."""
    columns = [scores.values[reward.label] for reward in rewards]
    return [total_reward(row, rewards) for row in zip(*columns, strict=True)]


def groups_of(completions: int, num_generations: int) -> list[Group]:
    return [range(start, start + num_generations) for start in range(0, completions, num_generations)]


def _deviations(values: Sequence[float]) -> list[float]:
    mean = fmean(values)
    return [value - mean for value in values]
