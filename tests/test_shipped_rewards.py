"""The shipped rewards: the cases of their files, and completions that other graders get wrong."""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDER = Path(__file__).resolve().parent.parent / "rewards"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_reward", FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REWARDS = {name: load(name) for name in ("accuracy", "format", "length")}
CASES = [
    pytest.param(name, *case, id=f"{name}-{index}")
    for name, module in REWARDS.items()
    for index, case in enumerate((*case, {})[:4] for case in module.CASES)
]


def score(name: str, completion: str, options: dict[str, Any] | None = None, **columns: Any) -> float | None:
    value: float | None = getattr(REWARDS[name], name)(completion, **columns, **(options or {}))
    return value


@pytest.mark.parametrize(("name", "completion", "columns", "expected", "options"), CASES)
def test_cases_of_the_files(
    name: str, completion: str, columns: dict[str, Any], expected: float | None, options: dict[str, Any]
) -> None:
    assert score(name, completion, options, **columns) == expected


@pytest.mark.parametrize("name", REWARDS)
def test_cases_cover_full_marks_nothing_and_empty(name: str) -> None:
    expected = [case[2] for case in REWARDS[name].CASES]
    full_marks = getattr(REWARDS[name], "FULL_MARKS", 1.0)
    assert full_marks in expected
    assert 0.0 in expected
    assert max(value for value in expected if value is not None) == full_marks
    assert any(not case[0] for case in REWARDS[name].CASES)


@pytest.mark.parametrize("name", REWARDS)
def test_the_first_line_says_what_full_marks_mean(name: str) -> None:
    assert (REWARDS[name].__doc__ or "").startswith("1.0 ")


@pytest.mark.parametrize(
    ("completion", "expected"),
    [
        ("<think>\na\n</think>\n<answer>\n4\n</answer>", 1.0),
        ("<think>a</think><answer>4</answer>", 1.0),
        ("<think>\na\n</think>\n<answer>\n4\n</answer>\n\n", 1.0),
        ("<think>\n\na\n\n</think>\n\n<answer>\n\n4\n\n</answer>", 1.0),
        ("<think>\na\n<answer>\n4\n</answer>", 0.0),  # missing close tag
        ("<think>\na\n</think>\n<answer>\n4\n", 0.0),
        ("<think>a</think><answer>4</answer><answer>5</answer>", 0.0),
        ("Well. <think>a</think><answer>4</answer>", 0.0),  # text before
        ("<think><think>a</think></think><answer>4</answer>", 0.0),  # nested
        ("<think>a</think><answer><answer>4</answer></answer>", 0.0),
        ("<think>a</think><answer>\n</answer>", 0.0),  # empty
        ("</think><think><answer>4</answer>", 0.0),
    ],
)
def test_think_and_answer(completion: str, expected: float) -> None:
    assert score("format", completion, {"style": "think_answer"}) == expected


def test_reasoning_that_the_template_opened() -> None:
    """The kit puts the template's <think> back; without it the turn is not in the form."""
    assert score("format", "<think>\na\n</think>\nb", {"style": "think"}) == 1.0
    assert score("format", "a\n</think>\nb", {"style": "think"}) == 0.0
    assert score("format", "<think>\na\n</think>\n<answer>b</answer>", {"style": "think_answer"}) == 1.0


def test_only_marks_outside_the_reasoning_count() -> None:
    assert score("format", r"a \boxed{1} </think> \boxed{2}") == 1.0
    assert score("format", r"\boxed{1} <think> \boxed{2}") == 0.0
    assert score("format", "<answer>1</answer></think>", {"style": "answer_tag"}) == 0.0


def test_braces_inside_a_box() -> None:
    assert score("format", r"\boxed{\{1, 2\}}") == 1.0
    assert score("format", r"\boxed{\frac{1}{2}") == 0.0
    assert score("format", r"\boxed{x}}") == 1.0  # the box itself is well formed


def test_length_falls_in_a_straight_line() -> None:
    # Default 256 to 512: full marks up to 256; each token more costs 1/256; nothing from 512 on.
    for tokens, expected in [(0, 1.0), (256, 1.0), (257, 255 / 256), (320, 0.75), (511, 1 / 256), (512, 0.0)]:
        assert score("length", "", completion_ids=[1] * tokens) == expected


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="max_tokens: 256"):
        score("length", "", {"max_tokens": 256}, completion_ids=[])
    with pytest.raises(ValueError, match="style: 'latex'"):
        score("format", "", {"style": "latex"})
    with pytest.raises(ValueError, match="require: 'box'"):
        score("accuracy", "42", {"require": "box"}, answer="42")


@pytest.mark.parametrize(
    "text", ["\n" * 20_000, "<think>" * 3_000, r"\boxed{" * 3_000, "<answer>" * 3_000, "9" * 20_000]
)
def test_degenerate_text_is_judged_quickly(text: str) -> None:
    assert score("accuracy", text, answer="42") == 0.0
    for style in ("boxed", "think", "think_answer", "answer_tag"):
        assert score("format", text, {"style": style}) == 0.0
