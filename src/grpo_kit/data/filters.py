"""Rows that are left out of a data set, and what is said of them: too long, trained on, too easy,
or without a gold answer."""

import hashlib
import json
from array import array
from dataclasses import replace
from pathlib import Path
from typing import Any

from grpo_kit.data.chat import Chat, token_count
from grpo_kit.data.data import Data
from grpo_kit.data.sources import Row, find_file
from grpo_kit.files.jsonl import for_each_line
from grpo_kit.recipe.recipe import Recipe

MEASURED_PROMPTS = 1000
"""Prompts whose tokens are counted for the plan; of the others only those that might be too long."""


def unusable_note(data: Data | None) -> list[str]:
    if data is None or not data.left_out:
        return []
    shown = "; ".join(data.unusable) + ("; ..." if data.left_out > len(data.unusable) else "")
    return [f"{data.label}: {data.left_out} of {data.scanned} rows left out, no usable gold answer ({shown})"]


def keep_pass_rates(recipe: Recipe, data: Data, notes: list[str | None]) -> Data:
    """The training rows whose pass rate, as a preflight measured it, lies where `dataset.pass_rate` says."""
    section = recipe.dataset
    if section.pass_rate is None:
        return data
    low, high = section.pass_rate
    key = "dataset.pass_rate_file"
    path = find_file(section.pass_rate_file or "", recipe.source.parent)
    if path is None:
        raise recipe.error(key, f"no such file: {section.pass_rate_file}; `grpo-kit preflight` writes one")
    path = path / "rows.jsonl" if path.is_dir() else path
    rates = _pass_rates(recipe, key, path)
    known = [(index, rates[prompt_hash(row)]) for index, row in enumerate(data.rows) if prompt_hash(row) in rates]
    if not known:
        raise recipe.error(
            key,
            f"{path} has none of the {len(data.rows)} prompts of {data.label}; was it made with this data and prompt?",
        )
    kept = [index for index, rate in known if low <= rate <= high]
    if not kept:
        raise recipe.error(
            "dataset.pass_rate", f"none of the {len(known)} prompts measured in {path} is within {low:g} to {high:g}"
        )
    unknown = len(data.rows) - len(known)
    notes.append(
        f"{data.label}: {len(kept)} of {len(known)} measured rows kept, their pass rates are within {low:g} to {high:g}"
        + (f"; {unknown} rows were not measured and are left out" if unknown else "")
    )
    return replace(data, rows=data.rows.select(kept))


def prompt_hash(row: Row) -> str:
    """What identifies a prompt, the system message included: SHA-256 of its messages and gold answer."""
    return hashlib.sha256(json.dumps([row["prompt"], row.get("answer")], ensure_ascii=True).encode()).hexdigest()


def _pass_rates(recipe: Recipe, key: str, path: Path) -> dict[str, float]:
    """The pass rate of each prompt in a file of a preflight, by its hash; prompts that were not judged have none."""
    rates: dict[str, float] = {}

    def add(record: Any) -> None:
        if record["pass_rate"] is not None:
            rates[str(record["prompt_sha256"])] = float(record["pass_rate"])

    try:
        for_each_line(path, add)
    except ValueError as error:
        raise recipe.error(
            key, f"{path}, {error} has no prompt_sha256 and pass_rate; name the rows.jsonl of a preflight"
        ) from None
    return rates


def drop_overlong(
    recipe: Recipe, chat: Chat, data: Data, limit: tuple[str, int], positions: int | None, notes: list[str | None]
) -> tuple[Data, list[int]]:
    """Leave out prompts that leave no room for a completion; return the lengths (tokens) that were counted.

    `limit` is the recipe's key for the length of a completion, and its value.
    """
    key, completion = limit
    room = (positions or 2**62) - completion
    overhead = len(chat.encode([{"role": "user", "content": "x"}]))
    lengths, kept = [], array("q")
    seen: set[tuple[str, ...]] = set()
    for index, row in enumerate(data.rows):
        roles = tuple(message["role"] for message in row["prompt"])  # a template may refuse some, such as `system`
        # a token is at least one byte, so short texts need no counting
        longest = overhead + sum(len(message["content"].encode()) + overhead for message in row["prompt"])
        if index < MEASURED_PROMPTS or longest > room or roles not in seen:
            seen.add(roles)
            length = token_count(recipe, chat, row["prompt"])
            if length > room:
                continue
            lengths.append(length)
        kept.append(index)
    dropped = len(data.rows) - len(kept)
    if not kept:
        raise recipe.error(
            key,
            f"no prompt of {data.label} leaves room for {completion} completion tokens within the model's {positions} "
            "positions; lower it",
        )
    if dropped:
        notes.append(
            f"{data.label}: {dropped} of {len(data.rows)} rows left out, prompt and {completion} completion tokens "
            f"exceed the model's {positions} positions"
        )
        data = replace(data, rows=data.rows.select(kept))
    return data, lengths


def unseen(recipe: Recipe, data: Data, eval_data: Data, notes: list[str | None]) -> Data:
    """Each held-out prompt once, and none that is trained on: the gain would look surer, or larger, than it is."""

    def asked(row: Row) -> str:
        """What the prompt asks, without the instructions around it and however it is spaced."""
        return " ".join(word for m in row["prompt"] if m["role"] != "system" for word in m["content"].split())

    places: dict[str, int] = {}
    for place, row in enumerate(eval_data.rows):
        places.setdefault(asked(row), place)  # of equal ones the first
    for row in data.rows:
        places.pop(asked(row), None)
    if not places:
        raise recipe.error("eval_dataset", "all its prompts are also training prompts; name other rows")
    left_out = len(eval_data.rows) - len(places)
    if left_out:
        notes.append(
            f"{eval_data.label}: {left_out} of {len(eval_data.rows)} held-out rows left out, their prompts are "
            "trained on or repeated"
        )
        eval_data = replace(eval_data, rows=eval_data.rows.select(places.values()))
    return eval_data
