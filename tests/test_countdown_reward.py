"""The countdown reward: its own cases, then what a model might try."""

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

PATH = Path(__file__).resolve().parent.parent / "rewards" / "countdown.py"
spec = importlib.util.spec_from_file_location("countdown_reward", PATH)
assert spec is not None
assert spec.loader is not None
reward = importlib.util.module_from_spec(spec)
spec.loader.exec_module(reward)


def score(answer: str, numbers: list[int], target: int) -> float:
    value: float = reward.countdown(f"<answer>{answer}</answer>", numbers, target)
    return value


@pytest.mark.parametrize(("completion", "columns", "expected"), reward.CASES)
def test_cases_of_the_file(completion: str, columns: dict[str, Any], expected: float) -> None:
    assert reward.countdown(completion, **columns) == expected


@pytest.mark.parametrize(
    ("answer", "numbers", "target"),
    [
        ("19 + 36 - 55 / 5", [5, 19, 36, 55], 44),  # 55 - 11 = 44
        ("(-2 + 7) * 4", [7, 4, 2], 20),  # 5 * 4
        ("2 - 5", [5, 2], -3),
        ("2 - 5 = -3", [5, 2], -3),
        ("1 / 3 * 3 * 7", [1, 3, 3, 7], 7),  # exact: 1/3 * 3 is 1; the two 3s are both given
        ("5 / (1 - 1 / 5)", [1, 1, 5, 5], None),  # 5 / (4/5) = 6.25 is no integer target
        ("6 \u00f7 2 \u2212 1", [1, 2, 6], 2),  # 3 - 1
        ("６＋２＝８", [2, 6], 8),
        ("\n  (6 + 2)\n  * 3\n", [2, 3, 6], 24),
        ("7", [7], 7),
    ],
)
def test_right_answers_and_no_other_target(answer: str, numbers: list[int], target: int | None) -> None:
    for guess in range(-60, 61):
        assert score(answer, numbers, guess) == float(guess == target)


@pytest.mark.parametrize(
    "answer",
    [
        "4 * 6 = 24 = 24",
        "24 = 4 * 6",
        "4 * 6 = 20 + 4",
        "4 * 6 =",
        "4 * 6 = ?",
        "4 * 6.0",
        "4 * 06",
        "4 * 0x6",
        "4 * 6 # done",
        "4 * 6, 24",
        "(4 * 6,)",
        "[4 * 6]",
        "4(6)",
        "(4)(6)",
        "4 6",
        "4 * (6",
        "(6 * 4))",
        "4 * 6 or 1",
        "x := 4 * 6",
        "lambda: 4 * 6",
        "int('4') * 6",
        "().__class__.__bases__[0] and 4 * 6",
        "4 ** 6",
        "4 // 6",
        "4 % 6",
        "+4 * 6",
        "~4 * 6",
        "4\u00b2 * 6",  # a superscript is no digit
        "\u0664 * 6",  # nor is another script's 4
        "The answer is 4 * 6",
        "<answer>4 * 6",
    ],
)
def test_no_arithmetic_earns_nothing(answer: str) -> None:
    assert score(answer, [4, 6], 24) == 0.0


def test_a_superscript_does_not_pass_as_a_digit() -> None:
    assert score("22 + 2", [22, 2], 24) == 1.0
    assert score("2\u00b2 + 2", [22, 2], 24) == 0.0


def test_every_number_counts_as_often_as_it_is_given() -> None:
    assert score("6 + 6 + 6 + 6", [6, 6, 6, 6], 24) == 1.0
    assert score("6 + 6 + 6 + 6", [6, 6, 6], 24) == 0.0
    assert score("6 * (6 - 1 - 1)", [6, 6, 1], 24) == 0.0
    assert score("4 * 6 + 1 * 0", [4, 6, 1], 24) == 0.0  # 0 was not given
    assert score("46 - 22", [4, 6, 22], 24) == 0.0  # digits must not be glued
    assert score("2<think></think>4", [24], 24) == 0.0  # not by a thought either


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>a</think><think>b</think><answer>4 * 6</answer>", 1.0),
        ("<think>a <think> b</think> c</think><answer>4 * 6</answer>", 1.0),
        ("<think>try <answer>4 + 6</answer></think><answer>4 * 6</answer>", 1.0),  # a draft does no harm
        ("<answer>4 + 6</answer> no.</think><answer>4 * 6</answer>", 1.0),  # the prompt opened the reasoning
        ("<answer>4 * 6</answer></think>", 0.0),  # so all of this is reasoning
        ("<answer>4 * 6</answer><think>", 0.0),
        ("<think>a</think><think><answer>4 * 6</answer>", 0.0),
        ("<answer>4 * 6</answer><think>b</think><answer>4 + 6</answer>", 0.0),
        ("<answer>4 * 6</answer><answer>4 * 6</answer>", 0.0),  # one tag means one
        ("</answer>4 * 6<answer>", 0.0),
        ("<answer>4 * 6</answer> <answer>", 0.0),
        ("<answer>4 * 6</answer><think>b</think>", 1.0),
        ("<answer>4 * <think>b</think>6</answer>", 1.0),
        ("<answer>4 * 6</answer> So the answer is 24.", 1.0),
    ],
)
def test_only_the_committed_answer_counts(completion: str, expected: float) -> None:
    assert reward.countdown(completion, [4, 6], 24) == expected


def test_division_by_zero_is_a_wrong_answer() -> None:
    assert score("4 / (6 - 6)", [4, 6, 6], 0) == 0.0
    assert score("4 / 0", [4, 0], 0) == 0.0


def test_of_the_leading_signs_only_minus_is_read() -> None:
    assert score("-4 * 6", [4, 6], -24) == 1.0
    for sign in ("+", "~"):
        assert score(f"{sign}4 * 6", [4, 6], 24) == score(f"{sign}4 * 6", [4, 6], -24) == 0.0


def test_the_length_bound_applies_to_the_answer_alone() -> None:
    padded = " " * (reward.MAX_CHARS - len("4*6")) + "4*6"
    assert score(padded, [4, 6], 24) == 1.0
    assert score(" " + padded, [4, 6], 24) == 0.0
    assert reward.countdown("because " * 1000 + "<answer>4*6</answer>", [4, 6], 24) == 1.0


@pytest.mark.parametrize(
    "answer",
    [
        "(" * 200,
        "(" * 99 + "4" + ")" * 99,
        "-" * 199 + "4",
        "9*" * 99 + "9",
        "(" * 10**6,
        "<think>" * 10**5,
        "<think></think>" * 10**5,
    ],
    ids=["open", "nested", "minuses", "product", "long", "thoughts never closed", "empty thoughts"],
)
def test_hostile_answers_are_quick(answer: str) -> None:
    start = time.perf_counter()
    assert score(answer, [4, 6], 24) == 0.0
    assert time.perf_counter() - start < 1.0


def test_a_broken_column_is_an_error_not_a_zero() -> None:
    with pytest.raises(TypeError):
        reward.countdown("<answer>24</answer>", 24, 24)
