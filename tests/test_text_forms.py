"""Format on texts as models write them, through the command line: a reward file's CASES, run by `rewards test`."""

from pathlib import Path

import pytest

from grpo_kit.cli import main
from grpo_kit.shipped import shipped

RIGHT = [
    "<think>\na\n</think>\n<answer>\n4\n</answer>",
    "<think>a</think><answer>4</answer>",
    "<think>a</think> <answer>4</answer>",
    "<think>\na\n</think>\n<answer>\n4\n</answer>\n\n",
    "<think>\n\na\n\n\nb\n</think>\n\n\n<answer>\n\n4\n\n</answer>",
    "<think>\r\na\r\n</think>\r\n<answer>\r\n4\r\n</answer>",
    "<think>思考</think>\n<answer>四</answer>",
]
WRONG = [
    "<think>a</think>\n<answer>4",  # no closing tag
    "<think>a\n<answer>4</answer>",
    "<think>a</think><answer>4</answer><answer>4</answer>",  # two answers
    "<think>a</think><answer>4</answer> or <answer>5</answer>",
    "Sure.\n<think>a</think><answer>4</answer>",  # text before
    "<think>a<think>b</think></think><answer>4</answer>",  # nested
    "<think>a</think><answer><answer>4</answer></answer>",
    "<think>a</think><answer></answer>",  # empty
    "<think>a</think><answer>\n \n</answer>",
    "<answer>4</answer>",
    "",
]
OPENED = [
    ("<think>\na\n</think>\nb", 1.0),  # as the reward gets it where the template has opened the tag
    ("<think>\na", 0.0),
    ("<think>\na\n</think>\n", 0.0),
]


def tried(capsys, cases: list[tuple[str, dict, float, dict]]) -> tuple[int, str]:
    """Exit code and output of `rewards test` on the shipped format with these cases instead of its own."""
    Path("rewards").mkdir(exist_ok=True)
    Path("rewards/format.py").write_text(
        f"{(shipped('rewards') / 'format.py').read_text('utf-8')}\nCASES = {cases!r}\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "test", "format"])
    return int(ended.value.code or 0), capsys.readouterr().out


def all_cases() -> list[tuple[str, dict, float, dict]]:
    style = {"style": "think_answer"}
    return [
        *((text, {}, 1.0, style) for text in RIGHT),
        *((text, {}, 0.0, style) for text in WRONG),
        *((text, {}, expected, {"style": "think"}) for text, expected in OPENED),
    ]


def test_tags_across_lines_once_and_with_something_in_them(capsys):
    cases = all_cases()
    code, shown = tried(capsys, cases)
    assert code == 0
    assert f"{len(cases)} as expected" in shown


@pytest.mark.parametrize("at", range(0, len(all_cases()), 5))
def test_a_wrong_expectation_is_found(capsys, at):
    cases = all_cases()
    text, columns, expected, options = cases[at]
    cases[at] = (text, columns, 1.0 - expected, options)
    code, shown = tried(capsys, cases)
    assert code == 1
    assert "FINDING" in shown
