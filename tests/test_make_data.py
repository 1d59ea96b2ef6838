"""The committed data files are what the script writes, hold no test problem in training, and are right."""

import importlib.util
import json
import random
import re
from fractions import Fraction
from itertools import permutations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "recipes" / "data"
ROWS = {
    "arithmetic_zh_train": 800,
    "arithmetic_zh_test": 200,
    "countdown_train": 1000,
    "countdown_test": 200,
    "two_digit_train": 600,
    "two_digit_test": 128,
}
SUMS = ["arithmetic_zh", "two_digit"]


def load(relative: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(Path(relative).stem + "_file", ROOT / relative)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def sum_problem(question: str) -> tuple[bool, int, int]:
    """Is it a difference, and the two numbers as asked."""
    first, second = (int(digits) for digits in re.findall(r"[0-9]+", question))
    return bool(re.search("[-－减比]", question)), first, second


def problem(row: dict[str, Any]) -> tuple[object, ...]:
    """What makes two rows the same problem, worked out from the row alone."""
    if "numbers" in row:
        return (*sorted(row["numbers"]), "->", row["target"])
    minus, first, second = sum_problem(row["question"])
    return (minus, *sorted([first, second]))


def solve(values: list[tuple[Fraction, str]], target: int) -> str | None:
    """An expression over all of `values` that equals `target`, by trying every one."""
    if len(values) == 1:
        return values[0][1] if values[0][0] == target else None
    for i, j in permutations(range(len(values)), 2):
        (a, left), (b, right) = values[i], values[j]
        rest = [values[k] for k in range(len(values)) if k not in (i, j)]
        joined = [(a + b, "+"), (a - b, "-"), (a * b, "*")] + ([(a / b, "/")] if b else [])
        for value, sign in joined:
            found = solve([*rest, (value, f"({left} {sign} {right})")], target)
            if found:
                return found
    return None


def test_committed_files_are_what_the_script_writes(tmp_path: Path) -> None:
    load("scripts/make_data.py").make_data(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{name}.jsonl" for name in ROWS)
    for path in tmp_path.iterdir():
        assert path.read_bytes() == (DATA / path.name).read_bytes(), f"{path.name}: run scripts/make_data.py"


@pytest.mark.parametrize("name", ROWS)
def test_row_counts_and_columns(name: str) -> None:
    rows = read(name)
    assert len(rows) == ROWS[name]
    columns = {"numbers", "target"} if name.startswith("countdown") else {"question", "answer"}
    assert all(set(row) == columns for row in rows)


@pytest.mark.parametrize("name", ["arithmetic_zh", "countdown", "two_digit"])
def test_no_problem_occurs_twice_in_or_across_the_splits(name: str) -> None:
    problems = [problem(row) for row in read(f"{name}_train") + read(f"{name}_test")]
    assert len(set(problems)) == len(problems)


@pytest.mark.parametrize("name", [f"{name}_{split}" for name in SUMS for split in ("train", "test")])
def test_answers_of_the_sums_are_right(name: str) -> None:
    for row in read(name):
        minus, first, second = sum_problem(row["question"])
        assert row["answer"] == str(first - second if minus else first + second), row


def test_both_operations_and_signs_occur() -> None:
    chinese = read("arithmetic_zh_test")
    assert {sum_problem(row["question"])[0] for row in chinese} == {True, False}
    assert not any(row["answer"].startswith("-") for row in chinese)
    english = read("two_digit_test")
    assert any(row["answer"].startswith("-") for row in english)
    assert {sum_problem(row["question"])[0] for row in english} == {True, False}


def test_countdown_puzzles_are_well_formed() -> None:
    for row in read("countdown_train") + read("countdown_test"):
        assert len(row["numbers"]) in (3, 4)
        assert all(type(n) is int and 1 <= n <= 30 for n in row["numbers"])
        assert type(row["target"]) is int
        assert 10 <= row["target"] <= 100


def test_countdown_puzzles_are_solvable_and_the_solution_earns_full_marks() -> None:
    reward = load("rewards/countdown.py").countdown
    for row in random.Random(0).sample(read("countdown_test"), 30):
        expression = solve([(Fraction(n), str(n)) for n in row["numbers"]], row["target"])
        assert expression is not None, row
        assert reward(f"<answer>{expression}</answer>", **row) == 1.0, (row, expression)
