"""Is one model better than another, by how much, and where from? Paired by prompt. Pure functions over judged rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from statistics import fmean

from grpo_kit.errors import RecipeError
from grpo_kit.evaluation.row_records import Measurement, RowResult
from grpo_kit.stats import Difference, mcnemar, paired_difference


@dataclass(frozen=True)
class Parts:
    """The three parts of a gain; they add up to it.

    `truncation`: fewer completions cut before their answer; `answers`: more right ones among those that came to one;
    `form`: more of the right ones in the form that the reward asks for.
    """

    truncation: float
    answers: float
    form: float


@dataclass(frozen=True)
class Comparison:
    """B against A on the prompts that were judged for both; `left_out` are those that only one has."""

    prompts: int
    left_out: int
    accuracy_a: float
    accuracy_b: float
    difference: Difference
    test: str
    won: int
    lost: int
    parts: Parts

    @property
    def verdict(self) -> str:
        if self.difference.p >= 0.05:
            return "no difference that these prompts can tell"
        return "B is better" if self.difference.value > 0 else "A is better"


def compare_measurements(a: Measurement, b: Measurement) -> Comparison:
    """Raises RecipeError where the two were judged by different goals, or have no prompt in common."""
    if a.goal != b.goal:
        raise RecipeError(f"A was judged by {a.goal} and B by {b.goal}: measure both with the same goal")
    return compare_rows(a.rows, b.rows)


def compare_rows(a: Mapping[str, RowResult], b: Mapping[str, RowResult]) -> Comparison:
    """Two measurements by the hash of each prompt. Raises RecipeError where they have no prompt in common.

    With one completion of each prompt p is McNemar's, else that of the paired bootstrap over prompts.
    """
    both = [key for key in a if key in b]
    if not both:
        raise RecipeError("A and B have no prompt in common: measure both on the same rows, with the same prompt")
    before, after = [a[key] for key in both], [b[key] for key in both]
    difference = paired_difference([row.pass_rate for row in before], [row.pass_rate for row in after])
    won = sum(y.pass_rate > x.pass_rate for x, y in zip(before, after, strict=True))
    lost = sum(y.pass_rate < x.pass_rate for x, y in zip(before, after, strict=True))
    test = "paired bootstrap"
    if all(len(row.right) == 1 for row in (*before, *after)):
        test = "McNemar"
        difference = Difference(difference.value, difference.ci95, mcnemar(won, lost))
    return Comparison(
        prompts=len(both),
        left_out=len(a.keys() ^ b.keys()),
        accuracy_a=fmean(row.pass_rate for row in before),
        accuracy_b=fmean(row.pass_rate for row in after),
        difference=difference,
        test=test,
        won=won,
        lost=lost,
        parts=split_gain(before, after),
    )


def split_gain(before: Sequence[RowResult], after: Sequence[RowResult]) -> Parts:
    """Where the difference of two accuracies comes from.

    Accuracy is the product of three shares: of completions that came to an answer (were not cut, or are right all the
    same), of right ones among these whatever their form, and of these in the right form. The parts are the Shapley
    values (Shapley 1953) of the three changes: each share's mean effect over all orders in which they may change.
    """
    given = _shares(before), _shares(after)
    # where nothing came so far that a share could be taken of, the other side's says what it would have been
    old, new = _filled(*given), _filled(*reversed(given))
    effects = [0.0, 0.0, 0.0]
    orders = list(permutations(range(3)))
    for order in orders:
        now = list(old)
        for place in order:
            without = now[0] * now[1] * now[2]
            now[place] = new[place]
            effects[place] += (now[0] * now[1] * now[2] - without) / len(orders)
    return Parts(*effects)


def _shares(rows: Sequence[RowResult]) -> list[float | None]:
    """Came to an answer; of these right; of these in form. None for a share of nothing; each prompt counts the same."""
    came, right, formed = 0.0, 0.0, 0.0
    for row in rows:
        weight = 1 / len(row.right) / len(rows)
        came += weight * sum(lenient or not cut for lenient, cut in zip(row.leniently, row.truncated, strict=True))
        right += weight * sum(row.leniently)
        formed += weight * sum(row.right)
    return [came, right / came if came else None, formed / right if right else None]


def _filled(own: Sequence[float | None], other: Sequence[float | None]) -> list[float]:
    return [next((share for share in (a, b) if share is not None), 1.0) for a, b in zip(own, other, strict=True)]
