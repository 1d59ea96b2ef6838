"""A run's metrics as columns that grow by a value a step, so that a look at its end costs the same at any step."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

STEPS = 3
"""A symptom that is plain has lasted for so many values before it is spoken of."""


@dataclass
class Column:
    """One metric: its values, oldest first, and the step of each; steps without the metric are not in it."""

    steps: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)

    def lasting(self, holds: Callable[[float], bool], count: int = STEPS) -> int | None:
        """The step from which on something has held to the end, for at least `count` values; None where it has not."""
        place = len(self.values)
        while place and holds(self.values[place - 1]):
            place -= 1
        return self.steps[place] if len(self.values) - place >= count else None

    def since(self, step: int) -> list[float]:
        """The values from a step on."""
        return self.values[bisect_left(self.steps, step) :]


NOTHING = Column()


@dataclass(frozen=True)
class Measured:
    """A measurement on held-out rows after a step; `half` is half of its 95 % interval, None where none was given."""

    step: int
    accuracy: float
    half: float | None


class History:
    """The steps of a run and its held-out measurements, oldest first.

    `steps` are records as `metrics.jsonl` holds them, or of another trainer, with TRL's keys; `evaluations` are those
    of `eval.jsonl`, or log entries with `eval_reward`. What is no finite number is passed over; `broken` names the
    first loss, reward or norm of a gradient that was not finite, by its step.
    """

    def __init__(self, steps: Iterable[Mapping[str, Any]] = (), evaluations: Iterable[Mapping[str, Any]] = ()):
        self.columns: dict[str, Column] = {}
        self.steps: list[int] = []
        self.broken: list[tuple[int, str]] = []
        self.evaluations: list[Measured] = []
        for metrics in steps:
            self.add(metrics)
        self.measured(evaluations)

    def add(self, metrics: Mapping[str, Any]) -> None:
        """One more step."""
        step = int(metrics["step"])
        self.steps.append(step)
        for key, value in metrics.items():
            own = number(value)
            if own is None:
                if key in ("loss", "grad_norm") and (value is None or isinstance(value, float)):
                    self.broken.append((step, key))
                continue
            column = self.columns.get(key)
            if column is None:
                column = self.columns[key] = Column()
            column.steps.append(step)
            column.values.append(own)

    def measured(self, evaluations: Iterable[Mapping[str, Any]]) -> None:
        """All measurements that there are now."""
        read = (_measured(record) for record in evaluations)
        self.evaluations = [one for one in read if one is not None]

    def column(self, *keys: str) -> Column:
        """The first of these metrics that the run has; an empty one where it has none of them."""
        return next((self.columns[key] for key in keys if key in self.columns), NOTHING)


def number(value: Any) -> float | None:
    """A finite float, or None for anything else that a log may hold."""
    if type(value) is not float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            value = float(value)
        except OverflowError:
            return None
    return value if math.isfinite(value) else None


def _measured(record: Mapping[str, Any]) -> Measured | None:
    accuracy = number(record.get("accuracy", record.get("eval_reward")))
    if accuracy is None or type(record.get("step")) is not int:
        return None
    interval = record.get("ci95")
    ends = [number(end) for end in interval] if isinstance(interval, list | tuple) else []
    known = len(ends) == 2 and ends[0] is not None and ends[1] is not None
    return Measured(record["step"], accuracy, (ends[1] - ends[0]) / 2 if known else None)  # type: ignore[operator]
