"""Each symptom is a function: a history of metrics in, at most a few findings out, with what to change."""

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Any

from grpo_kit.diagnosis.findings import STEPS, Facts, Finding, Metrics, flat_in_update
from grpo_kit.diagnosis.trends import WINDOW, lately, shift
from grpo_kit.stats import ROUNDING


def _truncated(metrics: Metrics) -> float:
    return float(metrics.get("kit/truncated_share", metrics.get("completions/clipped_ratio")) or 0.0)


def _all_truncated(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    since = _since(history, lambda metrics: _truncated(metrics) == 1)
    if since is not None:
        yield Finding(
            "truncation",
            since,
            f"100% of completions hit max_completion_length {facts.max_completion_length}",
            "none comes to its end, so an answer that stands there is never seen",
            f"raise grpo.max_completion_length, to {4 * facts.max_completion_length} for a start",
        )


CUT = 0.15
"""Share of truncated completions that is spoken of when it lasts."""


def _some_truncated(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    share = lately([_truncated(metrics) for metrics in history[-WINDOW:]])
    if share is None or share <= CUT or share == 1:
        return
    found = shift([_truncated(metrics) for metrics in history])
    rising = found is not None and found.now > found.before
    yield Finding(
        "truncation",
        _step(history, found.since if found and rising else 0),
        f"{share:.0%} of completions hit max_completion_length {facts.max_completion_length}"
        + (f", {found.before:.0%} at first" if found and rising else ""),
        "they grow into the limit" if rising else "their answers are cut off and earn nothing",
        f"raise grpo.max_completion_length, to {2 * facts.max_completion_length} for a start",
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


MOSTLY = 0.8
"""Share of the total reward's rise that one reward makes up where it is farmed."""

GOOD = 0.9
"""At this accuracy there is little left to be gained, so that other rewards may rise alone."""


def _farmed(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    """The total reward rises and the goal's does not: another reward is being earned instead."""
    total = shift(_column(history, "reward"))
    goal = _column(history, f"rewards/{facts.goal}/mean")
    now = lately(goal)
    if total is None or total.now <= total.before or now is None or now >= GOOD:
        return
    rise = total.now - total.before
    own = facts.weights.get(facts.goal or "", 1.0) * (now - fmean(goal[:WINDOW]))
    rises = {label: _rise(history, label, weight) for label, weight in facts.weights.items() if label != facts.goal}
    label = max(rises, key=lambda name: rises[name], default=None)
    if label is not None and rises[label] > MOSTLY * rise and own < (1 - MOSTLY) * rise:
        yield Finding(
            "reward up, accuracy flat",
            _step(history, total.since),
            f"reward {total.before:.3g} -> {total.now:.3g}, of it {rises[label]:+.3g} from {label}; {facts.goal} stays "
            f"at {now:.2g}",
            f"{label} is easier to earn than {facts.goal}, so it is what is learned",
            f"lower rewards.{label}.weight, or set rewards.{label}.only_if={facts.goal}",
        )


def _rise(history: Sequence[Metrics], label: str, weight: float) -> float:
    found = shift(_column(history, f"rewards/{label}/mean"))
    return weight * (found.now - found.before) if found is not None else 0.0


def _length(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    """Completions twice as long as at the run's own start, or half."""
    found = shift(_column(history, "completions/mean_length"))
    accuracy = shift(_column(history, "kit/accuracy"))
    better = accuracy is not None and accuracy.now > accuracy.before
    if found is None or better or 0.5 < found.ratio < 2:
        return
    grows = found.ratio >= 2
    per_row = facts.loss_type in ("grpo", "luspo")
    cause = "longer completions are not better ones"
    if grows and per_row:
        cause += f"; loss_type {facts.loss_type} divides by a completion's own length, which favours long wrong ones"
    yield Finding(
        "length growth" if grows else "length collapse",
        _step(history, found.since),
        f"completions of {found.before:.0f} -> {found.now:.0f} tokens, and accuracy has not risen",
        cause if grows else "a short completion earns as much, so the reasoning goes",
        "set grpo.loss_type=dr_grpo, or a length reward that begins where answers end"
        if grows
        else "look at what the rewards pay (grpo-kit samples), and lower a length reward",
    )


def _entropy(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    """Relative to the run's own start; a fall alone is what learning looks like."""
    values = _column(history, "kit/entropy") or _column(history, "entropy")
    found, accuracy = shift(values), lately(_column(history, "kit/accuracy"))
    if found is None:
        return
    if found.ratio > 2 and found.now - found.before > 0.3:
        yield Finding(
            "entropy explosion",
            _step(history, found.since),
            f"entropy {found.before:.2f} -> {found.now:.2f} nats a token",
            "the policy drifts towards noise: updates are too large, or bad completions are rewarded",
            "lower grpo.learning_rate by 3 to 10 times, or set grpo.beta=0.04",
        )
    elif found.ratio < 0.1 and accuracy is not None and accuracy < 0.5:
        yield Finding(
            "entropy collapse",
            _step(history, found.since),
            f"entropy {found.before:.2f} -> {found.now:.3f} nats a token at an accuracy of {accuracy:.2f}",
            "all completions have become alike before the answers were right",
            "lower grpo.learning_rate, raise grpo.epsilon_high to 0.28, or set grpo.entropy_coef",
        )


CLIPPED = 0.3


def _clipped(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    shares = _column(history, "clip_ratio/region_mean")
    share = lately(shares, STEPS)
    if share is not None and share > CLIPPED:
        yield Finding(
            "clipping",
            _lasting(history, "clip_ratio/region_mean", CLIPPED),
            f"{share:.0%} of tokens are clipped",
            "the policy has moved far from the one that wrote the completions",
            "lower grpo.learning_rate or grpo.num_iterations",
        )


KL = 1.0


def _kl(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    values = _column(history, "kl")
    value = lately(values, STEPS)
    if value is not None and value > KL:
        found = shift(values)
        yield Finding(
            "KL",
            _step(history, found.since) if found else _lasting(history, "kl", KL),
            f"KL to the reference model {value:.2g} nats a token",
            "the policy has left the model it started from",
            "lower grpo.learning_rate, or raise grpo.beta",
        )


UNSCORED = 0.1


def _unscored(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    for label in facts.full_marks:
        key = f"kit/rewards/{label}/unscored_share"
        share = lately(_column(history, key), STEPS)
        if share is not None and share > UNSCORED:
            late = lately(_column(history, f"kit/rewards/{label}/timeout_share"), STEPS) or 0.0
            yield Finding(
                "unscored",
                _lasting(history, key, UNSCORED),
                f"{label} did not judge {share:.0%} of completions, {late:.0%} for its time limit",
                "they are left out of the mean, and of what is learned",
                "see `score lost` in events.jsonl; TIME_LIMIT_S in the reward's file is its limit",
            )


SLOW = 0.3


def _slow_rewards(history: Sequence[Metrics], facts: Facts) -> Iterator[Finding]:
    rewards, steps = (_column(history, f"kit/seconds/{part}") for part in ("rewards", "step"))
    spent, whole = lately(rewards), lately(steps)
    if spent is None or not whole or spent < 1 or spent / whole < SLOW:
        return
    each = {label: lately(_column(history, f"kit/seconds/rewards/{label}")) or 0.0 for label in facts.full_marks}
    label = max(each, key=lambda name: each[name])
    yield Finding(
        "slow rewards",
        int(history[-WINDOW]["step"]),
        f"rewards take {spent:.1f} of {whole:.1f} s a step, {label} {each[label]:.1f} s",
        "the card waits for them",
        "time the reward with grpo-kit rewards test, and lower TIME_LIMIT_S in its file",
    )


SYMPTOMS: tuple[Callable[[Sequence[Metrics], Facts], Iterator[Finding]], ...] = (
    _all_truncated, _some_truncated, _no_gradient, _farmed, _length, _entropy, _clipped, _kl, _unscored, _slow_rewards,
)  # fmt: skip


NAMES = ("truncation", "no gradient", "reward up, accuracy flat", "length growth", "length collapse",
         "entropy explosion", "entropy collapse", "clipping", "KL", "unscored", "slow rewards")  # fmt: skip
"""Of all findings."""


def _column(history: Sequence[Metrics], key: str) -> list[float]:
    return [value for metrics in history if (value := metrics.get(key)) is not None]


def _step(history: Sequence[Metrics], place: int) -> int:
    return int(history[min(place, len(history) - 1)]["step"])


def _lasting(history: Sequence[Metrics], key: str, above: float) -> int:
    """The step from which on a value has been above a limit."""
    since = _since(history, lambda metrics: (metrics.get(key) or 0.0) > above)
    return int(history[-STEPS]["step"]) if since is None else since


def _since(history: Sequence[Metrics], holds: Any) -> int | None:
    """The step from which on something has held to the end, for at least STEPS rollouts."""
    lasting: list[Metrics] = []
    for metrics in reversed(history):
        if not holds(metrics):
            break
        lasting.append(metrics)
    return int(lasting[-1]["step"]) if len(lasting) >= STEPS else None
