"""What a series of numbers does over a run: has its level changed, since when? Plain numbers in and out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

WINDOW = 10
"""Values that a level is the mean of."""

SURE = 5.0
"""Standard errors that two levels must differ by: the mean of ten moves little, but it is looked at in every step."""


@dataclass(frozen=True)
class Shift:
    """From the level of the first values to that of the last; `since` is the place where the way is half gone."""

    before: float
    now: float
    since: int

    @property
    def ratio(self) -> float:
        return self.now / self.before if self.before else math.inf


def shift(values: Sequence[float]) -> Shift | None:
    """Between the first WINDOW values and the last, where that is more than chance; None where it is not, or too early.

    The standard error is that of the difference of two means, from the variances within the two windows, none of them
    less than a hundredth of the level.
    """
    if len(values) < 2 * WINDOW:
        return None
    first, last = values[:WINDOW], values[-WINDOW:]
    before, now = fmean(first), fmean(last)
    floor = (0.01 * max(abs(before), abs(now))) ** 2
    error = math.sqrt((max(pvariance(first), floor) + max(pvariance(last), floor)) / (WINDOW - 1))
    if error == 0 or abs(now - before) <= SURE * error:
        return None
    return Shift(before, now, _since(values, (before + now) / 2, now > before))


def _since(values: Sequence[float], halfway: float, upwards: bool) -> int:
    """The first place from which on the mean of three is on the far side of halfway."""
    place = len(values) - 1
    for end in range(len(values), 2, -1):
        mean = fmean(values[end - 3 : end])
        if (mean > halfway) != upwards:
            break
        place = end - 3
    return max(place, 0)


def lately(values: Sequence[float], count: int = WINDOW) -> float | None:
    """The mean of the last values, None where there are not so many yet."""
    return fmean(values[-count:]) if len(values) >= count else None
