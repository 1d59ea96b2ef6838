from grpo_kit.console import step_line


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
