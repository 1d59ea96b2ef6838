"""What a series of numbers does over a run: has its level changed, since when? Plain numbers in and out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from grpo_kit.diagnosis.history import Column

WINDOW = 10
"""Values that a level is the mean of."""

SURE = 5.0
"""Standard errors that two levels must differ by: the mean of ten moves little, but it is looked at in every step."""


@dataclass(frozen=True)
class Shift:
    """From the level of a column's first values to that of its last."""

    before: float
    now: float
    column: Column

    @property
    def since(self) -> int:
        """The step where the way is half gone; a walk over the column, so it is not done before it is asked for."""
        return self.column.steps[_halfway(self.column.values, (self.before + self.now) / 2, self.rises)]

    @property
    def rises(self) -> bool:
        return self.now > self.before

    @property
    def ratio(self) -> float:
        return self.now / self.before if self.before else math.inf


def shift(column: Column, trials: float | None = None) -> Shift | None:
    """Between the first WINDOW values and the last, where that is more than chance; None where it is not, or too early.

    The standard error is that of the difference of two means, from the variances within the two windows, none of them
    less than a hundredth of the level; of a share that is of so many independent trials a step, than chance has it.
    """
    return _between(column, 0, WINDOW, WINDOW, trials) if len(column.values) >= 2 * WINDOW else None


FALLEN = 4.5
"""Standard errors of a fall, whose variance is never taken to be less than that of the whole run."""

SHORT = 5
"""Values that the best level so far is the mean of: it may not have lasted for long."""

LONG = 20
"""Values of the best level, and of the last, where a decline is slow."""


def fall(column: Column, best: int, last: int, trials: float | None = None) -> Shift | None:
    """From the highest level so far, of `best` values in a row, to that of the `last` ones; None where none is lower.

    The best of many windows is a lucky one, and it may hold ten values that are alike: no variance is taken to be less
    than that between neighbours all over the column, nor than chance has it.
    """
    values = column.values
    places = range(0, len(values) - last - best + 1, best)
    start = max(places, key=lambda place: sum(values[place : place + best]), default=None)
    found = _between(column, start, best, last, trials, noise(values), FALLEN) if start is not None else None
    return found if found is not None and not found.rises else None


def _between(
    column: Column, start: int, count: int, last: int, trials: float | None, least: float = 0.0, sure: float = SURE
) -> Shift | None:
    """From the level of `count` values to that of the `last` ones, where they differ by more than chance."""
    early, late = column.values[start : start + count], column.values[-last:]
    before, now = mean(early), mean(late)
    floor = max((0.01 * max(abs(before), abs(now))) ** 2, least)
    if trials:
        share = (count * before + last * now) / (count + last)
        floor = max(floor, share * (1 - share) / trials)
    error = math.sqrt(
        max(_variance(early, before), floor) / (count - 1) + max(_variance(late, now), floor) / (last - 1)
    )
    return Shift(before, now, column) if error and abs(now - before) > sure * error else None


def has_risen(column: Column) -> bool:
    """Whether the last quarter, of WINDOW values at least, lies above the first by two standard errors."""
    values = column.values
    count = max(WINDOW, len(values) // 4)
    if len(values) < 2 * WINDOW:
        return False
    before, now = mean(values[:count]), mean(values[-count:])
    return now - before > 2 * math.sqrt(2 * max(noise(values), (0.01 * now) ** 2) / count)


def noise(values: Sequence[float]) -> float:
    """The variance of a value around a level that moves slowly, from the differences of neighbours (von Neumann)."""
    if len(values) < 2:
        return 0.0
    return sum((b - a) ** 2 for a, b in pairwise(values)) / (2 * (len(values) - 1))


def _halfway(values: Sequence[float], level: float, upwards: bool) -> int:
    """The first place from which on the mean of three is on the far side of the level."""
    place = len(values) - 1
    for end in range(len(values), 2, -1):
        if (mean(values[end - 3 : end]) > level) != upwards:
            break
        place = end - 3
    return max(place, 0)


def lately(column: Column, count: int = WINDOW) -> float | None:
    """The mean of the last values, None where there are not so many yet."""
    return mean(column.values[-count:]) if len(column.values) >= count else None


def mean(values: Sequence[float]) -> float:
    """`statistics.fmean` takes three times as long, and this is called a hundred times a step."""
    return sum(values) / len(values)


def middle(values: Sequence[float]) -> float:
    """The median, the upper one of two."""
    return sorted(values)[len(values) // 2]


def _variance(values: Sequence[float], centre: float) -> float:
    return sum((value - centre) ** 2 for value in values) / len(values)
