"""Completions that are cut, that grow, or that shrink."""

import math
from collections.abc import Iterator

from grpo_kit.diagnosis.chance import groups_of, plain_share, steps_beyond_chance, trials_of
from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.diagnosis.history import STEPS, Column, History
from grpo_kit.diagnosis.policy import slower
from grpo_kit.diagnosis.rewards import accuracy_of, has_improved, lighter, rising_reward
from grpo_kit.diagnosis.trends import WINDOW, lately, mean, shift

TRUNCATED = ("kit/truncated_share", "completions/clipped_ratio")

CUT, SOME = 0.15, 0.08
"""Shares of truncated completions: spoken of when it lasts, and usual."""

MOST = 4
"""Times the budget that is proposed at most."""


def truncation(history: History, facts: Facts) -> Iterator[Finding]:
    """All completions are cut for a few steps, or many over a while; rising, or as it was at first."""
    cut = history.column(*TRUNCATED)
    all_since = cut.lasting(lambda share: share == 1, steps_beyond_chance(CUT, groups_of(history, facts)))
    share = 1.0 if all_since is not None else plain_share(cut, CUT, SOME, trials_of(history, facts))
    if share is None:
        return
    found = shift(cut)
    at_first = found.before if found and found.rises else mean(cut.values[:STEPS])
    rising = (found is not None and found.rises) or (len(cut.values) >= WINDOW and share - at_first > CUT)
    cause, change, override = _why_cut(history, facts, share, rising)
    yield Finding(
        "truncation",
        found.since if found and rising else _first(cut, rising) if all_since is None else all_since,
        f"{share:.0%} of completions hit max_completion_length {facts.max_completion_length}"
        + (f", {at_first:.0%} at first" if rising else ""),
        cause,
        change,
        override,
    )


def _first(cut: Column, rising: bool) -> int:
    """The step from which on completions have been cut: many where that is rising, else any."""
    return cut.lasting(lambda share: share > (CUT if rising else 0)) or cut.steps[-STEPS if rising else 0]


def _why_cut(history: History, facts: Facts, share: float, rising: bool) -> tuple[str, str, str | None]:
    """Why completions are cut, what to change, and the override."""
    accuracy = accuracy_of(history, facts).values
    before, now = mean(accuracy[:STEPS] or [0.0]), mean(accuracy[-STEPS:] or [0.0])
    if rising and now < before / 2:
        return (
            f"they no longer come to an end, and accuracy has gone from {before:.2f} to {now:.2f}: the policy is lost",
            "lower the learning rate; a larger budget is no remedy",
            slower(history),
        )
    longest = "raise the token budget; grpo-kit preflight RECIPE measures which one cuts 5 %"
    if rising:
        return "they grow into the limit", longest, longer(history, facts)
    if share == 1:
        return "none comes to its end, so an answer that stands there is never seen", longest, longer(history, facts)
    return "their answers are cut off and earn nothing", longest, longer(history, facts)


def longer(history: History, facts: Facts) -> str | None:
    """The override for a token budget that cuts about 5 %.

    Where fewer than half are cut, lengths above the median are taken to fall off as they do up to the limit:
    S(t) = 0.5 exp(-r (t - median)), with S(limit) the share that is cut. Else it is a guess.
    """
    limit = facts.max_completion_length
    share, median = lately(history.column(*TRUNCATED), 3), lately(history.column("kit/tokens_p50"), 3)
    if not limit:
        return None
    enough = float(MOST * limit if share and share > 0.5 else 2 * limit)
    if share and median is not None and 0.05 < share < 0.5 and median < limit:
        enough = median + (limit - median) * math.log(10) / math.log(0.5 / share)
    return f"grpo.max_completion_length={min(math.ceil(enough / 8) * 8, MOST * limit)}"


OWN_LENGTH = ("grpo", "sapo")
"""Loss types that divide a completion's loss by its own length."""


def length_growth(history: History, facts: Facts) -> Iterator[Finding]:
    """Completions twice as long as at the run's own start, and no better."""
    found = shift(history.column("completions/mean_length"))
    if found is None or found.ratio < 2 or has_improved(history, facts):
        return
    cause, change, override = "longer completions are not better ones", "add the reward `length` to the rewards", None
    paid = rising_reward(history, facts)
    if facts.loss_type in OWN_LENGTH:
        cause += f"; loss_type {facts.loss_type} divides by a completion's own length, so a long wrong one costs less"
        change, override = "normalise by a constant instead", "grpo.loss_type=dr_grpo"
    elif paid is not None:
        cause += f"; {paid} has risen with them"
        change, override = f"let {paid} count for less", lighter(paid, facts)
    yield Finding(
        "length-growth",
        found.since,
        f"completions of {found.before:.0f} -> {found.now:.0f} tokens, and accuracy has not risen",
        cause,
        change,
        override,
        paid,
    )


def length_collapse(history: History, facts: Facts) -> Iterator[Finding]:
    """Completions half as long as at the run's own start, and no better."""
    found = shift(history.column("completions/mean_length"))
    if found is None or found.ratio > 0.5 or has_improved(history, facts):
        return
    paid = rising_reward(history, facts)
    yield Finding(
        "length-collapse",
        found.since,
        f"completions of {found.before:.0f} -> {found.now:.0f} tokens, and accuracy has not risen",
        "a short completion earns as much, so the reasoning goes" + (f"; {paid} has risen with it" if paid else ""),
        f"let {paid} count for less" if paid else "look at what the rewards pay (grpo-kit samples)",
        lighter(paid, facts) if paid else None,
        paid,
    )
