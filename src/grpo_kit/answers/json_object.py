r"""The answer of a completion that is one JSON object: `{"reasoning": "6 * 7", "answer": 42}`."""

import json
import re

from .text import nesting

MAX_LENGTH = 20_000
MAX_NESTING = 20

_OBJECT = re.compile(r"\s*(?:```(?:json)?\s*)?(\{.*\})\s*(?:```)?\s*", re.DOTALL)
_KEYS = ("final_answer", "answer", "result")


def json_answer(text: str) -> tuple[bool, str | None]:
    """Whether the text is a JSON object, and the text or number that it gives as its answer. Digits stay as written."""
    found = _OBJECT.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if not found or nesting(found[1]) > MAX_NESTING:
        return False, None
    try:
        entries = json.loads(found[1], parse_int=str, parse_float=str)
    except ValueError:
        return False, None
    answer = next((entries[key] for key in _KEYS if key in entries), None)
    return True, answer if isinstance(answer, str) and answer.strip() else None
