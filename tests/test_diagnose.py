"""What a history of metrics is said to mean: each kind of silent failure by its own name."""

import pytest

from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.findings import STEPS, Facts

FACTS = Facts(max_completion_length=8, full_marks={"mine": 1.0})


def history(means, spread=0.0, flat=1.0, truncated=0.0):
    return [
        {
            "step": step,
            "kit/flat_group_share": flat,
            "kit/truncated_share": truncated,
            "rewards/mine/mean": mean,
            "rewards/mine/std": spread,
        }
        for step, mean in enumerate(means, start=1)
    ]


@pytest.mark.parametrize(
    ("means", "spread", "said"),
    [
        ([1.0] * 4, 0.0, "mine gives always full marks"),
        ([0.0] * 4, 0.0, "mine is always zero"),
        ([0.4] * 4, 0.0, "mine is always 0.4"),
        ([0.4, 0.5, 0.4, 0.3], 0.3, "mine is equal inside every group, though it differs between groups"),
        ([0.4, 0.5, 0.4, 0.3], 0.0, "mine is equal inside every group"),  # batches of one group each
        ([0.5] * 4, 2.4e-7, "mine is numerically flat: 0.5, give or take 2e-07, which is rounding"),
        ([500.0] * 4, 1e-4, "mine is numerically flat: 500"),  # relative to its size
        ([None] * 4, None, "mine judges nothing"),
    ],
)
def test_how_a_reward_is_flat(means, spread, said):
    [finding] = diagnose(history(means, spread or 0.0), FACTS)
    assert (finding.name, finding.since) == ("no gradient", 1)
    assert said in finding.describe()


def test_a_finding_dates_from_where_it_began_to_last():
    before = history([0.5] * 3, 0.5, flat=0.5)
    after = [{**metrics, "step": step} for step, metrics in enumerate(history([0.0] * 3), start=4)]
    [finding] = diagnose(before + after, FACTS)
    assert finding.since == 4
    assert not diagnose(before + after[: STEPS - 1], FACTS)  # too early to speak
    assert not diagnose(after + before, FACTS)  # it went away


def test_all_completions_cut():
    [finding] = diagnose(history([0.5] * 3, 0.5, flat=0.5, truncated=1.0), FACTS)
    assert finding.evidence == "100% of completions hit max_completion_length 8"
    assert finding.change == "raise grpo.max_completion_length, to 32 for a start"
    assert not diagnose(history([0.5] * 3, 0.5, flat=0.5, truncated=0.9), FACTS)


def test_a_step_without_a_rollout_of_its_own_says_nothing():
    shared = [{"step": 2, "loss": 0.0}]
    assert not diagnose(history([0.0] * 2) + shared, FACTS)
    assert not diagnose([], FACTS)
