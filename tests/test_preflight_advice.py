"""Verdict and recipe patch from numbers alone."""

from dataclasses import replace

import pytest
from judged_rows import ACCURACY, FORMAT, row

from grpo_kit.evaluation.difficulty import difficulty_of
from grpo_kit.preflight.advice import Circumstances, decide

ABOUT = Circumstances(
    max_completion_length=100, prompts_per_rollout=4, temperature=1.0, rows=100, rates=[], rate_file="r.jsonl"
)


def decided(judged, **about):
    found = difficulty_of(judged, [ACCURACY, FORMAT], ACCURACY, 4)
    rates = [rate for one in judged if (rate := one.pass_rate(ACCURACY)) is not None]
    return decide(found, replace(ABOUT, rates=rates, **about))


def mixed(right, n=8, **more):
    """A prompt of which so many of n completions are right."""
    return row([1] * right + [0] * (n - right), **more)


def keys(decision):
    return {change.key: change.value for change in decision.changes}


def test_a_model_that_is_right_half_of_the_time_is_a_go():
    found = decided([mixed(4)] * 20)
    assert (found.verdict, found.changes, found.reasons) == ("go", [], [])


def test_nothing_right_is_a_stop_without_a_patch():
    found = decided([mixed(0)] * 20)
    assert (found.verdict, found.changes) == ("stop", [])
    assert "nothing at all was right in 20 prompts x 8" in found.reasons[0]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"leniently": [1] * 8}, "100% of completions end at the gold answer, but not where"),
        ({"truncated": [True] * 8}, "most groups are cut before an answer"),
        ({"texts": [""] * 8}, "no answer could be read"),
        ({}, "other data or another model"),
    ],
)
def test_a_stop_says_what_the_wrong_ones_are(more, why):
    assert any(why in reason for reason in decided([mixed(0, **more)] * 20).reasons)


def test_too_easy_but_mixed_keeps_the_prompts_of_middling_difficulty():
    found = decided([mixed(8)] * 80 + [mixed(6)] * 20)  # 0.95 right
    assert found.verdict == "adjust"
    assert keys(found) == {"dataset.pass_rate": [0.1, 0.9], "dataset.pass_rate_file": "r.jsonl"}
    assert "95% of the time: too easy" in found.reasons[0]
    assert found.changes[1].reason == "it keeps 20 prompts"


def test_what_was_not_measured_is_said():
    found = decided([mixed(8)] * 80 + [mixed(6)] * 20, rows=1000)
    assert found.changes[1].reason == "it keeps 20 prompts of the 100 measured; 900 more are not"


def test_too_easy_throughout_is_a_stop():
    found = decided([mixed(8)] * 100)
    assert (found.verdict, found.changes) == ("stop", [])
    assert "too easy" in found.reasons[0]


def test_too_hard_but_for_some_keeps_those():
    found = decided([mixed(0)] * 90 + [mixed(4)] * 10)  # 0.05 right
    assert found.verdict == "adjust"
    assert "too hard" in found.reasons[0]


def test_mostly_flat_groups_at_a_middling_accuracy_are_left_out():
    found = decided([mixed(8)] * 40 + [mixed(0)] * 40 + [mixed(4)] * 20)
    assert found.verdict == "adjust"
    assert "of groups are flat" in found.reasons[0]
    assert "dataset.pass_rate" in keys(found)


def test_more_prompts_are_asked_for_where_too_few_would_be_kept():
    found = decided([mixed(8)] * 90 + [mixed(4)] * 10, prompts_per_rollout=16, rows=1000)
    assert (found.verdict, found.changes) == ("adjust", [])
    assert "--rows 320" in found.reasons[0]  # 2 x 16 prompts at 10 of 100


def test_not_enough_rows_for_a_single_batch_is_a_stop():
    found = decided([mixed(8)] * 90 + [mixed(4)] * 10, prompts_per_rollout=16, rows=100)
    assert found.verdict == "stop"


def cut_half(longer_tokens, still_cut=False):
    half = [True] * 4 + [False] * 4
    longer = [mixed(4, tokens=[longer_tokens] * 8, truncated=half if still_cut else None)] * 20
    about = {"longer": difficulty_of(longer, [ACCURACY, FORMAT], ACCURACY, 4), "longer_limit": 400}
    return decided([mixed(4, truncated=half)] * 20, **about)


def test_a_budget_that_cuts_half_is_raised_to_what_would_be_enough():
    found = cut_half(181)
    assert (found.verdict, keys(found)) == ("adjust", {"grpo.max_completion_length": 184})  # the next multiple of 8
    assert found.changes[0].override() == "grpo.max_completion_length=184"
    assert "50% of completions are cut at 100 tokens" in found.changes[0].reason


def test_a_model_that_does_not_stop_is_not_given_more_tokens():
    found = cut_half(400, still_cut=True)
    assert (found.verdict, found.changes) == ("adjust", [])
    assert "and 50% at 400: the model seldom stops by itself" in found.reasons[0]


def test_too_cold_a_sampler_is_warmed():
    alike = mixed(4, texts=["The answer is 4."] * 4 + ["The answer is 5."] * 4)
    assert keys(decided([alike] * 20, temperature=0.3)) == {"grpo.temperature": 1.0}
    assert decided([alike] * 20, temperature=1.0).verdict == "go"


def test_a_budget_far_too_small_is_raised_to_the_longest_that_was_looked_at():
    mostly = [mixed(4, tokens=[400] * 8, truncated=[True] * 2 + [False] * 6)] * 20
    about = {"longer": difficulty_of(mostly, [ACCURACY, FORMAT], ACCURACY, 4), "longer_limit": 400}
    found = decided([mixed(0, truncated=[True] * 8)] * 20, **about)
    assert (found.verdict, keys(found)) == ("adjust", {"grpo.max_completion_length": 400})
    assert "400 would cut about 25%" in found.changes[0].reason


def test_a_look_at_few_prompts_overrules_nothing():
    few = [mixed(0, tokens=[90] * 8)] * 3
    about = {"longer": difficulty_of(few, [ACCURACY, FORMAT], ACCURACY, 4), "longer_limit": 400}
    rows = [mixed(0, truncated=[True] * 8)] * 98 + [mixed(1), mixed(2)]
    assert decided(rows, **about).verdict == "adjust"


def test_what_is_cut_and_left_out_of_the_loss_teaches_nothing():
    rows = [mixed(4, truncated=[True] * 8)] * 20
    assert decided(rows, masked=True).verdict == "stop"
    assert decided(rows).verdict == "adjust"


def test_a_reward_without_full_marks_may_still_teach():
    found = decided([row([0.1 * at for at in range(8)])] * 20)
    assert (found.verdict, found.changes) == ("go", [])
    assert "gave full marks to none of 20 prompts x 8" in found.reasons[0]


def test_a_cold_sampler_says_nothing_of_difficulty():
    easy = mixed(8, texts=["The answer is 4."] * 8)
    found = decided([easy] * 20, temperature=0.05)
    assert (found.verdict, keys(found)) == ("adjust", {"grpo.temperature": 1.0})


def test_flat_groups_that_no_choice_of_prompts_would_mend_are_a_stop():
    found = decided([row([1, 1, 1, 1, 0, 0, 0, 0], formats=[0, 0, 0, 0, 2, 2, 2, 2])] * 20, kept_flat=1.0)
    assert found.verdict == "stop"
    assert "are the rewards constant, or do they cancel each other?" in found.reasons[0]


def test_few_prompts_are_said_to_be_few():
    assert decided([mixed(4)] * 3).reasons == ["only 3 prompts were sampled, so all this is rough: give more --rows"]


def test_nothing_judged_is_a_stop():
    found = decided([row([None] * 8)] * 4)
    assert found.verdict == "stop"
    assert "no completion could be judged" in found.reasons[0]


def test_overrides_are_one_word_for_a_shell():
    found = decided([mixed(8)] * 80 + [mixed(6)] * 20)
    assert found.changes[0].override() == "dataset.pass_rate=[0.1,0.9]"
