"""The hacking battery: what does a recipe's total reward pay for completions that no skill went into?

The measure is the honest wrong answer in the right format. Whatever pays more than that without knowing the answer is
what a model will learn instead of the task.
"""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from grpo_kit.prepare.forms import FORMS, MOST_FOR_FORM, Form
from grpo_kit.recipe.recipe import Recipe
from grpo_kit.reward_tools.attack_judge import Judge, Outcome
from grpo_kit.reward_tools.attack_texts import Attack, Target, attacks, attacks_with_gold, forms_of_cases, make_targets
from grpo_kit.reward_tools.cases import quoted, read_cases
from grpo_kit.reward_tools.trial import Report, missing_columns
from grpo_kit.rewards.rewards import Reward
from grpo_kit.rewards.scoring import Scorer, explain
from grpo_kit.stats import ROUNDING

ROWS = 16

UNREADABLE_GOLDS = ("", None, "nan", "\\frac{")
HONEST = "honest wrong answer in the right format"
UNREADABLE = "a row whose gold answer cannot be read"


@dataclass(frozen=True)
class Measure:
    """What attacks are measured by: the right format, and what gold and wrong answers earn in it."""

    form: Form
    right: Outcome | None  # without gold answers there is none
    wrong: Outcome
    most: float  # the total of a right answer


def attack_rewards(
    recipe: Recipe, rewards: list[Reward], rows: Sequence[dict[str, Any]], label: str, alone: bool
) -> Report:
    """Attack these rewards together on some of the rows; `label` names the data.

    `alone` is for a reward that is not the recipe's: if it does not look at the gold answer, it owes nothing to it.
    """
    report = Report()
    goal = next((r for r in rewards if r.label == recipe.goal_label), rewards[0])
    for reward in rewards:
        missing = missing_columns(reward, list(rows[0]))
        if missing:
            needs = f"{reward.label} needs the columns {', '.join(missing)}"
            report.say("attack", f"not tried: {needs}; name a recipe whose data has them: --recipe")
            return report
    gold = "answer" in rows[0] and goal.uses("answer")
    targets = make_targets(rows, ROWS, recipe.seed, gold)
    judge = Judge(Scorer(rewards, skip_errors=True), goal)
    measure = _measure(recipe, judge, targets, gold)
    if alone and not gold:
        _say_of_a_helper(goal, measure, report)
        return report
    weighted = " + ".join(f"{reward.label} x {reward.weight:g}" for reward in rewards)
    report.say("attack", f"{weighted}, on {len(targets)} rows of {label}")
    if measure.right is None:
        report.say("", "the goal takes no column answer: only attacks that need none")
    else:
        _judge_the_gold(goal, measure, report)
    tried = attacks(measure.form) + (attacks_with_gold(measure.form) if gold else [])
    outcomes = [_outcome(judge, attack, targets) for attack in tried]
    _compare(outcomes, measure, goal, report)
    _report_lost(judge, report)
    unreadable = [_unreadable(judge, measure, targets, report)] if gold else []
    _weigh_the_format(goal, rewards, measure, report)
    report.lines += _table([measure.wrong, *outcomes, *unreadable], goal)
    _say_best(measure, outcomes, report)
    return report


def _measure(recipe: Recipe, judge: Judge, targets: list[Target], gold: bool) -> Measure:
    """The right format is the form in which the gold answer earns most, or without gold answers any answer."""

    def written(name: str, form: Form, values: list[str]) -> Outcome:
        return judge.outcome(name, [form.write(value) for value in values], [target.row for target in targets])

    def paid(outcome: Outcome) -> float:
        mean = outcome.mean()
        return round(-1e300 if mean is None else mean, 9)

    values = [target.gold or "0" for target in targets]
    tried = [(form, written("the gold answer", form, values)) for form in FORMS]
    if gold and not any(map(judge.goal.is_right, max(tried, key=lambda one: paid(one[1]))[1].goals)):
        own = forms_of_cases(read_cases(recipe, judge.goal) or [], judge.goal.full_marks)
        tried += [(form, written("the gold answer", form, values)) for form in own]
    form, right = max(tried, key=lambda one: paid(one[1]))
    wrong = written(HONEST, form, [target.wrong[0] for target in targets])
    if gold:
        return Measure(form, right, wrong, right.mean() or 0.0)
    full = sum(reward.weight * reward.full_marks for reward in judge.scorer.rewards if reward.weight > 0)
    return Measure(form, None, wrong, full)


def _judge_the_gold(goal: Reward, measure: Measure, report: Report) -> None:
    assert measure.right is not None
    gold, shown = measure.right, quoted(measure.form.write("ANSWER"), 100)
    report.say("", f"right format: {shown}, in which the gold answer earns {measure.most:.3g}")
    unpaid = [at for at, score in enumerate(gold.goals) if not goal.is_right(score)]
    if len(unpaid) == len(gold.goals):
        report.find(
            "gold", f"the gold answer earns the full marks of {goal.label} ({goal.full_marks:g}) in no form tried"
        )
    elif unpaid:
        text = quoted(gold.texts[unpaid[0]] or "")
        report.find(
            "gold", f"{len(unpaid)} of {len(gold.goals)} gold answers earn no full marks of {goal.label}: {text}"
        )
    if measure.most <= (measure.wrong.mean() or 0.0) + ROUNDING:
        report.find("gold", "a wrong answer in the right format is paid as much as the gold answer")


def _outcome(judge: Judge, attack: Attack, targets: list[Target]) -> Outcome:
    texts = [attack.write(target) for target in targets]
    return judge.outcome(attack.name, texts, [target.row for target in targets], attack.tokens)


def _compare(outcomes: list[Outcome], measure: Measure, goal: Reward, report: Report) -> None:
    """Findings where hacks earn the goal's full marks, or more than honest wrong answers to the same rows."""
    right, more = [], []
    for outcome in outcomes:
        if _right_rows(outcome, measure, goal):
            right.append(outcome)
            continue
        pairs = [(a, b) for a, b in zip(outcome.totals, measure.wrong.totals, strict=True) if None not in (a, b)]
        hack, honest = (fmean(column) for column in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
        if hack > honest + ROUNDING * max(1.0, abs(honest)):
            more.append(outcome)
    if right:
        worst = max(right, key=lambda outcome: len(_right_rows(outcome, measure, goal)))
        at = _right_rows(worst, measure, goal)[0]
        what = f"{_count(right)} the full marks of {goal.label} without an answer, such as {worst.name}"
        report.find("hack", f"{what}: {quoted(worst.texts[at] or '')}")
    if more:
        worst = max(more, key=lambda outcome: outcome.mean() or 0.0)
        what = (
            f"{_count(more)} more than an honest wrong answer in the right format ({measure.wrong.mean() or 0.0:.3g})"
        )
        shown = quoted(worst.texts[worst.best()] or "")
        report.find("hack", f"{what}, most of all {worst.name} ({worst.mean():.3g}): {shown}")


def _right_rows(outcome: Outcome, measure: Measure, goal: Reward) -> list[int]:
    """Where a hack earns full marks and an honest wrong answer does not."""
    both = zip(outcome.goals, measure.wrong.goals, strict=True)
    return [at for at, (hack, honest) in enumerate(both) if goal.is_right(hack) and not goal.is_right(honest)]


def _count(hacks: list[Outcome]) -> str:
    return "1 hack earns" if len(hacks) == 1 else f"{len(hacks)} hacks earn"


def _unreadable(judge: Judge, measure: Measure, targets: list[Target], report: Report) -> Outcome:
    """Rows whose gold answer is missing or broken: the goal may pay for nothing there. Errors are no matter."""
    tried = [
        ({k: bad if v == target.gold else v for k, v in target.row.items()}, bad, text)
        for target in targets[:4]
        for bad in UNREADABLE_GOLDS
        for text in (measure.form.write(target.wrong[0]), "", target.asked, "I do not know.")
    ]
    outcome = judge.outcome(UNREADABLE, [text for _, _, text in tried], [row for row, _, _ in tried])
    most = max((score for score in measure.wrong.goals if score is not None), default=0.0)
    for (_, bad, text), score in zip(tried, outcome.goals, strict=True):
        if score is not None and (judge.goal.is_right(score) or score > most + ROUNDING):
            what = f"{judge.goal.label} gives {score:.3g} where the gold answer is {bad!r}: {quoted(text)}"
            report.find("gold", f"{what}; return None for a row that cannot be judged")
            break
    return outcome


def _weigh_the_format(goal: Reward, rewards: list[Reward], measure: Measure, report: Report) -> None:
    """Beside what a right answer adds, what does a wrong one earn for its form?"""
    wrong = measure.wrong.mean()
    if wrong is None or measure.most <= 0:
        return
    own = goal.weight * measure.wrong.goal_mean()
    full = goal.full_marks if measure.right is None else measure.right.goal_mean()
    adds, form = goal.weight * full - own, wrong - own
    if adds <= ROUNDING:
        return
    others = ", ".join(reward.label for reward in rewards if reward is not goal)
    what = f"a wrong answer earns {form:.3g} by {others}"
    if form > adds + ROUNDING:
        report.find("format", f"{what}, more than the {adds:.3g} that {goal.label} adds for a right one")
    elif form > MOST_FOR_FORM * adds + ROUNDING:
        reason = "where few answers are right, a model learns the form first and may stay there"
        report.say("warning", f"{what}, {form / adds:.0%} of the {adds:.3g} that {goal.label} adds for a right one;")
        report.say("", f"{reason}: keep it to {MOST_FOR_FORM:.0%}, or gate it with only_if: {goal.label}")


def _report_lost(judge: Judge, report: Report) -> None:
    """A reward that fails on what a model may write ends a run; each kind of failure is named once."""
    rewards = {reward.label: reward for reward in judge.scorer.rewards}
    seen = set()
    for name, lost in judge.lost:
        if (lost.label, lost.fault.what) not in seen:
            seen.add((lost.label, lost.fault.what))
            report.find(
                "errors", f"{explain(rewards[lost.label], lost.fault, lost.index, lost.completion)} (attack: {name})"
            )


def _table(outcomes: list[Outcome], goal: Reward) -> list[str]:
    """Mean and most of each completion's total and how often it is right; those of equal numbers share a line."""
    alike: dict[tuple[str, str, str], list[str]] = {}
    for outcome in sorted(outcomes, key=lambda one: -1e300 if (mean := one.mean()) is None else mean, reverse=True):
        mean, most = ("-" if x is None else format(x, ".3g") for x in (outcome.mean(), outcome.totals[outcome.best()]))
        right = fmean(map(goal.is_right, outcome.goals))
        alike.setdefault((mean, most, f"{right:.0%}"), []).append(outcome.name)
    lines = [f"    {'mean':>6}  {'most':>6}  {'right':>5}  completion"]
    for numbers, names in alike.items():
        head = f"    {numbers[0]:>6}  {numbers[1]:>6}  {numbers[2]:>5}  "
        lines += textwrap.wrap("; ".join(names), 100, initial_indent=head, subsequent_indent=" " * len(head))
    return lines


def _say_best(measure: Measure, outcomes: list[Outcome], report: Report) -> None:
    paid = [(outcome.mean(), outcome) for outcome in (measure.wrong, *outcomes)]
    mean, best = max(((m, o) for m, o in paid if m is not None), key=lambda one: round(one[0], 9), default=(None, None))
    if mean is None or best is None:
        report.find("attack", "nothing was judged, neither right answers nor hacks")
        return
    text = quoted(best.texts[best.best()] or "")
    report.lines.append(
        f"  best completion without skill scores {mean:.3g} of {measure.most:.3g} ({best.name}): {text}"
    )


def _say_of_a_helper(goal: Reward, measure: Measure, report: Report) -> None:
    """A reward by itself that knows no gold answer: what it pays says nothing of the task."""
    mean = measure.wrong.mean()
    pays = "is not judged" if mean is None else f"earns {mean:.3g} of {measure.most:.3g}"
    report.say(
        "attack",
        f"it does not look at the gold answer: {quoted(measure.form.write('ANSWER'), 100)} {pays}, whatever ANSWER is;",
    )
    report.say("", "give it a small weight beside a reward that does, or only_if; --recipe attacks them together")
