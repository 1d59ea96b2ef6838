"""Symptoms -> what they mean and what to change. Pure functions over a run's metrics, one finding each.

A history is the list of a run's metrics, oldest first, as `metrics.jsonl` holds them.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from grpo_kit.stats import ROUNDING

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
    """What a history does not say itself: the budget of tokens, and the full marks of each reward."""

    max_completion_length: int
    full_marks: Mapping[str, float]


def diagnose(history: Sequence[Metrics], facts: Facts) -> list[Finding]:
    """All that is wrong at the end of this history."""
    rollouts = [metrics for metrics in history if metrics.get("kit/flat_group_share") is not None]
    if len(rollouts) < STEPS:
        return []
    return [*_all_truncated(rollouts, facts), *_no_gradient(rollouts, facts)]


def flat_in_update(metrics: Metrics) -> float | None:
    """The share of flat groups among those learned from: what dynamic sampling left of them; None without a rollout."""
    return metrics.get("kit/sampling/flat_left_share", metrics.get("kit/flat_group_share"))


def _all_truncated(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    since = _since(history, lambda metrics: metrics["kit/truncated_share"] == 1)
    if since is not None:
        yield Finding(
            "truncation",
            since,
            f"100% of completions hit max_completion_length {facts.max_completion_length}",
            "none comes to its end, so an answer that stands there is never seen",
            f"raise grpo.max_completion_length, to {4 * facts.max_completion_length} for a start",
        )


def _no_gradient(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    """Every group of completions is flat, so no completion is better than another."""
    since = _since(history, lambda metrics: flat_in_update(metrics) == 1)
    if since is not None:
        flat = [metrics for metrics in history if metrics["step"] >= since]
        causes = [_how_flat(label, full, flat) for label, full in facts.full_marks.items()]
        yield Finding(
            "no gradient",
            since,
            "every group is flat",
            f"no completion is better than another: {'; '.join(cause for cause in causes if cause)}",
            "see the completions (grpo-kit samples) and test the rewards (grpo-kit rewards test)",
        )


def _how_flat(label: str, full_marks: float, flat: Sequence[Metrics]) -> str | None:
    """In which way a reward says nothing about which completion of a group is better."""
    means = [float(m[f"rewards/{label}/mean"]) for m in flat if m.get(f"rewards/{label}/mean") is not None]
    spreads = [float(m[f"rewards/{label}/std"]) for m in flat if m.get(f"rewards/{label}/std") is not None]
    if not means:
        return f"{label} judges nothing"
    scale = max(1.0, *map(abs, means))
    if max(means) - min(means) > ROUNDING * scale or max(spreads, default=0.0) > ROUNDING * scale:
        return f"{label} is equal inside every group, though it differs between groups"
    if max(spreads, default=0.0) > 0:
        return f"{label} is numerically flat: {means[-1]:g}, give or take {max(spreads):.0e}, which is rounding"
    if means[-1] == 0:
        return f"{label} is always zero"
    return (
        f"{label} gives always full marks" if means[-1] >= full_marks - ROUNDING else f"{label} is always {means[-1]:g}"
    )


def _since(history: Sequence[Metrics], holds: Any) -> int | None:
    """The step from which on something has held to the end, for at least STEPS rollouts."""
    lasting: list[Metrics] = []
    for metrics in reversed(history):
        if not holds(metrics):
            break
        lasting.append(metrics)
    return int(lasting[-1]["step"]) if len(lasting) >= STEPS else None
