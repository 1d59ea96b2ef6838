import itertools
from statistics import fmean

import numpy as np
import pytest

from grpo_kit.stats import (
    Difference,
    accuracy_interval,
    all_alike,
    is_flat,
    mcnemar,
    paired_difference,
    pass_at_k,
    percentile,
    rows_that_would_tell,
    useful_share,
    wilson,
)


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


@pytest.mark.parametrize("samples", [1, 4, 8])
@pytest.mark.parametrize("mean", [0.2, 0.5, 0.8])
def test_the_accuracy_interval_covers_about_95_percent(mean, samples):
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(1000):
        truth = draw.beta(2 * mean, 2 * (1 - mean), 100)  # prompts differ much
        low, high = accuracy_interval((draw.binomial(samples, truth) / samples).tolist(), samples)
        covered += low <= mean <= high
    assert 930 <= covered <= 970


@pytest.mark.parametrize("samples", [1, 8])
def test_the_interval_of_a_difference_covers_about_95_percent(samples):
    draw = np.random.default_rng(2)
    covered = 0
    for _ in range(1000):
        before = draw.uniform(0.1, 0.8, 100)
        after = before + draw.choice([0.0, 0.2], 100)  # half of the prompts gain 0.2: 0.1 on average
        found = paired_difference(draw.binomial(samples, before) / samples, draw.binomial(samples, after) / samples)
        covered += found.ci95[0] <= 0.1 <= found.ci95[1]
    assert 930 <= covered <= 970


def test_paired_difference_of_a_certain_gain():
    # 100 prompts, each gains 0.5; with +0.5 and -0.5 added the mean is 50 / 102 = 0.4902 and the variance
    # (101 * (0.5 - 0.4902)^2 + (-0.5 - 0.4902)^2) / 101 = (0.0097 + 0.9805) / 101 = 0.009804, so that of the mean is
    # 0.0098 = sqrt(0.009804 / 102): half 1.96 * 0.0098 = 0.0192, skewed downwards
    found = paired_difference([0.0] * 100, [0.5] * 100)
    assert found.value == 0.5
    assert found.ci95 == (pytest.approx(0.4902 - 0.0192, abs=0.006), pytest.approx(0.5, abs=0.006))
    assert found.p == pytest.approx(2 / 4001)


def test_a_few_prompts_that_agree_are_not_certain():
    found = paired_difference([0.0, 0.0], [0.25, 0.25])
    assert found.ci95[0] < 0 < found.p
    assert paired_difference([0.0] * 3, [1.0] * 3).ci95[0] < 0


def test_no_difference_has_a_p_of_one_and_an_interval():
    found = paired_difference([0.5] * 50, [0.5] * 50)
    assert found.p == 1.0
    assert found.ci95[0] < 0 < found.ci95[1]


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("samples", [1, 4, 8])
def test_a_model_compared_with_itself_is_seldom_different(p, samples):
    draw = np.random.default_rng(3)
    wrong = 0
    for _ in range(1000):
        before, after = draw.binomial(samples, p, (2, 100)) / samples
        found = paired_difference(before, after)
        apart = found.ci95[0] > 0 or found.ci95[1] < 0
        wrong += apart
        assert abs(found.p - 0.05) < 0.005 or (found.p < 0.05) == apart  # both say the same
    assert wrong <= 60


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_mcnemar_is_seldom_wrong_on_identical_models(p):
    draw = np.random.default_rng(4)
    wrong = 0
    for _ in range(1000):
        before, after = draw.random((2, 100)) < p
        wrong += mcnemar(int((after & ~before).sum()), int((before & ~after).sum())) < 0.05
    assert wrong <= 60


def test_mcnemar_by_hand():
    # 7 won, 1 lost: 2 * (C(8,0) + C(8,1)) / 2^8 = 2 * 9 / 256 = 0.0703
    assert mcnemar(7, 1) == mcnemar(1, 7) == pytest.approx(18 / 256)
    assert mcnemar(0, 0) == mcnemar(3, 3) == 1.0


def test_unpaired_lists_are_an_error():
    with pytest.raises(ValueError, match="2 and 1 prompts"):
        paired_difference([0.0, 1.0], [1.0])


def test_pass_at_k_is_the_mean_over_all_choices_of_k():
    for n, right, k in [(4, 1, 2), (5, 2, 3), (8, 3, 4), (3, 0, 1), (3, 3, 3)]:
        marks = [True] * right + [False] * (n - right)
        choices = [any(chosen) for chosen in itertools.combinations(marks, k)]
        assert pass_at_k(right, n, k) == pytest.approx(fmean(choices))
    # 1 of 4 right, k = 2: 1 - C(3,2)/C(4,2) = 1 - 3/6
    assert pass_at_k(1, 4, 2) == 0.5


def test_pass_at_k_is_unbiased():
    # p = 0.3, k = 4: 1 - 0.7^4 = 0.7599
    draw = np.random.default_rng(5)
    estimates = [pass_at_k(int(right), 8, 4) for right in draw.binomial(8, 0.3, 20_000)]
    assert abs(fmean(estimates) - 0.7599) < 3 * np.std(estimates) / 20_000**0.5


def test_more_than_there_are_cannot_be_drawn():
    with pytest.raises(ValueError, match="9 of 8"):
        all_alike(3, 8, 9)


@pytest.mark.parametrize("group", [4, 8, 16])
def test_the_useful_share_against_simulation(group):
    rates = [0.0, 0.05, 0.3, 0.5, 0.9, 1.0]
    draw = np.random.default_rng(6)
    right = draw.binomial(group, draw.choice(rates, 100_000))
    useful = ((right > 0) & (right < group)).mean()
    expected = useful_share(rates, group)
    assert abs(useful - expected) < 3 * (expected * (1 - expected) / 100_000) ** 0.5


def test_the_useful_share_by_hand():
    # p = 0.5, G = 4: 1 - 2/16 = 0.875; p = 1: 0
    assert useful_share([0.5, 1.0], 4) == pytest.approx(0.4375)


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


def test_below_zero_at_another_level():
    # half width 0.098 is 1.96 standard errors of 0.05: -0.1 is 2 of them below 0, p = 0.0228
    found = Difference(-0.1, (-0.198, -0.002), 0.05)
    assert found.is_below_zero(0.025)
    assert not found.is_below_zero(0.02)
    assert not Difference(0.1, (0.0, 0.2), 0.05).is_below_zero(0.4)


def test_a_plateau_measured_twenty_times_seldom_looks_like_a_fall():
    draw = np.random.default_rng(8)
    fallen = 0
    for _ in range(40):
        truth = draw.beta(2, 1, 100)
        best = None
        for made in range(1, 21):
            rates = draw.binomial(4, truth) / 4
            if best is None or rates.mean() > best.mean():
                best = rates
            elif paired_difference(best, rates).is_below_zero(0.005 / (made * (made - 1) / 2)):
                fallen += 1
                break
    assert fallen <= 2


@pytest.mark.parametrize(("q", "value"), [(50, 5), (90, 9), (95, 10), (100, 10), (1, 1)])
def test_percentiles_are_nearest_ranks(q, value):
    assert percentile(range(1, 11), q) == value
