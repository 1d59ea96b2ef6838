"""What a few completions a step do by chance alone, so that it is not taken for a fault."""

import math

from grpo_kit.diagnosis.findings import FLAT, Facts
from grpo_kit.diagnosis.history import STEPS, Column, History
from grpo_kit.diagnosis.trends import WINDOW, mean

SURE = 1e-6
"""A chance so small that it may be taken in every look at a run of a thousand steps."""

RECENT = 30
"""Rollouts that say what is usual of late."""


def groups_of(history: History, facts: Facts) -> int:
    """Groups in a rollout; where that is not known, the fewest whose shares the flat ones can be (1 for 0 and 1)."""
    if facts.groups:
        return facts.groups
    seen = set(history.column(*FLAT).values[-RECENT:])
    fits = (n for n in range(1, 17) if all(abs(share * n - round(share * n)) < 1e-3 for share in seen))
    return next(fits, 16)


def steps_beyond_chance(share: float, groups: int) -> int:
    """In so many steps in a row all groups are alike by less than a chance of SURE, if a group is with this one."""
    return max(STEPS, math.ceil(math.log(SURE) / math.log(share) / groups))


PRIOR = 5
"""Rollouts, half of whose groups are flat, that are added to those seen before all are."""


def usually_flat(column: Column, place: int) -> float:
    """The share of flat groups before a place: over the run, or of late where that is more; 0.5 to 0.98."""
    before = column.values[:place]
    means = [(sum(values) + PRIOR / 2) / (len(values) + PRIOR) for values in (before, before[-RECENT:])]
    return min(max(0.5, *means), 0.98)


FEW = 40
"""Groups, or completions, that a share is taken over at least."""

Z = 4.0
"""Standard errors: a share that is usual comes so far above itself once in 30,000 looks."""


def plain_share(column: Column, level: float, usual: float, trials: float, count: int = WINDOW) -> float | None:
    """The mean of the last values where it is above a level, and above what is usual by more than chance; else None.

    `trials` are the independent ones of each step; where they are few, more than `count` steps are taken.
    """
    count = max(count, math.ceil(FEW / trials))
    if len(column.values) < count:
        return None
    share = mean(column.values[-count:])
    error = math.sqrt(usual * (1 - usual) / (trials * count))
    return share if share > max(level, usual + Z * error) else None


def trials_of(history: History, facts: Facts) -> float:
    """Completions of a rollout that count as independent; its groups where their number is not known."""
    return facts.trials or float(groups_of(history, facts))
