"""What was read of a file that may be damaged, as values that nothing trips over."""

import math
from typing import Any

DEEPEST, MOST = 40, 1_000_000
"""Levels, and values in all, that are kept: a few lines of YAML aliases can stand for more than fits in memory."""

LARGEST = 1e300


def plain(tree: Any) -> Any:
    """A copy of mappings with texts as keys, lists, texts, finite numbers, booleans and None.

    What is not finite, or beyond all reason, is None; what is nested too deep, or in itself, is "..."; else its text.
    """
    left = MOST

    def copy(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if value is None or isinstance(value, str | bool):
            return value
        if isinstance(value, int | float):
            return value if abs(value) < LARGEST and math.isfinite(value) else None
        if depth > DEEPEST or left < 0:
            return "..."
        if isinstance(value, dict):
            return {str(key): copy(own, depth + 1) for key, own in value.items()}
        return [copy(own, depth + 1) for own in value] if isinstance(value, list | tuple | set) else str(value)

    return copy(tree, 0)


def flat(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a tree by their dotted keys; an empty mapping is a value: `lora: {}`."""
    found: dict[str, Any] = {}
    for key, value in tree.items():
        inner = isinstance(value, dict) and value
        found |= flat(value, f"{prefix}{key}.") if inner else {f"{prefix}{key}": value}
    return found
