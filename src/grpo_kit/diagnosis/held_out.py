"""What is learned in training and does not show on held-out rows."""

import math
from collections.abc import Iterator

from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.diagnosis.history import Column, History, Measured
from grpo_kit.diagnosis.policy import slower
from grpo_kit.diagnosis.rewards import accuracy_of
from grpo_kit.diagnosis.trends import WINDOW, lately, mean, shift

CONFIRMED = 2
"""So many of the last measurements must say the same: a single one may be an unlucky one."""

UNKNOWN = 0.1
"""Share of the level that half of an interval is taken to be where none is given."""


LUCK, OF = 1.4, 25
"""The best of many measurements is a lucky one, so that others lie further below it than chance has them of two: by so
many times that distance for the best of OF, and more for one of more."""


def overfitting(history: History, facts: Facts) -> Iterator[Finding]:
    """Held-out accuracy has passed its peak and training has not, or training goes up and it never rose."""
    made = history.evaluations
    if len(made) <= CONFIRMED:
        return
    right = accuracy_of(history, facts)
    trained = right if right.values else history.column("reward")
    found = _past_peak(history, made, trained)
    rise = shift(trained, facts.trials if right.values else None)
    if found is not None:
        yield found
    elif rise is not None and rise.rises:
        gained = [one.accuracy - made[0].accuracy for one in made[-CONFIRMED:]]
        sure = [gain + _error(one, made[0]) for gain, one in zip(gained, made[-CONFIRMED:], strict=True)]
        if max(sure) < (rise.now - rise.before) / 2:
            yield Finding(
                "overfitting",
                rise.since,
                f"accuracy in training {rise.before:.2f} -> {rise.now:.2f}, held-out {made[0].accuracy:.2f} -> "
                f"{made[-1].accuracy:.2f}",
                "what is learned are the training rows, or a flaw of the reward that held-out rows do not have",
                "train on more rows (dataset.limit), and look at what earns the reward (grpo-kit samples)",
                slower(history),
            )


def _past_peak(history: History, made: list[Measured], trained: Column) -> Finding | None:
    """The last measurements lie below the best by more than chance, and training does not."""
    best = max(made, key=lambda one: one.accuracy)
    confirmed = CONFIRMED * (
        1 + (len(made) > OF)
    )  # so many pairs were looked at that one of them was bound to be unlucky
    last, luck = made[-confirmed:], LUCK * max(1.0, math.log(len(made)) / math.log(OF))
    if best in last or not all(best.accuracy - one.accuracy > luck * _error(best, one) for one in last):
        return None
    then, now = trained.since(best.step)[:WINDOW], lately(trained)
    if not then or now is None or now < 0.9 * mean(then):
        return None
    return Finding(
        "overfitting",
        next(one.step for one in made if one.step > best.step),
        f"held-out accuracy was {best.accuracy:.2f} after step {best.step}, and is {last[-1].accuracy:.2f} after step "
        f"{last[-1].step}",
        "the reward is still earned in training, so what is learned now holds there alone",
        "end earlier (best/ is the model of the peak where eval_every is set), or learn more slowly",
        f"grpo.max_steps={best.step}" if best.step else slower(history),
    )


def _error(one: Measured, other: Measured) -> float:
    """Half of the 95 % interval of their difference, as if they were independent."""
    halves = [UNKNOWN * abs(m.accuracy) if m.half is None else m.half for m in (one, other)]
    return math.hypot(*halves)
