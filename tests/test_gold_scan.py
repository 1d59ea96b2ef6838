"""Before a run: is every gold answer worth full marks itself, and is form alone worth too much?"""

from pathlib import Path

import pytest
from command_line import RECIPE, assert_says, changed, write_rows

GOLDS = ["72", "3.5", r"\frac{3}{4}", "blue", "(1, 2)", "1,000", "十二", "B", "x^2+1", r"\{1, 2\}", "50%", "-7"]


def with_rewards(rewards: str, golds=GOLDS) -> str:
    write_rows("rows.jsonl", [{"question": f"Question {i}?", "answer": gold} for i, gold in enumerate(golds)])
    return changed("variety: 1.0", rewards)


@pytest.mark.parametrize("require", ["none", "boxed", "answer_tag", "hash"])
def test_every_kind_of_gold_earns_full_marks_wherever_it_must_stand(cli, require):
    shown = cli.passes(recipe=with_rewards(f"accuracy: {{weight: 1.0, require: {require}}}"))
    forms = {
        "none": r"\boxed{ANSWER}",
        "boxed": r"\boxed{ANSWER}",
        "answer_tag": "<answer>ANSWER</answer>",
        "hash": "#### ANSWER",
    }
    assert f"; best paid as '{forms[require]}'\n" in shown
    assert "left out" not in shown


def test_the_form_is_the_one_that_all_rewards_pay_for_together(cli):
    both = "accuracy: {weight: 1.0, require: boxed}\n  format: {weight: 0.1, style: think_answer}"
    shown = cli.passes(recipe=with_rewards(both))
    form = r"<think>Let me work it out step by step.</think>\n<answer>\boxed{ANSWER}</answer>"
    assert f"best paid as '{form}'" in shown


def test_the_kinds_are_counted(cli):
    shown = cli.passes(recipe=with_rewards("accuracy: 1.0", ["1", "2", "3", "1/2", "0.5", "blue"]))
    assert "gold       3 integer, 1 fraction, 1 decimal, 1 words; best paid as" in shown


TWICE = "def mine(completion, answer):\n    return 2.0 if answer in completion else 0.0\n"


def test_a_reward_of_ones_own_is_told_where_its_marks_are_not_reached(cli):
    Path("rewards/mine.py").write_text(f"FULL_MARKS = 3\n{TWICE}")
    shown = cli.passes(recipe=with_rewards("mine: 1.0"))
    assert "note       no gold answers of rows.jsonl earn the full marks of mine (3) in the usual forms" in shown
    Path("rewards/mine.py").write_text(f"FULL_MARKS = 2\n{TWICE}")
    assert "full marks" not in cli.passes(recipe=with_rewards("mine: 1.0"))
    code = "def mine(completion, answer):\n    return float(answer in completion and answer != 'blue')\n"
    Path("rewards/mine.py").write_text(code)
    assert "note       11 of 12 gold answers of rows.jsonl earn the full marks" in cli.passes(
        recipe=with_rewards("mine: 1.0")
    )


def test_a_goal_without_a_gold_answer_is_not_scanned(cli):
    assert "gold  " not in cli.passes(recipe=RECIPE)


def test_gold_answers_that_cannot_be_right_are_left_out_or_refused(cli):
    # a gold answer that takes itself back commits to nothing
    golds = [str(i) for i in range(20)]
    bad = "The answer is 3, no, 4."
    message = cli.refuses(recipe=with_rewards("accuracy: 1.0", [*golds, bad, bad]))
    assert_says(
        message,
        "r.yaml:2: dataset.answer: 2 of 22 gold answers of rows.jsonl do not earn the full marks of accuracy, not ",
        "'The answer is 3, no, 4.', 'The answer is 3, no, 4.'; mend the data, or allow it with max_unusable: 0.1",
    )
    assert "rows.jsonl, 20 rows" in cli.passes("dataset.max_unusable=0.1", recipe=None)
    shown = cli.passes(recipe=with_rewards("accuracy: 1.0", [*golds, bad]))  # 1 of 21 is below 5 %
    assert "note       rows.jsonl: 1 of 21 rows left out, their gold answers do not earn the full marks" in shown


FORM = "note       a wrong answer as"


@pytest.mark.parametrize(
    ("rewards", "said"),
    [
        ("accuracy: 1.0\n  format: 0.2", None),
        (
            "accuracy: 1.0\n  format: 0.25",
            r"a wrong answer as '\boxed{ANSWER}' earns 25% of what a right one adds (by format)",
        ),
        ("accuracy: 2.0\n  format: 0.25", None),
        ("accuracy: 1.0\n  format: {weight: 0.9, only_if: accuracy}", None),
        ("accuracy: 1.0\n  format: 0.15\n  length: 0.1", "earns 25% of what a right one adds (by format, length)"),
        ("accuracy: 0.0\n  format: 1.0", None),  # no share of nothing
    ],
)
def test_form_that_pays_too_much_is_warned_about(cli, rewards, said):
    shown = cli.passes("grpo.max_completion_length=512", recipe=with_rewards(rewards))
    assert (FORM in shown) is (said is not None)
    assert said is None or said in shown


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        (
            "variety",
            "rewards.variety.only_if: found 'variety'; write another reward, one that has no only_if itself: acc",
        ),
        ("accurate", "rewards.variety.only_if: found 'accurate'; write another reward"),
        ("format", "rewards.variety.only_if: found 'format'; write another reward"),
    ],
)
def test_a_gate_that_is_none(cli, gate, said):
    rewards = (
        f"accuracy: 1.0\n  format: {{weight: 0.1, only_if: accuracy}}\n  variety: {{weight: 0.1, only_if: {gate}}}"
    )
    assert said in cli.refuses(recipe=with_rewards(rewards))


def test_ten_thousand_rows_are_scanned_whole(cli):
    golds = [str(i) for i in range(10_000)]
    shown = cli.passes(recipe=with_rewards("accuracy: 1.0", golds))
    assert "rows.jsonl, 10000 rows" in shown
