"""The curves of a run: what each chart draws, and the same in words and numbers for who cannot see it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from grpo_kit.report.foreign import number
from grpo_kit.report.results import Measured, Metrics
from grpo_kit.run_dir import RunDir

MOST_POINTS = 1200
"""A longer run is drawn by means over neighbouring steps: more points than pixels show nothing."""

TABLE = 10
"""Rows of the table beside a chart, about."""

Values = list[float | None]


@dataclass(frozen=True)
class Series:
    """One value per step of the chart; `low` and `high` are its intervals where it was measured with one."""

    label: str
    values: Values
    low: Values = field(default_factory=list)
    high: Values = field(default_factory=list)


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
    """All charts over the same `steps`; `absent` says what was not recorded; `merged` steps make a point."""

    steps: list[int]
    charts: list[Chart]
    absent: list[str]
    merged: int = 1

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
    merged = -(-len(history) // MOST_POINTS) or 1
    bins = [history[start : start + merged] for start in range(0, len(history), merged)]
    steps = sorted({int(part[-1]["step"]) for part in bins} | {one.step for one in measured})
    place = {step: at for at, step in enumerate(steps)}

    def column(*keys: str) -> Values:
        """The first of the keys that has any value."""
        for key in keys:
            values: Values = [None] * len(steps)
            for part in bins:
                known = [value for m in part if (value := number(m.get(key))) is not None]
                values[place[int(part[-1]["step"])]] = _rounded(fmean(known)) if known else None
            if any(value is not None for value in values):
                return values
        return [None] * len(steps)

    charts, absent = [], []
    for chart in _charts(history, column, _held_out(measured, place)):
        recorded = [one for one in chart.series if any(value is not None for value in one.values)]
        if recorded:
            charts.append(Chart(chart.name, chart.title, chart.meaning, recorded, chart.share, chart.stacked))
        else:
            absent.append(chart.title)
    return Curves(steps, charts, absent, merged)


def _charts(history: Sequence[Metrics], column: Any, held_out: Series) -> Iterable[Chart]:
    labels = [key[8:-5] for m in history for key in m if key.startswith("rewards/") and key.endswith("/mean")]
    parts = [Series(label, column(f"rewards/{label}/mean")) for label in dict.fromkeys(labels)]
    flat = column("kit/flat_group_share", "frac_reward_zero_std")
    right, wrong = column("kit/all_right"), column("kit/all_wrong")
    other = [_less(*shares) for shares in zip(flat, right, wrong, strict=True)]
    spent = [Series(part, column(f"kit/seconds/{part}")) for part in ("generation", "rewards", "update")]
    cut, entropy = column("kit/truncated_share", "completions/clipped_ratio"), column("kit/entropy", "entropy")
    accuracy = [Series("training", column("kit/accuracy")), held_out]
    reasons = [Series("all right", right), Series("all wrong", wrong), Series("alike otherwise", other)]
    timed = any(value is not None for one in spent for value in one.values)
    yield Chart(
        "reward",
        "Reward",
        "mean weighted sum, and the mean of each reward",
        [Series("total", column("reward")), *parts],
    )
    yield Chart("accuracy", "Accuracy", "share of right completions", accuracy, share=True)
    yield Chart("flat", "Flat groups", "share that teach nothing, by reason", reasons, share=True, stacked=True)
    yield Chart("truncated", "Truncation", "share of completions cut", [Series("truncated", cut)], share=True)
    yield Chart("length", "Length", "tokens per completion", [Series("mean", column("completions/mean_length"))])
    yield Chart("entropy", "Entropy", "nats per token, where something is learned", [Series("entropy", entropy)])
    yield Chart("kl", "KL", "divergence from the reference model", [Series("KL", column("kl"))])
    yield Chart("grad", "Gradient norm", "before clipping", [Series("norm", column("grad_norm"))])
    steps = spent if timed else [Series("step", column("kit/seconds/step", "step_time"))]
    yield Chart("seconds", "Seconds per step", "where the time goes", steps, stacked=timed)


def _held_out(measured: Sequence[Measured], place: dict[int, int]) -> Series:
    empty: Values = [None] * len(place)
    series = Series("held-out", empty, [*empty], [*empty])
    for one in measured:
        at = place[one.step]
        series.values[at] = None if one.accuracy is None else _rounded(one.accuracy)
        if one.ci95 is not None:
            series.low[at], series.high[at] = map(_rounded, one.ci95)
    return series


def _less(flat: float | None, right: float | None, wrong: float | None) -> float | None:
    """What is left of the flat share where neither all completions are right nor all wrong."""
    return None if flat is None else _rounded(max(flat - (right or 0.0) - (wrong or 0.0), 0.0))


def _described(steps: Sequence[int], series: Series) -> str:
    known = [(value, step) for value, step in zip(series.values, steps, strict=True) if value is not None]
    (first, start), (last, end) = known[0], known[-1]
    if len(known) == 1:
        return f"{series.label} {first:.3g} at step {start}"
    (low, low_at), (high, high_at) = min(known), max(known)
    return (
        f"{series.label} {first:.3g} at step {start}, {last:.3g} at step {end}, "
        f"lowest {low:.3g} (step {low_at}), highest {high:.3g} (step {high_at})"
    )


def _rounded(value: float) -> float:
    return float(f"{value:.5g}")
