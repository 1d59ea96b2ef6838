"""What happened in a run and when: its findings, and the other events worth a line."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpo_kit.report.foreign import line, mapping, whole
from grpo_kit.run_dir import RunDir

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
}
"""What of an event is shown, and under which word."""

MOST_SPANS, MOST_LANES = 200, 100


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


def timeline_of(run: RunDir, steps: int) -> list[Lane]:
    """Findings first, each in a lane of its own by the order in which they came."""
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
    summary = mapping(run.read("summary.json"))
    at_the_end = summary.get("diagnoses")
    for finding in at_the_end if isinstance(at_the_end, list) else []:  # of a run whose events are gone
        if isinstance(finding, dict) and _key(finding) not in lanes:
            _found(lanes, finding, whole(finding.get("since")) or steps)
    return _placed(sorted(lanes.values(), key=lambda lane: not lane.finding)[:MOST_LANES], steps)


def _key(finding: dict[str, Any]) -> tuple[str, ...]:
    """What tells a finding from others: its name, and the reward that it is about."""
    return "finding", str(finding.get("name")), str(finding.get("reward"))


def _found(lanes: Lanes, finding: dict[str, Any], step: int) -> None:
    since = whole(finding.get("since"))
    since = step if since is None else min(max(since, 0), step)
    lane = lanes.setdefault(_key(finding), Lane(line(finding.get("name", "finding"), 80), True))
    _tell(lane, finding)
    lasts = bool(lane.spans) and lane.spans[-1].until is None
    if not lasts and len(lane.spans) < MOST_SPANS:
        lane.spans.append(Span(since, None))


def _happened(lanes: Lanes, event: dict[str, Any], kind: str, step: int) -> None:
    """Other events: those that say the same are one lane, and so are a reward's faults of one kind."""
    reward, fault = (line(event.get(key) or "", 80) for key in ("reward", "fault"))
    said = (reward, fault) if reward else (line(event.get("message") or "", 200),)
    lane = lanes.setdefault((kind, *said), Lane(line(f"{kind} {reward}", 80), False))
    _tell(lane, event)
    if lane.spans and lane.spans[-1].since == step:
        return
    if len(lane.spans) >= MOST_SPANS:
        lane.spans.pop()
    lane.spans.append(Span(step, step))


def _tell(lane: Lane, event: dict[str, Any]) -> None:
    """Count an event; the last one is what is told of it."""
    lane.count += 1
    texts = event.get("completions")
    lane.samples = [line(text, 600) for text in texts[:3]] if isinstance(texts, list) else []
    lane.details = {
        word: line(event[key], 600) for key, word in FIELDS.items() if event.get(key) not in (None, "", [], {})
    }


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
