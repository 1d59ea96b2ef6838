"""What a series of numbers does over a run: has its level changed, since when? Plain numbers in and out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

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


def shift(column: Column) -> Shift | None:
    """Between the first WINDOW values and the last, where that is more than chance; None where it is not, or too early.

    The standard error is that of the difference of two means, from the variances within the two windows, none of them
    less than a hundredth of the level.
    """
    return _between(column, 0, WINDOW) if len(column.values) >= 2 * WINDOW else None


SHORT = 5
"""Values that the best level so far is the mean of: it may not have lasted for long."""


def fall(column: Column) -> Shift | None:
    """From the highest level so far, of SHORT values in a row, to that of the last WINDOW; None where none is lower."""
    values = column.values
    places = range(0, len(values) - WINDOW - SHORT + 1, SHORT)
    best = max(places, key=lambda place: sum(values[place : place + SHORT]), default=None)
    found = _between(column, best, SHORT) if best is not None else None
    return found if found is not None and not found.rises else None


def _between(column: Column, start: int, count: int) -> Shift | None:
    """From the level of `count` values to that of the last WINDOW, where they differ by more than chance."""
    first, last = column.values[start : start + count], column.values[-WINDOW:]
    before, now = mean(first), mean(last)
    floor = (0.01 * max(abs(before), abs(now))) ** 2
    error = math.sqrt(
        max(_variance(first, before), floor) / (count - 1) + max(_variance(last, now), floor) / (WINDOW - 1)
    )
    return Shift(before, now, column) if error and abs(now - before) > SURE * error else None


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
