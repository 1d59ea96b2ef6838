"""What a run has come to: its held-out measurements, the sentence on top, and the numbers below it."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from grpo_kit.recipe.secrets import hidden_in
from grpo_kit.report.foreign import interval, line, mapping, number, whole
from grpo_kit.run.run_dir import RunDir
from grpo_kit.stats import paired_difference

Metrics = dict[str, Any]


@dataclass(frozen=True)
class Measured:
    """One held-out measurement, as far as it could be read; `pass_rates` by row, None where nothing was judged."""

    step: int
    accuracy: float | None
    ci95: tuple[float, float] | None
    prompts: int | None
    samples: int | None
    means: dict[str, float | None]  # of each reward, then of what else is a number
    unscored: dict[str, float | None]
    pass_rates: list[float | None]
    goal: str


@dataclass(frozen=True)
class Gain:
    value: float
    ci95: tuple[float, float]
    rows_needed: int | None = None

    def __str__(self) -> str:
        return f"{self.value:+.3f} (95% interval {self.ci95[0]:+.3f} to {self.ci95[1]:+.3f})"


@dataclass(frozen=True)
class Bar:
    """A value with its interval on a scale, in per cent of its width; `zero` is where 0 stands if not at its start."""

    low: float
    high: float
    at: float
    zero: float | None = None


@dataclass(frozen=True)
class Figure:
    """One of the numbers on top: from `before` to `after`; `note` says what they are of."""

    label: str
    before: str | None
    after: str
    note: str = ""
    bars: tuple[Bar, ...] = ()


@dataclass(frozen=True)
class Row:
    """A quantity before and after, each with its interval or ""."""

    label: str
    sides: tuple[tuple[str, str], tuple[str, str]]
    change: str


@dataclass(frozen=True)
class Results:
    """`tone` is good, bad or open; `first` and `last` are the measurements before and after, or so far."""

    sentence: str
    tone: str
    note: str
    steps: int
    ended: bool
    figures: list[Figure]
    rows: list[Row]
    first: Measured | None
    last: Measured | None


def results_of(run: RunDir, history: Sequence[Metrics], measured: Sequence[Measured]) -> Results:
    summary = mapping(run.read("summary.json"))
    first = next((one for one in measured if one.step == 0), None)
    last = next((one for one in reversed(measured) if one.step > 0), None)
    gain = _gain(summary, first, last)
    steps = whole(summary.get("steps"))
    steps = steps if steps is not None and steps >= 0 else int(history[-1]["step"]) if history else 0
    rewards = [
        (value, f"reward_{end}") for end, value in zip(("first", "last"), _tenths(history, "reward"), strict=True)
    ]
    reward = [number(summary.get(key)) if key in summary else value for value, key in rewards]
    tone, sentence = _sentence(summary, steps, first, last, gain, reward)
    status, reason = summary.get("status"), summary.get("reason")
    return Results(
        sentence=sentence,
        tone=tone,
        note=_plain(reason) if status == "done" else "",
        steps=steps,
        ended=bool(status),
        figures=list(_figures(summary, history, steps, first, last, gain, reward)),
        rows=list(_rows(first, last)),
        first=first,
        last=last,
    )


def measurements(run: RunDir) -> list[Measured]:
    """The run's own, oldest first; those of its summary where `eval.jsonl` is gone."""
    found = {one.step: one for one in map(_measured, run.own_evaluations()) if one is not None}
    summary = mapping(run.read("summary.json"))
    steps = {"eval_before": 0, "eval_after": whole(summary.get("steps"))}
    for key, step in steps.items() if not found else ():
        one = _measured({**mapping(summary.get(key)), "step": step}) if summary.get(key) else None
        found |= {one.step: one} if one is not None else {}
    return [found[step] for step in sorted(found)]


def _measured(record: dict[str, Any]) -> Measured | None:
    step, rates = whole(record.get("step")), record.get("pass_rates")
    if step is None:
        return None
    others = {"tokens per completion": record.get("mean_tokens"), "truncated share": record.get("truncated_share")}
    return Measured(
        step=step,
        accuracy=number(record.get("accuracy")),
        ci95=interval(record.get("ci95")),
        prompts=whole(record.get("n")),
        samples=whole(record.get("samples")),
        means={str(key): number(value) for key, value in {**mapping(record.get("rewards")), **others}.items()},
        unscored={str(key): number(value) for key, value in mapping(record.get("unscored")).items()},
        pass_rates=[number(rate) for rate in rates] if isinstance(rates, list) else [],
        goal=str(record.get("goal", "")),
    )


def _gain(summary: dict[str, Any], first: Measured | None, last: Measured | None) -> Gain | None:
    """The summary's; of a run that has none yet, of the measurements so far."""
    given = mapping(summary.get("gain"))
    value, ci95 = number(given.get("value")), interval(given.get("ci95"))
    if value is not None and ci95 is not None:
        return Gain(value, ci95, whole(given.get("rows_needed")))
    if first is None or last is None or len(first.pass_rates) != len(last.pass_rates):
        return None
    both = zip(first.pass_rates, last.pass_rates, strict=True)
    pairs = [(a, b) for a, b in both if a is not None and b is not None]
    if not pairs:
        return None
    difference = paired_difference([a for a, _ in pairs], [b for _, b in pairs])
    return Gain(difference.value, difference.ci95)


def _sentence(
    summary: dict[str, Any],
    steps: int,
    first: Measured | None,
    last: Measured | None,
    gain: Gain | None,
    reward: Sequence[float | None],
) -> tuple[str, str]:
    """Its tone, and the verdict in one sentence."""
    status, word, reason = summary.get("status"), summary.get("verdict"), _plain(summary.get("reason"))
    rose = ""
    if gain and first and last and first.accuracy is not None and last.accuracy is not None:
        what = "a change" if str(gain).startswith("-") else "a gain"
        rose = f"held-out accuracy went from {first.accuracy:.3f} to {last.accuracy:.3f}, {what} of {gain}"
    elif status != "failed" and reward[0] is not None and reward[1] is not None:
        rose = f"no held-out gain was measured; mean reward went from {reward[0]:.3f} to {reward[1]:.3f}"
    count = f"{steps} step{'' if steps == 1 else 's'}"
    more = f"; {rose}" if rose else ""
    if status == "failed":
        return "bad", f"Failed after {count}: {reason.rstrip('.') or 'no reason was written'}{more}."
    if status == "stopped":
        return "open", f"Stopped by {reason or 'a signal'} after {count}{more}."
    if status != "done":
        return "open", f"Not ended, or ended without a word: {count} so far{more}."
    if word == "learned":
        return "good", f"The model learned: {rose}."
    if word == "unclear":
        needed = f"; about {gain.rows_needed} held-out rows would tell" if gain and gain.rows_needed else ""
        return "open", f"Unclear whether the model learned: {rose}{needed}."
    if word == "not learned":
        return "bad", f"The model {'got worse' if gain and gain.ci95[1] < 0 else 'did not learn'}: {rose}."
    return "open", f"Not measured after {count}{more or '; there was nothing to measure on'}."


def _plain(reason: Any) -> str:
    """The reason of an end without the class of our own exceptions."""
    return re.sub(r"^(?:RunError|RewardError|NotFiniteError|RecipeError): ", "", hidden_in(line(reason or "")))


def _figures(
    summary: dict[str, Any],
    history: Sequence[Metrics],
    steps: int,
    first: Measured | None,
    last: Measured | None,
    gain: Gain | None,
    reward: Sequence[float | None],
) -> Iterable[Figure]:
    """Four or five numbers; without held-out rows the training's own, over its first and last tenth."""
    held = [one for one in (first, last) if one is not None and one.accuracy is not None]
    training = _tenths(history, "kit/accuracy")
    if held:
        bars = tuple(_share_bar(one.accuracy or 0.0, one.ci95) for one in held if one.ci95 is not None)
        size = f"{held[0].prompts} prompts × {held[0].samples}" if held[0].prompts and held[0].samples else ""
        yield _change("held-out accuracy", [one.accuracy for one in held], f"95% intervals; {size}".rstrip("; "), bars)
    elif training[1] is not None:
        yield _change("training accuracy", training, "first and last tenth of the steps")
    if gain is not None:
        note = f"{gain.ci95[0]:+.3f} to {gain.ci95[1]:+.3f}, paired by prompt"
        yield Figure("gain", None, f"{gain.value:+.3f}", note, (_gain_bar(gain),))
    if reward[1] is not None:
        yield _change("training reward", reward, "first and last tenth of the steps")
    lengths = _tenths(history, "completions/mean_length")
    if lengths[1] is not None:
        yield _change("tokens per completion", lengths, "in training, first and last tenth", digits=0)
    wall = number(summary.get("wall_s"))
    yield Figure("steps", None, str(steps), _duration(wall) if wall is not None else "time not recorded")


def _change(
    label: str, values: Sequence[float | None], note: str = "", bars: tuple[Bar, ...] = (), digits: int = 3
) -> Figure:
    texts = [f"{value:.{digits}f}" for value in values if value is not None]
    return Figure(label, texts[0] if len(texts) > 1 else None, texts[-1], note, bars)


def _rows(first: Measured | None, last: Measured | None) -> Iterable[Row]:
    """Everything that was measured before and after; what one of them lacks is a dash."""
    sides = [one for one in (first, last) if one is not None]
    if not sides:
        return

    def row(label: str, values: list[float | None], spans: tuple[str, str] = ("", "")) -> Row:
        before, after = ("–" if value is None else f"{value:.3f}" for value in values)
        known = [value for value in values if value is not None]
        change = f"{known[1] - known[0]:+.3f}" if len(known) == 2 else "–"
        return Row(label, ((before, spans[0]), (after, spans[1])), change)

    both = [first, last]
    accuracy = [one.accuracy if one else None for one in both]
    before, after = (f"{one.ci95[0]:.3f} to {one.ci95[1]:.3f}" if one and one.ci95 else "" for one in both)
    yield row("accuracy", accuracy, (before, after))
    for label in dict.fromkeys(key for one in sides for key in one.means):
        values = [one.means.get(label) if one else None for one in both]
        if label != sides[0].goal or values != accuracy:
            yield row(label if label in ("tokens per completion", "truncated share") else f"reward {label}", values)
    for label in dict.fromkeys(key for one in sides for key in one.unscored):
        values = [one.unscored.get(label) if one else None for one in both]
        if any(values):
            yield row(f"not judged by {label}", values)


def _share_bar(value: float, ci95: tuple[float, float]) -> Bar:
    return Bar(*(100 * min(max(share, 0.0), 1.0) for share in (*ci95, value)))


def _gain_bar(gain: Gain) -> Bar:
    most = 1.25 * max(abs(gain.ci95[0]), abs(gain.ci95[1]), 0.04)
    low, high, at = (50 + 50 * min(max(x / most, -1.0), 1.0) for x in (*gain.ci95, gain.value))
    return Bar(low, high, at, 50.0)


def _tenths(history: Sequence[Metrics], key: str) -> list[float | None]:
    """Means over the first and the last tenth of the steps, as the summary takes them."""
    tenth = max(len(history) // 10, 1)
    parts = ([number(m.get(key)) for m in part] for part in (history[:tenth], history[-tenth:]))
    known = ([value for value in part if value is not None] for part in parts)
    return [fmean(part) if part else None for part in known]


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return (
        f"{hours:.1f} hours" if hours >= 2 else f"{minutes:.1f} minutes" if minutes >= 2 else f"{seconds:.1f} seconds"
    )
