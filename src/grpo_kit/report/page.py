"""Everything that the page shows, read from a run's directory whatever state that is in."""

from dataclasses import dataclass
from typing import Any

from grpo_kit import __version__
from grpo_kit.report.completions import Completions, completions_of
from grpo_kit.report.curves import Curves, curves_of, history_of
from grpo_kit.report.foreign import line, mapping
from grpo_kit.report.ledger import Ledger, ledger_of
from grpo_kit.report.origin import Difference, Origin, differences_of, provenance_of
from grpo_kit.report.results import Results, measurements, results_of
from grpo_kit.report.timeline import Timeline, spans_of, timeline_of
from grpo_kit.run.run_dir import RunDir


@dataclass(frozen=True)
class Page:
    name: str
    version: str
    results: Results
    curves: Curves
    spans: list[dict[str, Any]]
    timeline: Timeline
    ledger: Ledger | None
    completions: Completions
    differences: list[Difference]
    provenance: list[Origin]


def read_page(run: RunDir) -> Page:
    """A run that goes on, failed or lost some of its files has a page too, of what there is."""
    measured = measurements(run)
    history = history_of(run)
    results = results_of(run, history, measured)
    timeline = timeline_of(run, results.steps)
    return Page(
        name=run.path.resolve().name,
        version=line(mapping(run.read("provenance.json")).get("grpo_kit", __version__), 80),
        results=results,
        curves=curves_of(history, measured),
        spans=spans_of(timeline.lanes, results.steps),
        timeline=timeline,
        ledger=ledger_of(results.first, results.last),
        completions=completions_of(run, results.first, results.last),
        differences=differences_of(run),
        provenance=provenance_of(run),
    )
