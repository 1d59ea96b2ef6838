"""Reading .jsonl files that a program writes line by line, and may have died while it did."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def for_each_line(path: Path, act: Callable[[Any], None]) -> None:
    """`act` on the value of each line; a last line that a crash cut off is passed over.

    Raises ValueError that says `line N`, from 1, for one that is not valid JSON, or that `act` cannot use.
    """
    with path.open(encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            try:
                act(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                if line.endswith("\n"):
                    raise ValueError(f"line {number}") from None
