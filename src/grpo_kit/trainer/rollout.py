"""One generation batch, sampled and scored: what the trainer hands on."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from grpo_kit.rewards.scoring import Scores


@dataclass(frozen=True)
class Rollout:
    """One scored generation batch of all processes, in groups of `num_generations` consecutive completions.

    `scores` and `advantages` have one entry per completion; `rows` are indices of data rows; times are seconds, those
    of the main process.
    """

    step: int
    rows: list[int]
    completion_ids: list[list[int]]
    scores: Scores
    advantages: list[float]
    generation_s: float
    rewards_s: float
    round: int = 0
    "0 for the step's own prompts; above it for prompts that dynamic sampling put in the place of flat groups."


def joined(parts: Sequence[Rollout]) -> Rollout:
    """What each of the processes sampled and scored as one rollout, in their order; a group may span two of them."""
    scores = [part.scores for part in parts]
    starts = [sum(len(part.rows) for part in parts[:at]) for at in range(len(parts))]
    return replace(
        parts[0],
        rows=[row for part in parts for row in part.rows],
        completion_ids=[ids for part in parts for ids in part.completion_ids],
        advantages=[advantage for part in parts for advantage in part.advantages],
        scores=replace(
            scores[0],
            values={label: [value for one in scores for value in one.values[label]] for label in scores[0].values},
            lost=[
                replace(lost, index=start + lost.index)
                for start, one in zip(starts, scores, strict=True)
                for lost in one.lost
            ],
        ),
    )
