"""What became of each held-out prompt: its pass rates before and after, counted and sorted into four kinds."""

from collections.abc import Sequence
from dataclasses import dataclass

from grpo_kit.report.results import Measured

HALF = 0.5

KINDS = {
    "forgotten": "at least half right before, less than half after",
    "never solved": "less than half right, before and after",
    "learned": "less than half right before, at least half after",
    "always solved": "at least half right, before and after",
}
"""Each prompt that was judged both times is of one kind; what a reader should look at stands first."""


@dataclass(frozen=True)
class Kind:
    """`hopeless` of the prompts had no right completion at all, before or after."""

    name: str
    meaning: str
    rows: list[int]
    hopeless: int


@dataclass(frozen=True)
class Bin:
    """Prompts with a pass rate of `label`, and their shares of the fullest bin in per cent."""

    label: str
    before: int
    after: int
    before_width: float
    after_width: float


@dataclass(frozen=True)
class Ledger:
    """`kinds` is empty where there is only one measurement; `unjudged` prompts were not judged both times."""

    kinds: list[Kind]
    bins: list[Bin]
    unjudged: int
    before_step: int
    after_step: int | None


def ledger_of(first: Measured | None, last: Measured | None) -> Ledger | None:
    """None where no pass rates were kept."""
    before, after = (one.pass_rates if one else [] for one in (first, last))
    if not before and not after:
        return None
    paired = bool(before) and len(before) == len(after)
    rows: dict[str, list[int]] = {name: [] for name in KINDS}
    hopeless = dict.fromkeys(KINDS, 0)
    for row, (b, a) in enumerate(zip(before, after, strict=True)) if paired else ():
        name = kind_of(b, a)
        if name is not None:
            rows[name].append(row)
            hopeless[name] += b == a == 0
    kinds = [Kind(name, meaning, rows[name], hopeless[name]) for name, meaning in KINDS.items()] if paired else []
    judged = sum(len(found) for found in rows.values())
    samples = next((one.samples for one in (first, last) if one and one.samples), None)
    return Ledger(
        kinds,
        _histogram(before, after, samples),
        len(before) - judged if paired else 0,
        first.step if first else 0,
        last.step if last else None,
    )


def kind_of(before: float | None, after: float | None) -> str | None:
    """None where the prompt was not judged both times."""
    if before is None or after is None:
        return None
    if before < HALF:
        return "never solved" if after < HALF else "learned"
    return "forgotten" if after < HALF else "always solved"


def _histogram(before: Sequence[float | None], after: Sequence[float | None], samples: int | None) -> list[Bin]:
    """A bin for every pass rate there can be; with many completions per prompt, tenths."""
    size = samples if samples is not None and 1 <= samples <= 10 else 10
    counts = [[0] * (size + 1) for _ in range(2)]
    for side, rates in zip(counts, (before, after), strict=True):
        for rate in rates:
            if rate is not None and 0 <= rate <= 1:
                side[round(rate * size)] += 1
    most = max(*counts[0], *counts[1], 1)
    return [
        Bin(f"{at / size:.2g}", b, a, 100 * b / most, 100 * a / most)
        for at, (b, a) in enumerate(zip(*counts, strict=True))
    ]
