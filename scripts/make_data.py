"""Write the small local data sets of the shipped recipes: `python scripts/make_data.py [--out DIR]`.

Every data set comes from a fixed seed, so a second run writes the same bytes. No problem occurs twice in a data set,
and none of the test file's problems is in the training file.
"""

import argparse
import json
import operator
import random
from collections.abc import Callable, Hashable
from pathlib import Path

Row = dict[str, object]
Draw = Callable[[random.Random], tuple[Hashable, Row] | None]
"""Draws a problem: what makes it the same problem as another, and its row. None where the draw led to none."""

OPERATIONS = {"+": operator.add, "-": operator.sub}

WORDINGS_ZH = {
    "+": [
        "计算：{a}加{b}等于多少？",
        "{a} + {b} = ？",
        "请计算 {a} 加上 {b}。",
        "{a}与{b}的和是多少？",
        "{a}＋{b}等于几？",
        "求 {a} 加 {b} 的结果。",
    ],
    "-": [
        "计算：{a}减{b}等于多少？",
        "{a} - {b} = ？",
        "请计算 {a} 减去 {b}。",
        "{a}比{b}大多少？",
        "{a}－{b}等于几？",
        "求 {a} 减 {b} 的结果。",
    ],
}


def arithmetic_zh(rng: random.Random) -> tuple[Hashable, Row]:
    """A sum or a difference (never negative) of two-digit numbers, asked in Chinese in one of several wordings."""
    a, b, sign = rng.randint(10, 99), rng.randint(10, 99), rng.choice("+-")
    if sign == "-":
        a, b = max(a, b), min(a, b)
    question = rng.choice(WORDINGS_ZH[sign]).format(a=a, b=b)
    # The wording is no part of the problem: the test set must not ask a training sum in other words.
    return (sign, min(a, b), max(a, b)), {"question": question, "answer": str(OPERATIONS[sign](a, b))}


def two_digit(rng: random.Random) -> tuple[Hashable, Row]:
    """A sum or a difference (may be negative) of two-digit numbers."""
    a, b, sign = rng.randint(10, 99), rng.randint(10, 99), rng.choice("+-")
    # The pair's order is no part of the problem: 77 - 45 would give 45 - 77 away.
    key = (sign, min(a, b), max(a, b))
    return key, {"question": f"What is {a} {sign} {b}?", "answer": str(OPERATIONS[sign](a, b))}


def countdown(rng: random.Random) -> tuple[Hashable, Row] | None:
    """Three or four numbers from 1 to 30 and a target from 10 to 100 that + - * / reach, using each number once."""
    numbers = [rng.randint(1, 30) for _ in range(rng.choice([3, 4]))]
    # Joining random pairs until one value is left is a solution by construction.
    values = list(numbers)
    while len(values) > 1:
        a, b = (values.pop(rng.randrange(len(values))) for _ in range(2))
        joined = _join(a, b, rng.choice("+-*/"))
        if joined is None:
            return None
        values.append(joined)
    target = values[0]
    if not 10 <= target <= 100:
        return None
    return (tuple(sorted(numbers)), target), {"numbers": numbers, "target": target}


def _join(a: int, b: int, sign: str) -> int | None:
    """`a sign b` where that is a positive integer, as in the television game."""
    if sign == "/":
        return a // b if a % b == 0 else None
    joined = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return joined if joined > 0 else None


# name, problem, seed, training rows, test rows
DATA_SETS: list[tuple[str, Draw, int, int, int]] = [
    ("arithmetic_zh", arithmetic_zh, 1, 800, 200),
    ("countdown", countdown, 2, 1000, 200),
    ("two_digit", two_digit, 3, 600, 128),
]


def distinct_rows(draw: Draw, seed: int, n: int) -> list[Row]:
    """The first `n` different problems drawn."""
    rng = random.Random(seed)
    rows: dict[Hashable, Row] = {}
    while len(rows) < n:
        drawn = draw(rng)
        if drawn is not None:
            rows.setdefault(*drawn)
    return list(rows.values())


def write_jsonl(path: Path, rows: list[Row]) -> None:
    """One JSON object per line; bytes, because text mode would write other line ends on Windows."""
    path.write_bytes("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode())


def make_data(out: Path) -> None:
    """Write every data set's `NAME_train.jsonl` and `NAME_test.jsonl` into `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for name, draw, seed, n_train, n_test in DATA_SETS:
        rows = distinct_rows(draw, seed, n_train + n_test)
        write_jsonl(out / f"{name}_train.jsonl", rows[:n_train])
        write_jsonl(out / f"{name}_test.jsonl", rows[n_train:])


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the small local data sets of the shipped recipes.")
    default_out = Path(__file__).resolve().parent.parent / "recipes" / "data"
    parser.add_argument("--out", type=Path, default=default_out, help="folder to write to (default: recipes/data)")
    make_data(parser.parse_args().out)


if __name__ == "__main__":
    main()
