import random
from statistics import fmean

import pytest

from grpo_kit.stats import accuracy_interval, is_flat, paired_gain, rows_that_would_tell, wilson


def test_wilson_against_the_formula_by_hand():
    # p = 0.5, n = 10, z = 1.96: centre 0.5, half = sqrt(0.25/10 + 3.8415/400) * 1.96 / (1 + 3.8415/10)
    #   = sqrt(0.025 + 0.0096037) * 1.96 / 1.38415 = 0.186021 * 1.41603 = 0.263411
    low, high = wilson(0.5, 10)
    assert (low, high) == (pytest.approx(0.2366, abs=1e-4), pytest.approx(0.7634, abs=1e-4))


def test_completions_of_a_prompt_that_always_agree_count_as_one():
    # half of 100 prompts always right, half always wrong: 4 samples each tell no more than 1
    rates = [1.0] * 50 + [0.0] * 50
    four, one = accuracy_interval(rates, 4), accuracy_interval(rates, 1)
    assert four == pytest.approx(one, abs=0.002)


def test_independent_completions_all_count():
    # every prompt at 0.5: no variance between prompts, so 100 x 4 completions are 400 independent ones
    assert accuracy_interval([0.5] * 100, 4) == pytest.approx(wilson(0.5, 400))


@pytest.mark.parametrize(("rates", "low", "high"), [([0.0] * 8, 0.0, 0.33), ([1.0] * 8, 0.67, 1.0)])
def test_extreme_accuracies_still_have_an_interval(rates, low, high):
    # Wilson at 0 of 8: z^2 / (8 + z^2) = 3.8415 / 11.8415 = 0.3244
    assert accuracy_interval(rates, 4) == (pytest.approx(low, abs=0.01), pytest.approx(high, abs=0.01))


def test_an_interval_of_nothing_is_an_error():
    with pytest.raises(ValueError, match="at least one prompt"):
        accuracy_interval([], 4)


def test_the_accuracy_interval_covers_about_95_percent():
    draw = random.Random(0)
    covered = 0
    for _ in range(4000):
        truth = [draw.betavariate(2, 3) for _ in range(60)]  # mean 0.4, prompts differ
        rates = [fmean(draw.random() < p for _ in range(4)) for p in truth]
        low, high = accuracy_interval(rates, 4)
        covered += low <= 0.4 <= high
    assert 0.93 <= covered / 4000 <= 0.97


def test_paired_gain_by_hand():
    # gains 0.5, 0.5, 0, 0 -> mean 0.25; with +1 and -1 added: mean 1/6,
    # squared deviations 2 * 0.1111 + 2 * 0.0278 + 0.6944 + 1.3611 = 2.3333, variance 2.3333 / 5 = 0.46667,
    # half = 1.95996 * sqrt(0.46667 / 6) = 0.54660
    gain, (low, high) = paired_gain([0.0, 0.5, 1.0, 0.0], [0.5, 1.0, 1.0, 0.0])
    assert gain == 0.25
    assert (low, high) == (pytest.approx(1 / 6 - 0.54660, abs=1e-4), pytest.approx(1 / 6 + 0.54660, abs=1e-4))


def test_a_few_prompts_that_agree_are_not_certain():
    _, (low, _) = paired_gain([0.0, 0.0], [0.25, 0.25])
    assert low < 0


def test_a_model_compared_with_itself_is_seldom_different():
    draw = random.Random(1)
    wrong = 0
    for _ in range(1000):
        truth = [draw.random() for _ in range(100)]
        before, after = ([fmean(draw.random() < p for _ in range(4)) for p in truth] for _ in range(2))
        _, (low, high) = paired_gain(before, after)
        wrong += low > 0 or high < 0
    assert wrong <= 60


def test_unpaired_lists_are_an_error():
    with pytest.raises(ValueError, match="2 and 1 prompts"):
        paired_gain([0.0, 1.0], [1.0])


def test_rows_that_would_tell():
    # half width 0.1 at 100 rows, gain 0.05: the half width must halve, so four times the rows
    assert rows_that_would_tell(0.05, (-0.05, 0.15), 100) == 401
    assert rows_that_would_tell(0.0, (-0.1, 0.1), 100) is None


@pytest.mark.parametrize(
    ("rewards", "flat"),
    [
        ([1.2] * 8, True),
        ([0.1 + 0.2, 0.3, 0.30000001], True),  # float32 rounding
        ([0.5, 0.5000004], True),
        ([0.0, 1e-3], False),
        ([1000.0, 1000.0005], True),  # relative to their size
        ([None, 1.0, 1.0], True),  # an unscored completion does not count
        ([None, None], True),
        ([1.0, 0.0], False),
    ],
)
def test_flat_groups(rewards, flat):
    assert is_flat(rewards) is flat
