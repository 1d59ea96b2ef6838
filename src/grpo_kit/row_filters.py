"""Rows that are left out of a data set, and what is said of them: too long, trained on, or without a gold answer."""

from array import array
from dataclasses import replace

from grpo_kit.chat import Chat, token_count
from grpo_kit.data import Data
from grpo_kit.recipe import Recipe
from grpo_kit.sources import Row

MEASURED_PROMPTS = 1000
"""Prompts whose tokens are counted for the plan; of the others only those that might be too long."""


def unusable_note(data: Data | None) -> list[str]:
    if data is None or not data.left_out:
        return []
    shown = "; ".join(data.unusable) + ("; ..." if data.left_out > len(data.unusable) else "")
    return [f"{data.label}: {data.left_out} of {data.scanned} rows left out, no usable gold answer ({shown})"]


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
