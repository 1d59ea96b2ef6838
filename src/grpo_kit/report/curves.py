"""The curves of a run: what each chart draws, and the same in words and numbers for who cannot see it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Any

from grpo_kit.report.foreign import line, number
from grpo_kit.report.results import Measured, Metrics
from grpo_kit.run.run_dir import RunDir

MOST_POINTS = 1200
"""A longer run is drawn by means over neighbouring steps: more points than pixels show nothing."""

MOST_VALUES = 40_000
"""Of all curves together: with many rewards each has fewer points."""

MOST_REWARDS = 20

MOST_MEASURED = 120
"""Of more held-out measurements neighbouring ones are one point, too, from their lowest to their highest end."""

TABLE = 10
"""Rows of the table beside a chart, about."""

Values = list[float | None]


@dataclass(frozen=True)
class Series:
    """One value per step of the chart; `low` and `high` are its intervals where it was measured with one.

    `least` and `most` are of the steps that a point is the mean of, where these are several.
    """

    label: str
    values: Values
    low: Values = field(default_factory=list)
    high: Values = field(default_factory=list)
    least: Values = field(default_factory=list)
    most: Values = field(default_factory=list)


@dataclass(frozen=True)
class Chart:
    """`stacked` series add up; `share` is drawn from 0 to 1, everything else from 0 unless it falls below."""

    name: str
    title: str
    meaning: str
    series: list[Series]
    share: bool = False
    stacked: bool = False


@dataclass(frozen=True)
class Curves:
    """All charts over the same `steps`; `absent` says what was not recorded; `merged` steps make a point.

    So do `measured` held-out measurements.
    """

    steps: list[int]
    charts: list[Chart]
    absent: list[str]
    merged: int = 1
    measured: int = 1

    def described(self, chart: Chart) -> str:
        """A chart in words."""
        return f"{chart.title}: {'. '.join(_described(self.steps, one) for one in chart.series)}."

    def table(self, chart: Chart) -> list[tuple[int, list[float | None]]]:
        """About ten of its steps, the first and the last among them."""
        at = [i for i in range(len(self.steps)) if any(one.values[i] is not None for one in chart.series)]
        chosen = sorted({at[round(i * (len(at) - 1) / (TABLE - 1))] for i in range(TABLE)}) if at else []
        return [(self.steps[i], [one.values[i] for one in chart.series]) for i in chosen]


def history_of(run: RunDir) -> list[Metrics]:
    """The steps in their order, each once: the last that was written of it."""
    found = {record["step"]: record for record in run.steps() if 0 <= record["step"] < 10**9}
    return [found[step] for step in sorted(found)]


def curves_of(history: Sequence[Metrics], measured: Sequence[Measured]) -> Curves:
    """The charts for which anything was recorded."""
    labels = dict.fromkeys(
        key[8:-5] for m in history for key in m if key.startswith("rewards/") and key.endswith("/mean")
    )
    rewards = list(labels)[:MOST_REWARDS]
    points = min(MOST_POINTS, MOST_VALUES // (3 * len(rewards) + 30))
    merged = -(-len(history) // points) if len(history) > MOST_POINTS else 1
    bins = [history[start : start + merged] for start in range(0, len(history), merged)]
    together = -(-len(measured) // MOST_MEASURED) or 1
    groups = [measured[start : start + together] for start in range(0, len(measured), together)]
    steps = sorted({int(part[-1]["step"]) for part in bins} | {group[-1].step for group in groups})
    place = {step: at for at, step in enumerate(steps)}

    def series(label: str, *keys: str) -> Series:
        """Of the first of the keys that has any value."""
        found = (_series(label, key, bins, place) for key in keys)
        return next((one for one in found if one is not None), Series(label, _nothing(len(steps))))

    charts, absent = [], []
    if len(labels) > len(rewards):
        absent.append(f"{len(labels) - len(rewards)} more rewards (they are in metrics.jsonl)")
    for chart in _charts(rewards, series, _held_out(groups, place)):
        recorded = [one for one in chart.series if any(value is not None for value in one.values)]
        if recorded:
            charts.append(replace(chart, series=recorded))
        else:
            absent.append(chart.title)
    return Curves(steps, charts, absent, merged, together)


def _series(label: str, key: str, bins: Sequence[Sequence[Metrics]], place: dict[int, int]) -> Series | None:
    """The means of a metric; None where it has no value. What one point alone stands for has no least and most."""
    values, least, most = (_nothing(len(place)) for _ in range(3))
    for part in bins:
        known = [value for m in part if (value := number(m.get(key))) is not None]
        if known:
            at = place[int(part[-1]["step"])]
            values[at], least[at], most[at] = map(_rounded, (fmean(known), min(known), max(known)))
    if all(value is None for value in values):
        return None
    several = len(bins[0]) > 1
    return Series(line(label, 60), values, least=least if several else [], most=most if several else [])


def _charts(rewards: Sequence[str], series: Any, held_out: Series) -> Iterable[Chart]:
    parts = [series(label, f"rewards/{label}/mean") for label in rewards]
    flat = series("", "kit/flat_group_share", "frac_reward_zero_std").values
    right, wrong = series("", "kit/all_right").values, series("", "kit/all_wrong").values
    other = [_less(*shares) for shares in zip(flat, right, wrong, strict=True)]
    spent = [series(part, f"kit/seconds/{part}") for part in ("generation", "rewards", "update")]
    cut = series("truncated", "kit/truncated_share", "completions/clipped_ratio")
    accuracy = [series("training", "kit/accuracy"), held_out]
    reasons = [Series("all right", right), Series("all wrong", wrong), Series("alike otherwise", other)]
    timed = any(value is not None for one in spent for value in one.values)
    yield Chart(
        "reward",
        "Reward",
        "mean weighted sum, and the mean of each reward",
        [series("total", "reward"), *parts],
    )
    yield Chart("accuracy", "Accuracy", "share of right completions", accuracy, share=True)
    yield Chart("flat", "Flat groups", "share that teach nothing, by reason", reasons, share=True, stacked=True)
    yield Chart("truncated", "Truncation", "share of completions cut", [cut], share=True)
    yield Chart("length", "Length", "tokens per completion", [series("mean", "completions/mean_length")])
    yield Chart(
        "entropy",
        "Entropy",
        "nats per token, where something is learned",
        [series("entropy", "kit/entropy", "entropy")],
    )
    yield Chart("kl", "KL", "divergence from the reference model", [series("KL", "kl")])
    yield Chart("grad", "Gradient norm", "before clipping", [series("norm", "grad_norm")])
    steps = spent if timed else [series("step", "kit/seconds/step", "step_time")]
    yield Chart("seconds", "Seconds per step", "where the time goes", steps, stacked=timed)


def _held_out(groups: Sequence[Sequence[Measured]], place: dict[int, int]) -> Series:
    series = Series("held-out", *(_nothing(len(place)) for _ in range(3)))
    for group in groups:
        at = place[group[-1].step]
        known = [one.accuracy for one in group if one.accuracy is not None]
        ends = [end for one in group for end in one.ci95 or ()]
        series.values[at] = _rounded(fmean(known)) if known else None
        series.low[at], series.high[at] = (_rounded(min(ends)), _rounded(max(ends))) if ends else (None, None)
    return series


def _less(flat: float | None, right: float | None, wrong: float | None) -> float | None:
    """What is left of the flat share where neither all completions are right nor all wrong."""
    return None if flat is None else _rounded(max(flat - (right or 0.0) - (wrong or 0.0), 0.0))


def _described(steps: Sequence[int], series: Series) -> str:
    known = _ends(steps, series.values)
    (first, start), (last, end) = known[0], known[-1]
    if len(known) == 1:
        return f"{series.label} {first:.3g} at step {start}"
    low, low_at = min(_ends(steps, series.least or series.values))
    high, high_at = max(_ends(steps, series.most or series.values))
    return (
        f"{series.label} {first:.3g} at step {start}, {last:.3g} at step {end}, "
        f"lowest {low:.3g} (step {low_at}), highest {high:.3g} (step {high_at})"
    )


def _nothing(count: int) -> Values:
    return [None] * count


def _ends(steps: Sequence[int], values: Values) -> list[tuple[float, int]]:
    return [(value, step) for value, step in zip(values, steps, strict=True) if value is not None]


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
