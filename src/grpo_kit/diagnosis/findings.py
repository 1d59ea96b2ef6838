"""What a diagnosis is made of: the history it looks at, what it must know besides, and what it finds.

A history is the list of a run's metrics, oldest first, as `metrics.jsonl` holds them; where it is another trainer's,
TRL's own keys stand in for the kit's.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Metrics = Mapping[str, Any]

STEPS = 3
"""A symptom that is plain has lasted for so many rollouts before it is spoken of."""


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, since which step, how that shows, why it happens and what would mend it."""

    name: str
    since: int
    evidence: str
    cause: str
    change: str

    def describe(self) -> str:
        return f"{self.evidence} (since step {self.since}): {self.cause}; {self.change}"


@dataclass(frozen=True)
class Facts:
    """What a history does not say itself: the budget of tokens, the full marks of each reward, the loss.

    `goal` is the label of the reward that means success, `weights` are those of all rewards; each may be unknown.
    """

    max_completion_length: int
    full_marks: Mapping[str, float]
    goal: str | None = None
    weights: Mapping[str, float] = field(default_factory=dict)
    loss_type: str | None = None


def flat_in_update(metrics: Metrics) -> float | None:
    """The share of flat groups among those learned from: what dynamic sampling left of them; None without a rollout."""
    keys = ("kit/sampling/flat_left_share", "kit/flat_group_share", "frac_reward_zero_std")
    return next((float(metrics[key]) for key in keys if metrics.get(key) is not None), None)
