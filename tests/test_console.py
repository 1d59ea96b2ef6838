from pathlib import Path

from grpo_kit.console import closing_lines, evaluation_lines, step_line
from grpo_kit.evaluation.evaluate import Evaluation


def test_the_step_line_has_what_matters():
    metrics = {
        "step": 7, "reward": 0.912, "kit/accuracy": 0.625, "kit/flat_group_share": 0.25, "kit/all_right": 0.125,
        "kit/all_wrong": 0.125, "kit/truncated_share": 0.0, "completions/mean_length": 11.6, "grad_norm": 0.4321,
        "kit/seconds/step": 0.512,
    }  # fmt: skip
    assert step_line(metrics, 120) == (
        "step   7/120  reward 0.912  accuracy 0.62  flat 0.25 (all right 0.12, all wrong 0.12)  truncated 0.00  "
        "tokens 12  grad norm 0.432  0.51 s/step"
    )


def test_a_missing_metric_shows_as_nan_not_as_a_number():
    assert "reward nan" in step_line({"step": 1, "kit/accuracy": 0.5}, 2)


def test_a_step_without_a_rollout_of_its_own_says_so():
    line = step_line({"step": 2, "grad_norm": 0.5, "kit/seconds/step": 1.0}, 10)
    assert line == "step  2/10  the same completions once more  grad norm 0.5  1.00 s/step"


def evaluation(**more):
    given = {
        "step": 3, "data": "d", "goal": "accuracy", "accuracy": 0.5, "ci95": (0.4, 0.6), "n": 10, "samples": 2,
        "mean_tokens": 7.0, "truncated_share": 0.0, "rewards": {"accuracy": 0.5, "format": 0.5},
        "unscored": {"accuracy": 0.0, "format": 0.25}, "pass_rates": [0.5] * 10,
        "example": {"prompt": "p", "completion": "c", "answer_read": None, "gold": None, "rewards": {}}, **more,
    }  # fmt: skip
    return Evaluation(**given)


def test_a_reward_whose_mean_happens_to_be_the_accuracy_is_shown():
    assert evaluation_lines(evaluation())[0] == (
        "held-out after step 3: accuracy 0.500 (95% interval 0.400 to 0.600, 10 prompts x 2)  format 0.500  "
        "tokens 7  truncated 0.00  not judged by format 0.25"
    )


def test_the_mean_of_a_goal_with_partial_marks_is_shown():
    assert "  accuracy 0.700  format" in evaluation_lines(evaluation(rewards={"accuracy": 0.7, "format": 0.5}))[0]


def test_another_goal_does_not_borrow_the_name_of_the_accuracy_reward():
    gain = {"value": 0.4, "ci95": (0.1, 0.7), "rows_needed": None}
    before, after = ({"accuracy": a, "rewards": {"accuracy": b, "format": a}} for a, b in ((0.2, 0.9), (0.6, 0.8)))
    summary = {
        "eval_before": before,
        "eval_after": after,
        "gain": gain,
        "status": "done",
        "reason": None,
        "verdict": "learned",
        "steps": 50,
        "best": {"step": 40, "accuracy": 0.7, "ci95": (0.5, 0.9)},
    }
    assert "best         0.700 after step 40, kept in runs/x/best" in closing_lines(summary, "format", Path("runs/x"))
    assert closing_lines(summary, "format", Path("runs/x"))[:3] == [
        "right (format) 0.200 -> 0.600",
        "accuracy     0.900 -> 0.800",
        "gain         +0.400 (95% interval +0.100 to +0.700, paired by prompt)",
    ]
