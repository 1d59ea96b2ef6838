"""What happened in a run and when: its findings, and the other events worth a line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_kit.recipe.secrets import hidden_in
from grpo_kit.report.foreign import line, mapping, whole
from grpo_kit.run.run_dir import RunDir

FIELDS = {
    "evidence": "seen",
    "cause": "why",
    "reward": "reward",
    "change": "change",
    "override": "override",
    "reference": "more",
    "message": "message",
    "reason": "reason",
    "where": "where",
    "ended_reason": "had ended",
}
"""What of an event is shown, and under which word."""

MOST_SPANS, MOST_LANES, MOST_KINDS = 40, 30, 1000
"""Shown of a lane; lanes shown; kinds of events that are kept in memory at all."""

MOST_TEXT = 400


@dataclass
class Span:
    """Steps from `since` to `until`, which is None where it never ended; where it stands, in per cent of the run."""

    since: int
    until: int | None
    left: float = 0.0
    width: float = 0.0


@dataclass
class Lane:
    """One kind of thing that happened, as often as it did; `details` and `samples`, completions, are the last."""

    name: str
    finding: bool
    details: dict[str, str] = field(default_factory=dict)
    samples: list[str] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    count: int = 0
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def when(self) -> str:
        first, last = self.spans[0], self.spans[-1]
        if self.finding:
            said = [
                f"step {s.since} to {s.until}" if s.until is not None else f"since step {s.since}" for s in self.spans
            ]
            return ", ".join(said[:6]) + (", ..." if len(said) > 6 else "")
        steps = f"step {first.since}" if first.since == last.since else f"steps {first.since} to {last.since}"
        return steps if self.count == 1 else f"{self.count} times, {steps}"


Lanes = dict[tuple[str, ...], Lane]


@dataclass(frozen=True)
class Timeline:
    """The lanes to show, and how many kinds of events are `left_out`."""

    lanes: list[Lane]
    left_out: int


def timeline_of(run: RunDir, steps: int) -> Timeline:
    """Findings first, each in a lane of its own by the order in which they came.

    Where the run has ended, those that last are the diagnoses of its summary, and no others.
    """
    lanes: Lanes = {}
    for event in run.lines("events.jsonl"):
        kind, step = str(event.get("event", "event")), whole(event.get("step")) or 0
        if kind == "finding gone":
            lane = lanes.get(_key(event))
            if lane is not None and lane.spans[-1].until is None:
                lane.spans[-1].until = max(step, lane.spans[-1].since)
        elif kind == "finding":
            _found(lanes, event, step)
        else:
            _happened(lanes, event, kind, step)
    at_the_end = mapping(run.read("summary.json")).get("diagnoses")
    if isinstance(at_the_end, list):
        _end(lanes, [finding for finding in at_the_end if isinstance(finding, dict)], steps)
    ordered = sorted(lanes.values(), key=lambda lane: not lane.finding)
    return Timeline(_placed([_told(lane) for lane in ordered[:MOST_LANES]], steps), len(ordered[MOST_LANES:]))


def _end(lanes: Lanes, diagnoses: list[dict[str, Any]], steps: int) -> None:
    """What the last look at the run found, and what it did not find any more."""
    last = {_key(finding): finding for finding in diagnoses}
    for key, lane in lanes.items():
        if lane.finding and key not in last and lane.spans[-1].until is None:
            lane.spans[-1].until = max(steps, lane.spans[-1].since)
    for key, finding in last.items():
        if key not in lanes or lanes[key].spans[-1].until is not None:
            _found(lanes, finding, max(whole(finding.get("since")) or 0, steps))


def _key(finding: dict[str, Any]) -> tuple[str, ...]:
    """What tells a finding from others: its name, and the reward that it is about."""
    return "finding", str(finding.get("name")), str(finding.get("reward"))


def _found(lanes: Lanes, finding: dict[str, Any], step: int) -> None:
    since = whole(finding.get("since"))
    since = step if since is None else min(max(since, 0), step)
    lane = _lane(lanes, _key(finding), line(finding.get("name", "finding"), 80), True)
    _tell(lane, finding)
    if len(lane.spans) >= MOST_SPANS:
        lane.spans[-1].until = None
    elif not lane.spans or lane.spans[-1].until is not None:
        lane.spans.append(Span(since, None))


def _happened(lanes: Lanes, event: dict[str, Any], kind: str, step: int) -> None:
    """Other events: those that say the same are one lane, and so are a reward's faults of one kind."""
    reward, fault = (line(event.get(key) or "", 80) for key in ("reward", "fault"))
    said = (reward, fault) if reward else (line(event.get("message") or "", 200),)
    lane = _lane(lanes, (kind, *said), line(f"{kind} {reward}", 80), False)
    _tell(lane, event)
    if lane.spans and lane.spans[-1].since == step:
        return
    if len(lane.spans) >= MOST_SPANS:
        lane.spans.pop()
    lane.spans.append(Span(step, step))


def _lane(lanes: Lanes, key: tuple[str, ...], name: str, finding: bool) -> Lane:
    """The one of this key; where there are too many, one that all further ones share."""
    if key not in lanes and len(lanes) >= MOST_KINDS:
        key, name = (("finding", "others") if finding else ("others",)), "others"
    return lanes.setdefault(key, Lane(name, finding))


def _tell(lane: Lane, event: dict[str, Any]) -> None:
    """Count an event; the last one is what is told of it."""
    lane.count += 1
    lane.last = event


def _told(lane: Lane) -> Lane:
    texts = lane.last.get("completions")
    lane.samples = [line(text, MOST_TEXT) for text in texts[:3]] if isinstance(texts, list) else []
    lane.details = {
        word: hidden_in(line(lane.last[key], MOST_TEXT))
        for key, word in FIELDS.items()
        if lane.last.get(key) not in (None, "", [], {})
    }
    return lane


def _placed(lanes: Sequence[Lane], steps: int) -> list[Lane]:
    end = max([steps, 1, *(span.since for lane in lanes for span in lane.spans)])
    for span in (span for lane in lanes for span in lane.spans):
        until = end if span.until is None else min(span.until, end)
        span.left = 100 * span.since / end
        span.width = 100 * max(until - span.since, 0) / end
    return list(lanes)


def spans_of(lanes: Iterable[Lane], steps: int) -> list[dict[str, Any]]:
    """The findings as the charts shade them."""
    return [
        {"name": lane.name, "from": span.since, "to": span.until if span.until is not None else steps}
        for lane in lanes if lane.finding for span in lane.spans
    ]  # fmt: skip
