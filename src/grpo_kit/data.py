"""Data set -> rows with `prompt` (chat messages) and columns; every row is scanned before anything is trained on it."""

import difflib
import hashlib
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from grpo_kit.answers import usable_gold
from grpo_kit.errors import RecipeError
from grpo_kit.recipe import DatasetSection, Recipe, shorten
from grpo_kit.sources import Row, Source, first_line, open_source

RESERVED = ("prompts", "completion", "completions", "completion_ids", "trainer_state", "log_metric", "log_extra")
"""Names under which a reward is called with something else than a column."""

MARKERS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|start_header_id|>",
    "<|eot_id|>",
    "[INST]",
    "<start_of_turn>",
    "<|endoftext|>",
)
"""What chat templates write; in a prompt they mean that it was templated already."""

ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant", "system": "system"}

UNUSABLE_SHARE = 0.05
"""More rows than this without a usable gold answer are an error; fewer are left out and said."""


@dataclass(frozen=True)
class Data:
    """The rows of one data set, ready for the trainer.

    `rows`: each has `prompt` (list of {role, content} messages), `answer` where there is one (str), and every other
    column. `scanned` counts the rows looked at; `unusable` names those left out, with the reason.
    """

    label: str
    rows: list[Row]
    columns: tuple[str, ...]
    scanned: int
    unusable: list[str] = field(default_factory=list)

    def fingerprint(self) -> dict[str, Any]:
        """What identifies exactly these rows in this order."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(json.dumps(row, ensure_ascii=True, default=str).encode())
        return {"data": self.label, "rows": len(self.rows), "scanned": self.scanned, "sha256": digest.hexdigest()}


def load_data(recipe: Recipe, section: DatasetSection, key: str) -> Data:
    """Read, check and convert the rows of one section; `key` is its name in messages. Raises RecipeError."""
    source = open_source(recipe, section, key)
    columns = _first_columns(recipe, source, key)
    convert = _Conversion(recipe, section, key, columns)
    unusable: list[str] = []
    kept: list[Row] = []
    good: list[int] = []
    scanned = 0
    for index, row in enumerate(_rows(source)):
        scanned += 1
        converted = convert(index, row)
        if convert.gold and not usable_gold(converted.get("answer") or ""):
            unusable.append(f"row {index}: {shorten(row.get(convert.gold_column, ''), 40)}")
        elif section.limit is None:
            kept.append(converted)
        else:
            good.append(index)
    if scanned and len(unusable) > UNUSABLE_SHARE * scanned:
        raise recipe.error(
            f"{key}.answer",
            f"{len(unusable)} of {scanned} rows of {source.label} have no usable gold answer "
            f"({'; '.join(unusable[:5])}); mend the data or the answer_pattern",
        )
    if section.limit is not None:
        chosen = random.Random(recipe.seed).sample(good, min(section.limit, len(good)))
        found = {i: convert(i, row) for wanted in [set(chosen)] for i, row in enumerate(_rows(source)) if i in wanted}
        kept = [found[index] for index in chosen]
    names = tuple(dict.fromkeys(name for row in kept for name in row))
    for row in kept:
        for name in names:
            row.setdefault(name, None)  # TRL takes the columns of the first row for all
    return Data(source.label, kept, names, scanned, unusable)


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
    taken = [name for name in first if name in RESERVED]
    if taken:
        raise recipe.error(
            f"{key}.path",
            f"{source.label} has a column called {taken[0]}; rewards use that word (reserved: {', '.join(RESERVED)}), "
            "rename the column",
        )
    return tuple(first)


class Template:
    r"""Text with `{column}` in it. Braces after a LaTeX command (`\boxed{x}`) and all others stay as they are."""

    _PIECE = re.compile(r"(\\[A-Za-z]+(?:\{[^{}]*\})+)|\{([^{}\n]+)\}")

    def __init__(self, text: str):
        self.text = text

    def names(self, columns: tuple[str, ...]) -> list[str]:
        """The columns it uses, and identifiers that look meant as columns but are none."""
        found = [match[2] for match in self._PIECE.finditer(self.text) if match[2]]
        return [name for name in found if name in columns or name.isidentifier()]

    def fill(self, row: Row) -> str:
        def piece(match: re.Match[str]) -> str:
            return str(row[match[2]]) if match[2] and match[2] in row else match[0]

        return self._PIECE.sub(piece, self.text)


class _Conversion:
    """One row -> messages, gold answer and columns, as the section says; checks the section once, each row always."""

    def __init__(self, recipe: Recipe, section: DatasetSection, key: str, columns: tuple[str, ...]):
        self.recipe, self.section, self.key, self.columns = recipe, section, key, columns
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
            raise recipe.error(f"{key}.answer_pattern", f"there is no answer to search; write answer: ({self._have()})")
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
        messages = self._from_template(index, row) if self.prompt else self._from_column(index, row)
        if self.section.system is not None:
            if messages[0]["role"] == "system":
                raise self._bad(index, "already has a system message; remove system: from the recipe")
            messages = [{"role": "system", "content": self.section.system}, *messages]
        for message in messages:
            marker = next((m for m in MARKERS if m in message["content"]), None)
            if marker:
                raise self._bad(index, f"holds {marker}: it is templated already; give the plain text of the message")
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
        pairs = (("role", "content"), ("from", "value"))
        role, content = next(
            ((message[r], message[c]) for r, c in pairs if r in message and c in message), (None, None)
        )
        if role not in ROLES or not isinstance(content, str) or not content.strip():
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
        return f"columns: {', '.join(self.columns)}"

    def _bad(self, index: int, message: str) -> RecipeError:
        return self.recipe.error(self.key, f"row {index} {message}")
