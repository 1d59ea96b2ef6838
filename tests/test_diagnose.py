"""What a history of metrics is said to mean: each kind of silent failure by its own name, and why."""

from dataclasses import replace
from pathlib import Path

import pytest

from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.findings import Facts, facts_of_settings
from grpo_kit.diagnosis.history import STEPS, History
from grpo_kit.diagnosis.notes import notes
from grpo_kit.diagnosis.trends import lately, shift

FACTS = Facts(max_completion_length=8, full_marks={"mine": 1.0}, completions=64, group=8)


def history(means, spread=0.0, flat=1.0, truncated=0.0, **more):
    return [
        {
            "step": step,
            "kit/flat_group_share": flat,
            "kit/truncated_share": truncated,
            "rewards/mine/mean": mean,
            "rewards/mine/std": spread,
            **more,
        }
        for step, mean in enumerate(means, start=1)
    ]


def found(steps, facts=FACTS, evaluations=()):
    return diagnose(History(steps, evaluations), facts)


def only(steps, facts=FACTS, evaluations=()):
    [finding] = found(steps, facts, evaluations)
    return finding


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
    finding = only(history(means, spread or 0.0))
    assert (finding.name, finding.since) == ("no-gradient", 1)
    assert said in finding.describe()


SHARES = ("all_right", "all_wrong", "unread_share", "identical_group_share")


@pytest.mark.parametrize(
    ("shares", "facts", "said", "override"),
    [
        ({"all_wrong": 1.0, "unread_share": 0.1}, {}, "too hard, or the reward never pays", None),
        ({"all_wrong": 1.0, "unread_share": 0.95}, {}, "no answer is found in any completion", None),
        ({"all_right": 1.0}, {}, "every completion is right: the rows are too easy", None),
        ({"all_right": 1.0, "identical_group_share": 1.0}, {"temperature": 1.0}, "the rows are too easy", None),
        ({"identical_group_share": 1.0}, {"temperature": 0.1}, "the same text", "grpo.temperature=1.0"),
        ({"identical_group_share": 1.0}, {"temperature": 1.0}, "the policy collapsed", "grpo.learning_rate=2e-06"),
        ({"all_right": 0.4, "all_wrong": 0.6}, {}, "each prompt is solved always or never", None),
    ],
)
def test_why_there_is_no_gradient(shares, facts, said, override):
    metrics = {f"kit/{key}": shares.get(key, 0.0) for key in SHARES}
    finding = only(history([0.4] * 4, learning_rate=1e-5, **metrics), replace(FACTS, **facts))
    assert finding.name == "no-gradient"
    assert said in finding.cause
    assert finding.override == override


def test_a_policy_that_was_right_and_is_wrong_has_collapsed():
    before = history([0.6] * 4, 0.4, flat=0.0, learning_rate=1e-5, **{"kit/accuracy": 0.6, "kit/all_wrong": 0.0})
    after = history([0.0] * 7, 0.0, learning_rate=1e-5, **{"kit/accuracy": 0.0, "kit/all_wrong": 1.0})[4:]
    finding = only(before + after)
    assert finding.since == 5
    assert "though 60% were right before: the policy has collapsed" in finding.cause
    assert finding.override == "grpo.learning_rate=2e-06"  # a fifth


def test_rewards_equal_inside_groups_are_named_though_the_batch_looks_healthy():
    finding = only(history([0.4, 0.6, 0.5], 0.48, reward_std=0.48))
    assert finding.evidence == "every group is flat, though reward_std over the batch is 0.48"


def test_all_completions_cut_and_flat_are_two_findings_with_one_remedy():
    findings = found(history([0.0] * 3, truncated=1.0))
    assert [finding.name for finding in findings] == ["no-gradient", "truncation"]
    assert "all completions are cut before their end" in findings[0].cause
    assert {finding.override for finding in findings} == {"grpo.max_completion_length=32"}


def test_a_finding_dates_from_where_it_began_to_last():
    before = history([0.5] * 3, 0.5, flat=0.5)
    after = [{**metrics, "step": step} for step, metrics in enumerate(history([0.0] * 3), start=4)]
    assert only(before + after).since == 4
    assert not found(before + after[: STEPS - 1])  # too early to speak
    assert not found(
        after + [{**metrics, "step": step} for step, metrics in enumerate(before, start=7)]
    )  # it went away


def test_all_completions_cut():
    finding = only(history([0.5] * 3, 0.5, flat=0.5, truncated=1.0))
    assert finding.evidence == "100% of completions hit max_completion_length 8"
    assert finding.override == "grpo.max_completion_length=32"
    assert not found(history([0.5] * 3, 0.5, flat=0.5, truncated=0.9))


def test_the_token_budget_that_would_cut_5_percent():
    # 20 % reach the limit of 100, half of all 40: S(t) = 0.5 exp(-r (t - 40)), r = ln(0.5 / 0.2) / 60 = 0.01527;
    # S = 0.05 where t = 40 + ln(10) / r = 40 + 150.8 = 190.8, the next multiple of 8 is 192
    steps = history([0.5] * 10, 0.5, flat=0.5, truncated=0.2, **{"kit/tokens_p50": 40})
    finding = only(steps, replace(FACTS, max_completion_length=100))
    assert finding.override == "grpo.max_completion_length=192"
    assert finding.cause == "their answers are cut off and earn nothing"
    rising = history([0.5] * 10, 0.5, flat=0.5, truncated=0.01) + [
        {**metrics, "step": 10 + metrics["step"]} for metrics in history([0.5] * 10, 0.5, flat=0.5, truncated=0.2)
    ]
    assert only(rising).evidence == "20% of completions hit max_completion_length 8, 1% at first"
    assert only(rising).cause == "they grow into the limit"


def test_a_step_without_a_rollout_of_its_own_says_nothing():
    shared = [{"step": 3, "loss": 0.0}]
    assert not found(history([0.0] * 2) + shared)
    assert not found([])


def test_a_shift_by_hand():
    # ten times 1, then ten times 3, with deviations of 0.1: error sqrt(2 * 0.01 / 9) = 0.047, 2 is 42 of them
    def column(values):
        return History({"step": step, "x": value} for step, value in enumerate(values, 1)).column("x")

    values = [0.9, 1.1] * 5 + [2.9, 3.1] * 5
    found = shift(column(values))
    assert (found.before, found.now, found.since) == (pytest.approx(1.0), pytest.approx(3.0), 10)
    assert shift(column(values[:-1])) is None  # too early
    assert shift(column([0.9, 1.1] * 10)) is None
    assert lately(column(values), 2) == 3.0
    assert lately(column([]), 2) is None


def test_foreign_values_are_passed_over():
    foreign = ["text", None, True, float("nan"), 10**400, [1], {"a": 1}]
    steps = [{"step": step, "reward": value, "grad_norm": 0.5} for step, value in enumerate(foreign, 1)]
    seen = History(steps, [{"step": 1}, {"step": "2", "accuracy": 1}, {"step": 3, "accuracy": 0.5, "ci95": ["a", 1]}])
    assert seen.column("reward").values == []
    assert [(one.step, one.half) for one in seen.evaluations] == [(3, None)]
    assert not diagnose(seen, FACTS)


def test_settings_of_a_foreign_type_count_as_unknown():
    known = {"steps_per_generation": 8, "gradient_accumulation_steps": 4, "num_iterations": 2, "beta": 0}
    sized = facts_of_settings({"generation_batch_size": 64, "num_generations": 8}, {})
    assert (sized.groups, sized.trials) == (8, pytest.approx(16.84, abs=0.01))  # 64 / (1 + 7 * 0.4)
    assert facts_of_settings(known, {}).updates == 4  # 8 micro-batches twice, 4 a step
    assert facts_of_settings(known, {}).beta == 0.0
    foreign = facts_of_settings({"beta": "0.1", "max_completion_length": [3], "num_iterations": None}, {})
    assert (foreign.beta, foreign.max_completion_length, foreign.updates) == (None, 0, None)


def test_what_is_no_fault_is_a_note():
    steps = [{**metrics, "clip_ratio/region_mean": 0.0} for metrics in history([0.5] * 10, 0.5, flat=0.5)]
    said = list(
        notes(History(steps), replace(FACTS, beta=0.0, updates=1.0, held_out=False, goal="mine", weights={"mine": 1}))
    )
    assert "KL is not computed: grpo.beta is 0" in said
    assert "the clip share is 0 by construction: one update per rollout" in said
    assert "no held-out rows (eval_dataset), so overfitting cannot be seen" in said
    assert "one reward alone: farmed-reward and dominating-reward need another" in said
    again = list(notes(History(steps), replace(FACTS, updates=4.0)))
    assert "next to no token is clipped in 4 updates per rollout: each of them is small" in again


def test_a_reward_that_leaves_the_same_share_unjudged_from_the_start_is_a_note():
    shares = {"kit/rewards/mine/unscored_share": 0.5, "kit/rewards/mine/timeout_share": 0.0}
    steps = history([0.5] * 30, 0.5, flat=0.5, **shares)
    assert not found(steps)
    assert any("mine leaves 50% of completions unjudged" in note for note in notes(History(steps), FACTS))


def test_each_finding_has_a_heading_in_the_documentation():
    from grpo_kit.diagnosis.diagnose import NAMES

    text = (Path(__file__).parents[1] / "docs" / "doctor.md").read_text()
    assert [line.removeprefix("### ") for line in text.splitlines() if line.startswith("### ")] == list(NAMES)
