"""`grpo-kit check` in this process, on a small project in the current folder."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from grpo_kit.cli import main

RECIPE = """\
model: model
dataset:
  path: rows.jsonl
  prompt: '{question}'
rewards:
  variety: 1.0
grpo:
  num_generations: 4
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2
  max_completion_length: 8
  max_steps: 2
"""
"""Legal: 2 steps of 4 x 2 / 4 = 2 prompts each. Tests name its lines by number."""

VARIETY = '"""How many different characters."""\n\n\ndef variety(completion):\n    return len(set(completion))\n'


def changed(old: str, new: str, recipe: str = RECIPE) -> str:
    """The recipe with one piece of it replaced."""
    assert recipe.count(old) == 1, old
    return recipe.replace(old, new)


def with_key(line: str) -> str:
    """The recipe with one more top-level line, its 13th."""
    return f"{RECIPE}{line}\n"


def write_rows(path: str, rows: Iterable[Any]) -> None:
    Path(path).write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def questions(count: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {i}+{i}?", "answer": str(2 * i)} for i in range(count)]


@dataclass(frozen=True)
class CommandLine:
    """Runs `check` on `r.yaml`; `read` returns what was printed since, on standard output and standard error."""

    read: Callable[[], tuple[str, str]]

    def check(self, *overrides: str, recipe: str | bytes | None = RECIPE) -> tuple[int, str, str]:
        """Exit code, standard output, standard error."""
        if recipe is not None:
            Path("r.yaml").write_bytes(recipe if isinstance(recipe, bytes) else recipe.encode())
        with pytest.raises(SystemExit) as ended:
            main(["check", "r.yaml", *overrides])
        return (int(ended.value.code or 0), *self.read())

    def passes(self, *overrides: str, recipe: str | bytes | None = RECIPE) -> str:
        """What is printed for a recipe that is right."""
        code, out, err = self.check(*overrides, recipe=recipe)
        assert (code, err) == (0, ""), err
        return out

    def refuses(self, *overrides: str, recipe: str | bytes | None = RECIPE) -> str:
        """The one line that is printed for a recipe that is wrong: exit code 2, nothing else, no traceback."""
        code, out, err = self.check(*overrides, recipe=recipe)
        assert (code, out) == (2, ""), err
        assert err.startswith("error: ")
        assert err.count("\n") == 1, err
        return err.removeprefix("error: ").rstrip("\n")


def assert_says(message: str, *parts: str) -> None:
    """The message begins with the first part and holds the others."""
    assert message.startswith(parts[0]), message
    for part in parts[1:]:
        assert part in message, message
