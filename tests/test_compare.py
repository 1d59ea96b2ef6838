"""Is B better, and where from: by hand, and on models that are known to be equal."""

import numpy as np
import pytest

from grpo_kit.errors import RecipeError
from grpo_kit.evaluation.row_records import RowResult
from grpo_kit.measure.compare import compare_rows, split_gain


def result(right, leniently=None, truncated=None):
    n = len(right)
    return RowResult(
        [bool(x) for x in right],
        [bool(x) for x in leniently or right],
        [bool(x) for x in truncated or [0] * n],
        [5] * n,
    )


def total(parts):
    return parts.truncation + parts.answers + parts.form


def test_a_gain_that_is_form_alone():
    before = [result([0, 0], leniently=[1, 1])] * 10
    parts = split_gain(before, [result([1, 1])] * 10)
    assert (parts.form, parts.answers, parts.truncation) == (pytest.approx(1), pytest.approx(0), pytest.approx(0))


def test_a_gain_that_is_fewer_truncations_alone():
    before = [result([1, 0], truncated=[0, 1])] * 10
    parts = split_gain(before, [result([1, 1])] * 10)
    assert (parts.truncation, parts.answers, parts.form) == (pytest.approx(0.5), pytest.approx(0), pytest.approx(0))


def test_a_gain_that_is_better_answers_alone():
    parts = split_gain([result([1, 0])] * 10, [result([1, 1])] * 10)
    assert (parts.answers, parts.form, parts.truncation) == (pytest.approx(0.5), pytest.approx(0), pytest.approx(0))


def test_shapley_values_by_hand():
    # before: half of 4 came to an answer, half of these right, none of these in form: 0.5 * 0.5 * 0 = 0
    # after: all came, all right, all in form: 1. The effects over the 6 orders of (came, right, form):
    # came first: 0, 0; came second: after right 0, after form 0.25; came last: 0.5, 0.5      -> 1.25 / 6
    # right is the same by symmetry -> 1.25 / 6; form: the rest, (0.25 + 0.25 + 0.5 + 0.5 + 1 + 1) / 6 = 3.5 / 6
    before = [result([0, 0, 0, 0], leniently=[1, 0, 0, 0], truncated=[0, 0, 1, 1])]
    parts = split_gain(before, [result([1, 1, 1, 1])])
    assert (parts.truncation, parts.answers) == (pytest.approx(1.25 / 6), pytest.approx(1.25 / 6))
    assert parts.form == pytest.approx(3.5 / 6)


def test_a_completion_that_is_right_although_cut_came_to_its_answer():
    parts = split_gain([result([0])], [result([1], truncated=[1])])
    assert (parts.truncation, parts.answers) == (0, pytest.approx(1))


def test_the_parts_add_up_whatever_the_rows():
    draw = np.random.default_rng(0)
    for _ in range(200):
        sides = []
        for _ in range(2):
            rows = []
            for _ in range(draw.integers(1, 6)):
                n = draw.integers(1, 5)
                leniently = draw.random(n) < draw.choice([0.0, 0.5, 1.0])
                right = leniently & (draw.random(n) < draw.choice([0.0, 0.5, 1.0]))
                rows.append(result(right.tolist(), leniently.tolist(), (draw.random(n) < 0.4).tolist()))
            sides.append(rows)
        gain = np.mean([r.pass_rate for r in sides[1]]) - np.mean([r.pass_rate for r in sides[0]])
        assert total(split_gain(*sides)) == pytest.approx(gain)


def rows_of(rates, samples, draw):
    return {f"{at}": result((draw.random(samples) < p).tolist()) for at, p in enumerate(rates)}


@pytest.mark.parametrize("samples", [1, 4])
@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
def test_identical_models_are_seldom_different(p, samples):
    draw = np.random.default_rng(7)
    wrong = 0
    for _ in range(300):
        found = compare_rows(rows_of([p] * 100, samples, draw), rows_of([p] * 100, samples, draw))
        wrong += found.verdict != "no difference that these prompts can tell"
    assert wrong <= 18


def test_a_better_model_is_found_better_with_all_its_numbers():
    draw = np.random.default_rng(1)
    a, b = rows_of([0.3] * 200, 4, draw), rows_of([0.7] * 200, 4, draw)
    found = compare_rows(a, {**b, "only b": result([1])})
    assert (found.prompts, found.left_out, found.test) == (200, 1, "paired bootstrap")
    assert found.verdict == "B is better"
    assert found.difference.value == pytest.approx(found.accuracy_b - found.accuracy_a)
    assert found.difference.ci95[0] < 0.4 < found.difference.ci95[1]
    assert found.won > found.lost
    assert compare_rows(b, a).verdict == "A is better"


def test_one_completion_each_is_judged_by_mcnemar():
    # 9 prompts won, 1 lost of 20: 2 * (1 + 10) / 2^10
    a = {f"{at}": result([at >= 9]) for at in range(20)}
    b = {f"{at}": result([at != 19]) for at in range(20)}
    found = compare_rows(a, b)
    assert (found.test, found.won, found.lost) == ("McNemar", 9, 1)
    assert found.difference.p == pytest.approx(22 / 1024)


def test_nothing_in_common_is_an_error():
    with pytest.raises(RecipeError, match="no prompt in common"):
        compare_rows({"a": result([1])}, {"b": result([1])})
