"""What judged completions say of the groups that a run would meet: closed forms by hand, and simulation."""

import random
from dataclasses import astuple
from statistics import fmean

import pytest
from judged_rows import ACCURACY, FORMAT, reward, row

from grpo_kit.evaluation.difficulty import difficulty_of, flat_groups, histogram, majority_right
from grpo_kit.rewards.scoring import total_reward
from grpo_kit.stats import is_flat

REWARDS = [ACCURACY, FORMAT]


def flat(rows, group=4):
    return flat_groups(rows, REWARDS, ACCURACY, group)


def test_flat_groups_by_hand():
    # 5 of 8 wrong with reward 0, 3 right with reward 1: groups of 4 of one kind are C(5,4) / C(8,4) = 5 / 70
    found = flat([row([1, 1, 1, 0, 0, 0, 0, 0])])
    assert found.share == found.all_wrong == pytest.approx(5 / 70)
    assert found.all_right == found.other == 0


def test_a_group_that_differs_in_form_alone_is_not_flat():
    # all right, half of them formatted: totals 1.5 and 1, so flat are C(4,4) + C(4,4) of C(8,4)
    found = flat([row([1] * 8, formats=[1] * 4 + [0] * 4)])
    assert found.share == found.all_right == pytest.approx(2 / 70)


def test_why_groups_are_flat():
    cut = row([0] * 4, truncated=[True] * 4)
    unread = row([0] * 4, texts=["", "I do not know.", r"\boxed{", "<think>7"])
    mixed = row([0] * 4, truncated=[True, True, False, False])
    assert (flat([cut]).all_truncated, flat([unread]).all_unreadable, flat([mixed]).all_wrong) == (1, 1, 1)
    found = flat([cut, unread, mixed, row([1] * 4)])
    assert astuple(found) == (1, 0.25, 0.25, 0.25, 0.25, 0)


def test_right_and_wrong_with_the_same_total_is_another_reason():
    # the wrong ones have the form that is worth as much: 0 + 1 * 1 = 1 + 0
    worth_as_much = reward("format", 1.0)
    both = row([1, 1, 0, 0], formats=[0, 0, 1, 1])
    found = flat_groups([both], [ACCURACY, worth_as_much], ACCURACY, 4)
    assert (found.share, found.other) == (1, 1)


def test_larger_groups_than_there_are_completions_are_drawn_with_replacement():
    # 3 of 4 wrong: (3/4)^8 + (1/4)^8
    found = flat([row([1, 0, 0, 0])], group=8)
    assert found.share == pytest.approx(0.75**8 + 0.25**8)


def test_the_expected_share_of_flat_groups_is_that_of_drawn_groups():
    draw = random.Random(0)
    for _ in range(20):
        n = 8
        one = row(
            [draw.choice([0, 0, 1, None]) for _ in range(n)],
            formats=[draw.choice([0, 1]) for _ in range(n)],
            truncated=[draw.random() < 0.3 for _ in range(n)],
        )
        found = flat([one], group=3)
        pairs = zip(one.scores["accuracy"], one.scores["format"], strict=True)
        totals = [total_reward(scores, REWARDS) for scores in pairs]
        drawn = [is_flat(draw.sample(totals, 3)) for _ in range(4000)]
        assert abs(fmean(drawn) - found.share) < 3 * (0.25 / 4000) ** 0.5
        assert sum(astuple(found)[1:]) == pytest.approx(found.share)


def test_an_unjudged_completion_is_equal_to_anything():
    nothing = row([None] * 4, formats=[None] * 4)
    assert flat([nothing]).share == 1
    assert flat([row([1, 1, 1, None], formats=[1, 1, 1, None])]).share == 1


def test_the_majority_decides():
    assert majority_right(row([1, 1, 0], texts=["It is 7.", "The answer is 7.", "The answer is 8."]), ACCURACY) == 1
    assert majority_right(row([1, 0, 0], texts=["7", "8", "8"]), ACCURACY) == 0
    assert majority_right(row([1, 0], texts=["7", "8"]), ACCURACY) == 0.5  # a tie
    assert (
        majority_right(row([1, 0, 0], texts=["7", "I do not know.", "I do not know."]), ACCURACY) == 1
    )  # no answer, no vote
    assert majority_right(row([0, 0], texts=["", "I do not know."]), ACCURACY) == 0
    assert majority_right(row([None, None]), ACCURACY) is None


def test_all_numbers_of_a_small_data_set_by_hand():
    rows = [
        row([1, 1, 1, 1], formats=[1, 1, 1, 0], number=0, texts=["a"] * 4),
        row([1, 0, 0, 0], formats=[1, 1, 0, 0], leniently=[1, 1, 0, 0], truncated=[False, False, True, True], number=1),
    ]
    found = difficulty_of(rows, REWARDS, ACCURACY, 4)
    assert (found.prompts, found.samples, found.judged, found.accuracy) == (2, 4, 2, 0.625)
    # pass@2: (1 + 1 - C(3,2)/C(4,2)) / 2 = (1 + 0.5) / 2
    assert {k: value for k, (value, _) in found.pass_at.items()} == {1: 0.625, 2: 0.75, 4: 1.0}
    assert found.histogram == {"0 of 4": 0, "1 of 4": 1, "2 of 4": 0, "3 of 4": 0, "4 of 4": 1}
    # groups of 4: the first prompt is all right, the second never alike; larger ones: at least as many
    assert found.useful == {4: 0.5, 8: 0.5, 16: 0.5}
    assert found.truncated_share == 0.25
    # 8 completions: 5 formatted; 1 right without; 1 formatted but wrong; 1 right but for its form
    form = found.form
    assert (form.formatted, form.right_unformatted, form.formatted_wrong) == (0.625, 0.125, 0.125)
    assert form.right_unread == 0.125
    assert found.duplicate_share == pytest.approx((0.75 + 0) / 2)
    assert found.rewards == {"accuracy": 0.625, "format": 0.625}


def test_a_larger_group_is_never_foretold_to_be_less_useful():
    found = difficulty_of([row([1, 1, 1, 1, 1, 1, 1, 0])], REWARDS, ACCURACY, 4)
    assert found.useful[4] <= found.useful[8] <= found.useful[16]


def test_nothing_judged_has_no_accuracy():
    found = difficulty_of([row([None, None])], REWARDS, ACCURACY, 2)
    assert (found.accuracy, found.ci95, found.pass_at, found.useful, found.majority) == (None, None, {}, {}, None)
    assert found.unscored["accuracy"] == 1


def test_a_histogram_of_many_completions_has_tenths():
    found = histogram([(0, 20), (1, 20), (19, 20), (20, 20)], 20)
    assert (found["never"], found["0.0 to 0.1"], found["0.9 to 1.0"], found["always"]) == (1, 1, 1, 1)
    assert sum(found.values()) == 4
