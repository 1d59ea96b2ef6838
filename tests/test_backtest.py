"""The diagnosis against histories in which it is known what is wrong: who is named, how soon, who is named wrongly.

python tests/test_backtest.py    # measures, and writes the table into docs/doctor.md
"""

from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median

import pytest
from histories import FACTS, FAULTS, LONG, SHAPES, STEPS, Made, healthy

from grpo_kit.diagnosis.diagnose import NAMES, diagnose
from grpo_kit.diagnosis.findings import Facts

DOCS = Path(__file__).parents[1] / "docs" / "doctor.md"
BEGIN, END = "<!-- backtest -->\n", "<!-- end of backtest -->"

HEALTHY, SEEDS, ONSETS = 200, 5, (30, 60, 90)
SOON = 20
"""Steps from the onset within which a fault is to be named."""


@dataclass
class Outcome:
    """Of one finding: the delay of each planted history by the place of its strength, None where it was not named."""

    delays: dict[int, list[int | None]] = field(default_factory=lambda: defaultdict(list))
    wrongly: int = 0
    "Other histories, faulty or healthy, in which it was found."

    def all(self, strengths: tuple[int, ...] = (0, 1, 2, 3)) -> list[int | None]:
        return [delay for at in strengths for delay in self.delays[at]]

    @property
    def detected(self) -> float:
        return sum(delay is not None for delay in self.all()) / len(self.all())

    @property
    def recall(self) -> float:
        strong = self.all((2, 3))
        return sum(delay is not None and delay <= SOON for delay in strong) / len(strong)

    @property
    def precision(self) -> float:
        right = sum(delay is not None for delay in self.all())
        return right / (right + self.wrongly)


def mixed(seed: int) -> tuple[Made, Facts]:
    """A healthy history of the next shape of batch and the next length, and what is known of it."""
    shape, steps = SHAPES[seed % 4], (STEPS, LONG)[seed // 4 % 2]
    return healthy(seed, steps, shape), replace(FACTS, completions=shape[0], group=shape[1])


def backtest() -> tuple[dict[str, Outcome], int]:
    """All faults at all strengths and onsets, looked at after every step; how many healthy histories had a finding."""
    outcomes: dict[str, Outcome] = {name: Outcome() for name in NAMES}
    told = 0
    for seed in range(HEALTHY):
        made, facts = mixed(seed)
        named = {f.name for _, history in made.looked_at() for f in diagnose(history, facts)}
        told += bool(named)
        for name in named:
            outcomes[name].wrongly += 1
    for name, (made, strengths, _) in FAULTS.items():
        for at, strength in enumerate(strengths):
            for onset in ONSETS:
                for seed in range(SEEDS):
                    first: dict[str, int] = {}
                    for step, history in made(seed, onset, strength).looked_at(onset, min(onset + 2 * SOON, STEPS)):
                        for finding in diagnose(history, FACTS):
                            first.setdefault(finding.name, step - onset)
                    outcomes[name].delays[at].append(first.pop(name, None))
                    for other in first:
                        outcomes[other].wrongly += 1
    return outcomes, told


def table(outcomes: dict[str, Outcome], told: int) -> str:
    lines = [
        "| finding | planted | named | precision | stronger half, within 20 steps | steps to it: median, worst |",
        "|---|---|---|---|---|---|",
    ]
    for name, outcome in outcomes.items():
        strong = [delay for delay in outcome.all((2, 3)) if delay is not None]
        shares = " | ".join(f"{share:.0%}" for share in (outcome.detected, outcome.precision, outcome.recall))
        lines.append(f"| `{name}` | {FAULTS[name][2]} | {shares} | {median(strong):.0f}, {max(strong)} |")
    return "\n".join(
        [
            *lines,
            "",
            f"Of {HEALTHY} healthy histories ({', '.join(f'{n} completions in groups of {g}' for n, g in SHAPES)}; "
            f"{STEPS} and {LONG} steps), looked at after each step, {told} had any finding.\n",
        ]
    )


@pytest.mark.slow
def test_planted_faults_are_named_soon_and_healthy_runs_are_left_alone():
    outcomes, told = backtest()
    assert outcomes.keys() == FAULTS.keys()
    assert told <= 0.05 * HEALTHY
    assert {name: outcome.recall for name, outcome in outcomes.items() if outcome.recall < 1} == {}
    assert {name: outcome.precision for name, outcome in outcomes.items() if outcome.precision < 0.95} == {}
    assert table(outcomes, told) in DOCS.read_text(), "run `python tests/test_backtest.py`"


if __name__ == "__main__":
    text = DOCS.read_text()
    head, tail = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    DOCS.write_text(head + table(*backtest()) + tail)
