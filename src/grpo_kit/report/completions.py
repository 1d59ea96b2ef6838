"""Completions side by side: of each prompt those of the first and of the last time, small enough for one page.

A run's samples may be gigabytes: they are read once, line by line, and a fair choice of prompts is kept.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any

from grpo_kit.report.foreign import mapping, number, shown, whole
from grpo_kit.report.ledger import kind_of
from grpo_kit.report.results import Measured
from grpo_kit.run.run_dir import RunDir

MOST_TEXT = 2048
"""Characters kept of a text; of a longer one the beginning and, because answers stand there, the end."""

ENDING = 600

MOST_PROMPTS, MOST_HELD = 4000, 24_000_000
"""Prompts kept in memory of each data set, and characters of their texts: some times what can be in the page."""

MOST_NAME, MOST_REWARDS = 60, 50

MOST_BYTES = 4_000_000
"""Of the packed completions in the page, which is to stay below 5 MB."""

PER_SIDE = (4, 1)
"""Different completions of a prompt at one step: so many, or where the page would be too large so many."""


@dataclass
class Side:
    """What a prompt got at one step: completions that differ in text or rewards, with how often each came; `total`."""

    step: int
    total: int = 0
    completions: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def add(self, record: dict[str, Any]) -> None:
        self.total += 1
        text = _text(record.get("completion"))
        scores = islice(mapping(record.get("rewards")).items(), MOST_REWARDS)
        rewards = {shown(str(name))[:MOST_NAME]: number(value) for name, value in scores}
        key = (text, str(rewards))
        if key in self.completions:
            self.completions[key]["times"] += 1
        elif len(self.completions) < PER_SIDE[0]:
            answer = record.get("answer_read")
            self.completions[key] = {
                "text": text,
                "rewards": rewards,
                "answer": None if answer is None else _text(answer),
                "tokens": whole(record.get("tokens")),
                "truncated": record.get("truncated") is True,
                "times": 1,
            }


@dataclass
class Prompt:
    row: int | None
    text: str
    gold: str | None
    first: Side
    last: Side | None = None

    def size(self) -> int:
        """Characters of its texts."""
        sides = [self.first, *([self.last] if self.last else [])]
        texts = (text for side in sides for text, _ in side.completions)
        return len(self.text) + len(self.gold or "") + sum(map(len, texts))


@dataclass(frozen=True)
class Completions:
    """`packed` is base64 of gzip of JSON, a list of prompts; `shown` of `seen` are in it, by data set."""

    packed: str
    shown: dict[str, int]
    seen: dict[str, int]
    rewards: list[str]


def completions_of(
    run: RunDir, first: Measured | None, last: Measured | None, most_bytes: int = MOST_BYTES
) -> Completions:
    """Of the held-out prompts before and after, and of the training prompts at their first and last step."""
    kept = [f"evals/step-{one.step}/samples.jsonl" for one in (first, last) if one is not None]
    held_out, held_out_seen = prompts_of(chain.from_iterable(run.lines(file) for file in kept))
    training, training_seen = prompts_of(run.lines("samples.jsonl"))
    rates = [one.pass_rates if one is not None else [] for one in (first, last)]
    items = {
        "held-out": [_item("held-out", prompt, rates) for prompt in held_out],
        "training": [_item("training", prompt, []) for prompt in training],
    }
    packed, count = _packed(items, most_bytes)
    names = (name for item in chain(*items.values()) for side in item["sides"] for one in side["completions"]
             for name in one["rewards"])  # fmt: skip
    return Completions(
        packed,
        count,
        {"held-out": held_out_seen, "training": training_seen},
        list(islice(dict.fromkeys(names), MOST_REWARDS)),
    )


def prompts_of(records: Iterable[dict[str, Any]], most: int = MOST_PROMPTS) -> tuple[list[Prompt], int]:
    """Each prompt with its first and last completions, newest first, and how many prompts there were.

    Of more than `most` those stay whose hash is smallest, so that in one pass over any number of lines early and late
    prompts have the same chance, and each one that is kept is kept whole.
    """
    found: dict[int, Prompt] = {}
    seen: set[int] = set()
    below, unweighed = 1 << 32, 0
    for record in records:
        step, row = whole(record.get("step")), whole(record.get("row"))
        if step is None or not isinstance(record.get("completion"), str):
            continue
        key = zlib.crc32(repr(row if row is not None else record.get("prompt")).encode("utf-8", "replace"))
        seen.add(key)
        if key >= below:
            continue
        prompt = found.get(key)
        if prompt is None:
            gold = record.get("gold")
            text, answer = _text(record.get("prompt")), None if gold is None else _text(gold)
            prompt = found[key] = Prompt(row, text, answer, Side(step))
        if step != prompt.first.step and (prompt.last is None or step != prompt.last.step):
            prompt.last = Side(step)
        (prompt.last or prompt.first).add(record)
        unweighed += min(len(record["completion"]), MOST_TEXT)
        heavy = unweighed > MOST_HELD // 20 and sum(prompt.size() for prompt in found.values()) > MOST_HELD
        unweighed = 0 if unweighed > MOST_HELD // 20 else unweighed
        if len(found) > most or (heavy and len(found) > 1):
            below = sorted(found)[len(found) // 2]
            found = {key: prompt for key, prompt in found.items() if key < below}
    newest_first = sorted(found.values(), key=lambda prompt: (-(prompt.last or prompt.first).step, prompt.row or 0))
    return newest_first, len(seen)


def _item(data: str, prompt: Prompt, rates: Sequence[Sequence[float | None]]) -> dict[str, Any]:
    """A prompt as the page reads it."""
    row = prompt.row
    own = [side[row] if row is not None and 0 <= row < len(side) else None for side in rates]
    sides = [prompt.first, *([prompt.last] if prompt.last else [])]
    return {
        "data": data,
        "row": row,
        "prompt": prompt.text,
        "gold": prompt.gold,
        "kind": kind_of(*own) if len(own) == 2 else None,
        "rates": own,
        "sides": [
            {"step": side.step, "total": side.total, "completions": list(side.completions.values())} for side in sides
        ],
    }


def _packed(items: dict[str, list[dict[str, Any]]], most_bytes: int) -> tuple[str, dict[str, int]]:
    """As many prompts as fit, held-out ones before others; and how many of each these are."""
    for most in PER_SIDE:
        for item in chain(*items.values()):
            for side in item["sides"]:
                side["completions"] = side["completions"][:most]
        packed = _pack(items)
        if len(packed) <= most_bytes:
            break
    while len(packed) > most_bytes and any(items.values()):
        name = "training" if items["training"] else "held-out"
        fits = len(items[name]) * most_bytes // len(packed) * 9 // 10
        items[name] = _spread(items[name], fits if fits > 9 else 0)
        packed = _pack(items)
    return packed, {name: len(some) for name, some in items.items()}


def _pack(items: dict[str, list[dict[str, Any]]]) -> str:
    text = json.dumps(list(chain(*items.values())), separators=(",", ":"), allow_nan=False)
    return base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()


def _spread(items: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """So many of them, evenly from all."""
    return [items[at * len(items) // count] for at in range(count)]


def _text(value: Any) -> str:
    """A foreign text, cut to size, in which nothing is hidden."""
    text = value if isinstance(value, str) else "" if value is None else str(value)
    if len(text) > MOST_TEXT:
        left_out = len(text) - MOST_TEXT
        ending = text[-ENDING:]
        text = f"{text[: MOST_TEXT - ENDING]}\n[... {left_out:,} characters left out ...]\n{ending}"
    return shown(text)
