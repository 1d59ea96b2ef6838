"""Can a right answer earn the reward? Every row's gold answer is given to the rewards in the form that pays best.

A row whose own gold answer earns less than full marks teaches nothing but noise. Where that is most rows, the recipe
asks for one form and pays for another, which is the commonest reason for a run that never learns.
"""

from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from grpo_kit.answers import kind_of
from grpo_kit.data.data import SHOWN, Data, rounded_up
from grpo_kit.data.rows import Rows
from grpo_kit.errors import shorten
from grpo_kit.prepare.forms import CHARACTERS_A_TOKEN, FORMS, MOST_FOR_FORM, Form
from grpo_kit.recipe.recipe import DatasetSection, Recipe
from grpo_kit.rewards.rewards import Completions, Reward
from grpo_kit.rewards.scoring import Scorer, total_reward

TRIED = 8
"""Rows, spread over the data, on which the best form is found."""

SCORED_AT_ONCE = 2000
"""Rows, so that memory does not grow with the data."""


@dataclass(frozen=True)
class GoldScan:
    """What the gold answers of a data set are, and in what form they earn the most."""

    kinds: dict[str, int]
    form: Form
    left_out: str | None = None  # which rows, and why
    form_pays: str | None = None

    def describe(self) -> str:
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kinds.items(), key=lambda item: -item[1]))
        return f"{kinds}; best paid as {self.form.shown()}"


def scan_gold(
    recipe: Recipe, rewards: list[Reward], goal: Reward, data: Data, section: DatasetSection, key: str
) -> tuple[Data, GoldScan | None]:
    """The data without rows whose gold answer cannot earn the full marks of `accuracy`, and what was found.

    None where the goal uses no gold answer. Raises RecipeError where more than `max_unusable` of the rows are so.
    Another goal than `accuracy` may want a form that is not among the usual ones: that is only said.
    """
    if not data.rows or "answer" not in data.columns or not goal.uses("answer"):
        return data, None
    scorer = Scorer(rewards, skip_errors=True)
    spread = data.rows[:: max(len(data.rows) // TRIED, 1)][:TRIED]
    form = max(FORMS, key=lambda form: _mean_total(scorer, spread, [form.write(row["answer"]) for row in spread]))
    kept, failed = _split(goal, form, data.rows)
    strict = goal.path.stem == "accuracy"
    if strict and not kept:
        what = "no gold answer earns its full marks in any of the usual forms"
        tried = ", ".join(repr(form.write(data.rows[0]["answer"])) for form in FORMS[:6])
        raise recipe.error(f"rewards.{goal.label}", f"{what}; for the first row of {data.label} tried {tried}")
    if not strict:
        note = _not_earned(goal, data, failed)
        form_pays = _form_outweighs(scorer, goal, form, kept) if kept else None
        return data, GoldScan(_kinds(data.rows), form, note if failed else None, form_pays)
    if len(failed) > section.max_unusable * len(data.rows):
        raise recipe.error(
            f"{key}.answer",
            f"{len(failed)} of {len(data.rows)} gold answers of {data.label} do not earn the full marks of "
            f"{goal.label}, not even as {form.shown()}: {_some(failed)}; mend the data, or allow it with "
            f"max_unusable: {rounded_up(len(failed) / len(data.rows))}",
        )
    left_out = (
        f"{data.label}: {len(failed)} of {len(data.rows)} rows left out, their gold answers do not earn the full marks "
        f"of {goal.label} themselves: {_some(failed)}"
    )
    found = GoldScan(_kinds(kept), form, left_out if failed else None, _form_outweighs(scorer, goal, form, kept))
    return replace(data, rows=kept), found


def _kinds(rows: Iterable[dict[str, Any]]) -> dict[str, int]:
    return dict(Counter(kind_of(row["answer"]) for row in rows))


def _split(goal: Reward, form: Form, rows: Rows) -> tuple[Rows, Rows]:
    """Rows whose gold answer earns the goal's full marks, and those whose does not."""
    scores = Scorer([replace(goal, only_if=None)], skip_errors=True)
    kept, failed = array("q"), array("q")
    for start in range(0, len(rows), SCORED_AT_ONCE):
        some = rows[start : start + SCORED_AT_ONCE]
        values = scores.score(_batch(some, [form.write(row["answer"]) for row in some])).values[goal.label]
        for index, value in enumerate(values, start):
            (kept if goal.is_right(value) else failed).append(index)
    return rows.select(kept) if failed else rows, rows.select(failed)


def _not_earned(goal: Reward, data: Data, failed: Rows) -> str:
    share = "no" if len(failed) == len(data.rows) else f"{len(data.rows) - len(failed)} of {len(data.rows)}"
    return (
        f"{share} gold answers of {data.label} earn the full marks of {goal.label} ({goal.full_marks:g}) in the usual "
        "forms: fine if it wants another form; if not, those rows can never be right"
    )


def _form_outweighs(scorer: Scorer, goal: Reward, form: Form, rows: Rows) -> str | None:
    """A warning where form and length alone earn much of what a right answer earns."""
    answers = _first_answers(rows)
    wrong_of = dict(zip(answers, answers[1:] + answers[:1], strict=True))
    if len(answers) < 2:
        return None
    some = rows[:TRIED]
    scores = scorer.score(_batch(some, [form.write(wrong_of[row["answer"]]) for row in some])).values
    others = [r for r in scorer.rewards if r.label != goal.label]
    earned = {r.label: r.weight * fmean(value or 0.0 for value in scores[r.label]) for r in others}
    share = sum(earned.values()) / (goal.weight * goal.full_marks) if goal.weight * goal.full_marks > 0 else 0.0
    if share <= MOST_FOR_FORM:
        return None
    names = ", ".join(label for label, value in earned.items() if value > 0)
    return (
        f"a wrong answer as {form.shown()} earns {share:.0%} of what a right one adds (by {names}): above "
        f"{MOST_FOR_FORM:.0%} well-formed nonsense pays, and where all answers of a group are wrong it is all that is "
        f"learned; lower the weight, or write only_if: {goal.label}"
    )


def _first_answers(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Different gold answers: those of the first rows that are tried, and one more if there is one."""
    answers: dict[str, None] = {}
    for row in rows:
        answers[row["answer"]] = None
        if len(answers) > TRIED:
            break
    return list(answers)


def _mean_total(scorer: Scorer, rows: list[dict[str, Any]], texts: list[str]) -> float:
    values = scorer.score(_batch(rows, texts)).values
    columns = [values[reward.label] for reward in scorer.rewards]
    return fmean(total_reward(row, scorer.rewards) or 0.0 for row in zip(*columns, strict=True))


def _batch(rows: list[dict[str, Any]], texts: list[str]) -> Completions:
    return Completions(texts, [[0] * (len(text) // CHARACTERS_A_TOKEN + 1) for text in texts], rows)


def _some(rows: Rows) -> str:
    return ", ".join(shorten(row["answer"], 40) for row in rows[:SHOWN]) + (", ..." if len(rows) > SHOWN else "")
