"""Data set -> rows with `prompt` (chat messages) and columns; every row is scanned before anything is trained on it."""

import difflib
import hashlib
import heapq
import json
import math
import random
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from grpo_kit.answers import usable_gold
from grpo_kit.data.rows import Rows
from grpo_kit.data.sources import Row, Source, open_source
from grpo_kit.errors import RecipeError, first_line, shorten
from grpo_kit.recipe.recipe import DatasetSection, Recipe

RESERVED = ("prompts", "completion", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra")
"""Names under which a reward is called with something else than a column."""

MARKERS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|start_header_id|>",
    "<|eot_id|>",
    "<|user|>",
    "<|assistant|>",
    "<｜User｜>",
    "<｜Assistant｜>",
    "<start_of_turn>",
    "[INST]",
)
"""What chat templates write; in a prompt they mean that it was templated already."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_WRITTEN_OUT = re.compile(r"\s*\[\s*\{\s*[\"'](?:role|from|content|value)[\"']")
"""A list of messages that a .csv, for example, holds as text."""

ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}

SHOWN = 5
"""Of the rows that were left out, so many are named."""


@dataclass(frozen=True)
class Data:
    """The rows of one data set, ready for the trainer.

    `rows`: each has `prompt` (list of {role, content} messages), `answer` where there is one (str), and every other
    column. `scanned` counts the rows looked at, `left_out` those without a usable gold answer; `unusable` shows some.
    """

    label: str
    rows: Rows
    columns: tuple[str, ...]
    scanned: int
    left_out: int = 0
    unusable: list[str] = field(default_factory=list)

    def fingerprint(self) -> dict[str, Any]:
        """What identifies exactly these rows in this order."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(json.dumps(row, ensure_ascii=True, default=str).encode())
        return {"data": self.label, "rows": len(self.rows), "scanned": self.scanned, "sha256": digest.hexdigest()}


def rounded_up(share: float) -> float:
    """To two digits, so that the value as written is enough."""
    return math.ceil(share * 100) / 100


def load_data(recipe: Recipe, section: DatasetSection, key: str) -> Data:
    """Read, check and convert the rows of one section; `key` is its name in messages. Raises RecipeError."""
    source = open_source(recipe, section, key)
    convert = _Conversion(recipe, section, key, source.label, _first_columns(recipe, source, key))
    unusable: list[str] = []
    scanned = left_out = 0

    def usable() -> Iterator[Row]:
        nonlocal scanned, left_out
        for index, row in enumerate(_rows(source)):
            scanned += 1
            converted = convert(index, row)
            if not convert.gold or usable_gold(converted["answer"]):
                yield converted
                continue
            left_out += 1
            if len(unusable) < SHOWN:
                unusable.append(f"row {index}: {shorten(row.get(convert.gold_column, ''), 40)}")

    try:
        rows = Rows(usable() if section.limit is None else _drawn(usable(), section.limit, recipe.seed))
    except OSError as error:
        raise RecipeError(
            f"the temporary folder cannot hold the rows of {source.label} ({error.strerror}); "
            "free space there, or name another folder: export TMPDIR=FOLDER"
        ) from None
    if left_out > section.max_unusable * scanned:
        raise recipe.error(
            f"{key}.answer",
            f"{left_out} of {scanned} rows of {source.label} have no usable gold answer ({'; '.join(unusable)}"
            f"{'; ...' if left_out > SHOWN else ''}); mend the data or the answer_pattern"
            f"{f', or allow it with max_unusable: {rounded_up(left_out / scanned)}' if left_out < scanned else ''}",
        )
    return Data(source.label, rows, rows.columns, scanned, left_out, unusable)


def _drawn(rows: Iterable[Row], limit: int, seed: int) -> list[Row]:
    """So many rows, shuffled, however many there are: those with the smallest of seeded random keys.

    A smaller limit draws the first of what a larger one draws.
    """
    draw = random.Random(seed)
    keyed = ((draw.random(), index, row) for index, row in enumerate(rows))
    return [row for _, _, row in heapq.nsmallest(limit, keyed)]


def _rows(source: Source) -> Iterator[Row]:
    try:
        yield from source.rows()
    except RecipeError:
        raise
    except OSError as error:
        raise RecipeError(f"{source.label}: cannot be read ({first_line(error)})") from None


def _first_columns(recipe: Recipe, source: Source, key: str) -> tuple[str, ...]:
    first = next(_rows(source), None)
    if first is None:
        raise recipe.error(f"{key}.path", f"{source.label} has no rows")
    return tuple(first)


class Template:
    r"""Text with `{column}` in it. Braces after a LaTeX command (`\boxed{x}`) and all others stay as they are."""

    _PIECE = re.compile(r"(\\[A-Za-z]+(?:\[[^\[\]{}]*\])?(?:\{[^{}]*\})+)|([_^]?)\{([^{}\n]+)\}")

    def __init__(self, text: str):
        self.text = text

    def names(self, columns: tuple[str, ...]) -> list[str]:
        """The columns it uses, and identifiers that look meant as columns but are none (`x_{i}` does not)."""
        found = [(match[3], match[2]) for match in self._PIECE.finditer(self.text) if match[3]]
        return [name for name, script in found if name in columns or (name.strip().isidentifier() and not script)]

    def fill(self, row: Row) -> str:
        def piece(match: re.Match[str]) -> str:
            return f"{match[2]}{row[match[3]]}" if match[3] and match[3] in row else match[0]

        return self._PIECE.sub(piece, self.text)


class _Conversion:
    """One row -> messages, gold answer and columns, as the section says; checks the section once, each row always."""

    def __init__(self, recipe: Recipe, section: DatasetSection, key: str, label: str, columns: tuple[str, ...]):
        self.recipe, self.section, self.key, self.label, self.columns = recipe, section, key, label, columns
        self.prompt = Template(section.prompt) if section.prompt is not None else None
        self.answer = Template(section.answer) if section.answer is not None else None
        self.pattern = re.compile(section.answer_pattern) if section.answer_pattern else None
        self.chat_column = self._chat_column() if self.prompt is None else None
        prompt_names = self._known(self.prompt, "prompt") if self.prompt else [self.chat_column or ""]
        answer_names = self._known(self.answer, "answer") if self.answer else ["answer"]
        self.prompt_names = prompt_names
        self.gold = self.answer is not None or "answer" in columns
        self.gold_column = answer_names[0] if answer_names else ""
        if self.pattern and not self.gold:
            raise recipe.error(
                f"{key}.answer_pattern", f"there is no answer to search; write answer: too ({self._have()})"
            )
        shown = [name for name in Template(section.system or "").names(columns) if name in columns]
        if shown:
            raise recipe.error(f"{key}.system", f"is taken literally, but names the column {{{shown[0]}}}; use prompt:")
        both = set(prompt_names) & set(answer_names) if self.gold else set()
        if both and not section.gold_in_prompt:
            raise recipe.error(
                f"{key}.prompt",
                f"shows the column {both.pop()!r}, which holds the gold answer: copying would earn the reward; "
                "use another column, or write gold_in_prompt: true",
            )

    def __call__(self, index: int, row: Row) -> Row:
        taken = next((name for name in RESERVED if name in row), None)
        if taken is not None:
            raise self.recipe.error(
                f"{self.key}.path",
                f"{self.label} has a column called {taken}; rewards use that word (reserved: {', '.join(RESERVED)}), "
                "rename the column",
            )
        messages = self._from_template(index, row) if self.prompt else self._from_column(index, row)
        if self.section.system is not None:
            if messages[0]["role"] == "system":
                raise self._bad(index, "already has a system message; remove system: from the recipe")
            messages = [{"role": "system", "content": self.section.system}, *messages]
        for message in messages:
            marker = next((m for m in MARKERS if m in message["content"]), None)
            if marker:
                raise self._bad(index, f"holds {marker}: it is templated already; give the plain text of the message")
            if _SURROGATE.search(message["content"]):
                raise self._bad(index, "holds half of a character (a lone surrogate); mend the text's encoding")
        converted = {**row, "prompt": messages}
        if self.gold:
            converted["answer"] = self._gold(row)
        return converted

    def _from_template(self, index: int, row: Row) -> list[Row]:
        assert self.prompt is not None
        for name in self.prompt_names:
            value = row.get(name)
            if value is None or (isinstance(value, str) and not value.strip()):
                raise self._bad(index, f"column {name!r} is {shorten(value)}, so the prompt would be empty there")
        bare = len(self.prompt_names) == 1 and self.prompt.text.strip() == f"{{{self.prompt_names[0]}}}"
        if bare and not isinstance(row[self.prompt_names[0]], str):
            value = row[self.prompt_names[0]]
            raise self._bad(index, f"column {self.prompt_names[0]!r} is {shorten(value)}; a prompt is text")
        return [{"role": "user", "content": self.prompt.fill(row)}]

    def _from_column(self, index: int, row: Row) -> list[Row]:
        value = row.get(self.chat_column or "")
        if isinstance(value, str) and _WRITTEN_OUT.match(value):
            raise self._bad(index, f"column {self.chat_column!r} holds messages written out as text; store a list")
        if isinstance(value, str) and value.strip():
            return [{"role": "user", "content": value}]
        if not isinstance(value, list) or not value:
            raise self._bad(index, f"column {self.chat_column!r} is {shorten(value)}; a prompt is text or messages")
        messages = [self._message(index, message) for message in value]
        if messages[-1]["role"] == "assistant":
            messages = messages[:-1]  # the answer to be learned from, not a part of the prompt
        if not messages or messages[-1]["role"] != "user":
            raise self._bad(index, "the messages have no user turn to answer")
        return messages

    def _message(self, index: int, message: Any) -> Row:
        given = message if isinstance(message, dict) else {}
        role, content = (given.get(a) or given.get(b) for a, b in (("role", "from"), ("content", "value")))
        if isinstance(content, list) and all(isinstance(p, dict) and p.get("type") == "text" for p in content):
            content = "".join(str(part.get("text", "")) for part in content)
        if not isinstance(role, str) or role not in ROLES or not isinstance(content, str) or not content.strip():
            raise self._bad(index, f"has a message that is no {{role, content}} with text: {shorten(message)}")
        return {"role": ROLES[role], "content": content}

    def _gold(self, row: Row) -> str:
        if self.answer is not None:
            values = {name: row.get(name) for name in self.answer.names(self.columns)}
            text = "" if None in values.values() else self.answer.fill(row)
        else:
            text = "" if row.get("answer") is None else str(row["answer"])
        if self.pattern:
            match = self.pattern.search(text)
            text = (match[1] or "") if match else ""
        return text.strip()

    def _chat_column(self) -> str:
        for name in ("prompt", "messages", "conversations"):
            if name in self.columns:
                return name
        raise self.recipe.error(
            f"{self.key}.prompt",
            f"missing, and the data has no column prompt, messages or conversations ({self._have()}); "
            f"write a template such as prompt: '{{{self.columns[0] if self.columns else 'question'}}}'",
        )

    def _known(self, template: Template, which: str) -> list[str]:
        names = template.names(self.columns)
        for name in names:
            if name not in self.columns:
                near = difflib.get_close_matches(name, self.columns, n=1)
                hint = f"; did you mean {{{near[0]}}}?" if near else ""
                raise self.recipe.error(f"{self.key}.{which}", f"no column {name!r} ({self._have()}){hint}")
        if which == "prompt" and not names:
            raise self.recipe.error(
                f"{self.key}.{which}", f"uses no column, so all rows would be alike ({self._have()})"
            )
        return names

    def _have(self) -> str:
        return f"columns: {', '.join(self.columns) or 'none'}"

    def _bad(self, index: int, message: str) -> RecipeError:
        return self.recipe.error(self.key, f"{self.label}, row {index} (from 0) {message}")
