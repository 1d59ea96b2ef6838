"""What is read of a run may be damaged, and a model wrote its texts: numbers, mappings and text made sure of."""

import math
import re
from collections.abc import Mapping
from typing import Any

UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff0-\uffff"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Characters that show nothing, or act on how others are shown: controls, direction marks, lone surrogates, tags."""


def number(value: Any) -> float | None:
    """A finite number, or None for anything else."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300
    return float(value) if good and math.isfinite(value) else None


def whole(value: Any) -> int | None:
    found = number(value)
    return None if found is None else int(found)


def mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def interval(value: Any) -> tuple[float, float] | None:
    """The two ends of a `ci95`, if it is one."""
    ends = [number(end) for end in value] if isinstance(value, list | tuple) else []
    return (ends[0], ends[1]) if len(ends) == 2 and ends[0] is not None and ends[1] is not None else None


def shown(text: str) -> str:
    """A text in which what cannot be seen is spelled out."""
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def all_shown(value: Any) -> Any:
    """`shown` for every text in a tree of plain values."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {shown(str(key)): all_shown(inner) for key, inner in value.items()}
    return [all_shown(inner) for inner in value] if isinstance(value, list | tuple) else value


def line(value: Any, most: int = 400) -> str:
    """Anything as one line of a readable length."""
    text = " ".join(str(value).split())
    return text if len(text) <= most else f"{text[:most]}..."
