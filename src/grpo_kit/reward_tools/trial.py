"""One reward on trial: its own cases, then what training relies on - the same score for the same completion, always.

A reward is scored in two fresh processes with different hash seeds, forward, backward and one by one. Every score
must agree; what does not is drawn from chance, from the clock, or from completions that came before.
"""

import os
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from grpo_kit.recipe.recipe import Recipe
from grpo_kit.reward_tools.cases import Case, failing_cases, quoted, read_cases, said, same_score
from grpo_kit.rewards.call import Fault, Score
from grpo_kit.rewards.checks import CANNED
from grpo_kit.rewards.files import looked_up
from grpo_kit.rewards.rewards import TRAINER_GIVES, UNAVAILABLE, Completions, Reward
from grpo_kit.rewards.scoring import explain
from grpo_kit.rewards.workers import Workers

SIZES = (10, 40, 200, 1000, 4000)
WORDS = ("a", "to be or ", "strawberry ", "12 + 7 = 19. ")
"""Texts of so many characters are made from these, which differ in everything but that."""

GOLD_ROWS = 6
"""Rows of which also the gold answer is tried, in a few forms."""


@dataclass
class Report:
    """What was looked at, line by line; `findings` counts the lines that say that something is wrong.

    A reward that `hangs` reached its time limit, so that trying it any further would take very long.
    """

    lines: list[str] = field(default_factory=list)
    findings: int = 0
    hangs: bool = False

    def say(self, what: str, text: str) -> None:
        self.lines.append(f"  {what:<13}{text}")

    def find(self, what: str, text: str) -> None:
        self.findings += 1
        self.say(what, f"FINDING: {text}")


@dataclass(frozen=True)
class Processes:
    """Two sets of one worker each, so that completions are scored in order; both start with the first call."""

    first: Workers = field(default_factory=lambda: Workers(1))
    second: Workers = field(default_factory=lambda: Workers(1))

    def close(self) -> None:
        self.first.close()
        self.second.close()


def missing_columns(reward: Reward, columns: Sequence[str]) -> list[str]:
    """What a reward asks the data for and these columns do not have."""
    asked = [name for name in looked_up(reward.function) if name not in (*TRAINER_GIVES, *UNAVAILABLE)]
    return [name for name in dict.fromkeys((*reward.required, *asked)) if name not in reward.available(columns)]


def try_reward(recipe: Recipe, reward: Reward, rows: Sequence[dict[str, Any]], processes: Processes) -> Report:
    """Run all trials of one reward on these rows. Raises RecipeError for malformed CASES."""
    report = Report()
    cases = read_cases(recipe, reward)
    if cases is None:
        report.say("cases", "the file has no CASES; a few lines of them are the cheapest test of a reward")
    else:
        failures, report.hangs = failing_cases(reward, cases)
        for failure in failures:
            report.find("cases", failure)
        left = ", the rest was left out" if report.hangs else ""
        report.say(
            "cases", f"{len(failures)} of {len(cases)} failed{left}" if failures else f"{len(cases)} as expected"
        )
    if report.hangs:
        return report
    batch = trial_batch(reward, cases or [], rows)
    if batch is None:
        missing = ", ".join(missing_columns(reward, list(rows[0])))
        report.say(
            "trials", f"none: needs the columns {missing}; give CASES, or a recipe whose data has them: --recipe"
        )
        return report
    scores = _repeatable(reward, batch, processes, report)
    if scores is not None:
        _try_orders(reward, batch, scores, processes.first, report)
    if not report.hangs and _counts_characters(reward, batch.rows[0], processes.first):
        report.find("length", "counts characters: short words would be rewarded; use completion_ids, which are tokens")
    return report


def trial_batch(reward: Reward, cases: list[Case], rows: Sequence[dict[str, Any]]) -> Completions | None:
    """Different completions with rows that have what the reward asks for; None where there are no such rows."""
    texts = list(dict.fromkeys([*CANNED, *(case.completion for case in cases)]))
    if rows and not missing_columns(reward, list(rows[0])):
        pairs = [(text, rows[at % len(rows)]) for at, text in enumerate(texts)]
        for row in rows[:GOLD_ROWS]:
            gold = row.get("answer")
            pairs += [
                (text, row) for text in (f"The answer is {gold}.", rf"\boxed{{{gold}}}", f"<answer>{gold}</answer>")
            ]
        once = dict(reversed(pairs))
    else:
        fitting = [case for case in cases if not missing_columns(reward, list(case.row()))]
        alike = [case for case in fitting if case.row().keys() == fitting[0].row().keys()]
        once = {case.completion: case.row() for case in reversed(alike)}
    if not once:
        return None
    return Completions(list(once), [[0] * len(text) for text in once], list(once.values()))


def _repeatable(reward: Reward, batch: Completions, processes: Processes, report: Report) -> list[Score] | None:
    """The scores, if every completion has one, in two processes the same; else dependence on order cannot be seen."""
    everything = range(len(batch.texts))
    probe = _scores(reward, batch, None, everything[:1])  # one that hangs on all must not be asked about all
    if not isinstance(probe[0], Fault):
        with _hash_seed("1"):
            one = _scores(reward, batch, processes.first, everything)
        with _hash_seed("2"):
            other = _scores(reward, batch, processes.second, everything)
    else:
        one = other = probe
    lost = {score.what: (at, score) for at, score in enumerate(one) if isinstance(score, Fault)}
    for at, fault in lost.values():
        report.hangs = report.hangs or fault.kind == "timeout"
        report.find("time" if fault.kind == "timeout" else "errors", explain(reward, fault, at, batch.texts[at]))
    if lost:
        return None
    different = _differs(one, other)
    if different is not None:
        scores = f"{said(one[different])} in one process and {said(other[different])} in another"
        report.find("repeated", f"non-deterministic: {quoted(batch.texts[different])} scored {scores}")
        return None
    report.say("repeated", f"the same scores in two processes, {len(everything)} completions")
    return one


def _try_orders(reward: Reward, batch: Completions, forward: list[Score], workers: Workers, report: Report) -> None:
    """Scores must not depend on what the same process scored before, nor on the place in a batch; what one costs."""
    count = len(batch.texts)
    backward = _scores(reward, batch, workers, range(count - 1, -1, -1))
    if reward.batch_form:
        began = time.perf_counter()
        others = _scores(reward, batch, workers, random.Random(count).sample(range(count), count))
        seconds = [(time.perf_counter() - began) / count]
    else:
        others, seconds = _one_by_one(reward, batch, workers)
    _compare_orders(reward, batch, forward, [backward, others], report)
    limit = f"{reward.time_limit_s:g} s{' for a batch' if reward.batch_form else ''}"
    times = f"median {1000 * median(seconds):.2g} ms, most {1000 * max(seconds):.2g} ms"
    report.say("time", f"{times} a completion, way to the worker included; the limit is {limit}")


def _compare_orders(
    reward: Reward, batch: Completions, forward: list[Score], others: list[list[Score]], report: Report
) -> None:
    for other in others:
        at = _differs(forward, other)
        if at is not None:
            what = "at another place of the batch" if reward.batch_form else "after other completions"
            scores = f"{said(forward[at])}, and {said(other[at])} {what}"
            advice = "a score may depend on its own completion and row only; keep nothing between calls"
            advice = "the place of a completion in the batch means nothing" if reward.batch_form else advice
            report.find("order", f"depends on the order: {quoted(batch.texts[at])} scored {scores}; {advice}")
            return
    how = "in three orders of the batch" if reward.batch_form else "forward, backward and one by one"
    report.say("order", f"the same scores {how}")


def _scores(reward: Reward, batch: Completions, workers: Workers | None, order: Sequence[int]) -> list[Score]:
    """Score in this order; the results are in the batch's own."""
    moved = Completions(
        [batch.texts[at] for at in order], [batch.completion_ids[at] for at in order], [batch.rows[at] for at in order]
    )
    scores = dict(zip(order, reward.score(moved, workers), strict=True))
    return [scores[at] for at in range(len(order))]


def _one_by_one(reward: Reward, batch: Completions, workers: Workers) -> tuple[list[Score], list[float]]:
    """The score of each completion by itself, and the seconds that it took."""
    scores, seconds = [], []
    for text, ids, row in zip(batch.texts, batch.completion_ids, batch.rows, strict=True):
        began = time.perf_counter()
        scores += reward.score(Completions([text], [ids], [row]), workers)
        seconds.append(time.perf_counter() - began)
    return scores, seconds


def _differs(one: list[Score], other: list[Score]) -> int | None:
    """The first completion whose two scores differ, those that were lost aside."""
    for at, (left, right) in enumerate(zip(one, other, strict=True)):
        if not isinstance(left, Fault) and not isinstance(right, Fault) and not same_score(left, right):
            return at
    return None


def _counts_characters(reward: Reward, row: dict[str, Any], workers: Workers) -> bool:
    """Does nothing but the number of characters decide the score of texts that are no answers?"""
    texts = [_text(words, size) for size in SIZES for words in WORDS]
    few, many = ([[0] * (len(text) // part) for text in texts] for part in (5, 1))
    batch = Completions(texts * 2, few + many, [row] * (2 * len(texts)))
    scores = _scores(reward, batch, workers, range(len(batch.texts)))
    by_size: dict[int, list[Score]] = {}
    for text, score in zip(batch.texts, scores, strict=True):
        by_size.setdefault(len(text), []).append(score)
    if any(isinstance(score, Fault) or score is None for score in scores):
        return False
    alike = all(same_score(score, group[0]) for group in by_size.values() for score in group)
    return alike and not all(same_score(group[0], by_size[SIZES[0]][0]) for group in by_size.values())


def _text(words: str, size: int) -> str:
    """A text of exactly this many characters, with no space at its end."""
    return (words * size)[: size - 1] + "x"


@contextmanager
def _hash_seed(seed: str) -> Iterator[None]:
    """Processes that start meanwhile hash text in this way, so that scores made from `hash(text)` differ for sure."""
    before = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = seed
    try:
        yield
    finally:
        os.environ.pop("PYTHONHASHSEED")
        if before is not None:
            os.environ["PYTHONHASHSEED"] = before
