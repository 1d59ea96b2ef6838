"""How hard rows are for a model, in numbers: what judged completions say of the groups that a run would meet."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from grpo_kit.evaluation.judged import JudgedRow, goal_varies, reward_means
from grpo_kit.rewards.rewards import Reward
from grpo_kit.rewards.scoring import total_reward
from grpo_kit.stats import ROUNDING, accuracy_interval, all_alike, pass_at_k, percentile, useful_share

Interval = tuple[float, float]

GROUPS = (4, 8, 16)
"""Group sizes for which the share of useful groups is foretold."""

BARS = 16
"""Up to so many completions the histogram has a bar for each number of right ones, above it for each tenth."""


@dataclass(frozen=True)
class Flat:
    """The share of groups of G completions whose total rewards are all equal, split by why; the parts add up to it."""

    share: float
    all_right: float
    all_truncated: float
    all_unreadable: float
    all_wrong: float
    other: float


@dataclass(frozen=True)
class Form:
    """Right and well-formed are two things: shares of all judged completions, None without a format reward.

    `right_unread`: the gold answer is there, but not where the goal's reward looks for it.
    """

    formatted: float | None
    right_unformatted: float | None
    formatted_wrong: float | None
    right_unread: float


@dataclass(frozen=True)
class Difficulty:
    """What N prompts x n completions say; `pass_at` and `majority` map k to a share and its 95 % interval.

    `useful` maps a group size to the share of groups that are neither all right nor all wrong: exact up to n, above
    it at least so much. `histogram` counts prompts by how often they were right.
    """

    prompts: int
    samples: int
    group: int
    judged: int
    accuracy: float | None
    ci95: Interval | None
    pass_at: dict[int, tuple[float, Interval]]
    majority: tuple[float, Interval] | None
    histogram: dict[str, int]
    useful: dict[int, float]
    flat: Flat
    form: Form
    truncated_share: float
    tokens: dict[str, float]
    duplicate_share: float
    goal_varies: bool
    rewards: dict[str, float | None]
    unscored: dict[str, float]


def difficulty_of(rows: Sequence[JudgedRow], rewards: Sequence[Reward], goal: Reward, group: int) -> Difficulty:
    """Of judged rows, for a run with groups of `group` completions."""
    samples = len(rows[0].texts)
    counts = [(sum(row.right(goal)), len(row.right(goal))) for row in rows if row.right(goal)]
    rates = [right / n for right, n in counts]
    tokens = sorted(tokens for row in rows for tokens in row.tokens)
    means, unscored = reward_means(rows)
    votes = [vote for row in rows if (vote := majority_right(row, goal)) is not None]
    return Difficulty(
        prompts=len(rows),
        samples=samples,
        group=group,
        judged=len(rates),
        accuracy=fmean(rates) if rates else None,
        ci95=accuracy_interval(rates, samples) if rates else None,
        pass_at=pass_at_all(counts, samples),
        majority=(fmean(votes), accuracy_interval(votes, 1)) if votes else None,
        histogram=histogram(counts, samples),
        useful=_useful(counts) if rates else {},
        flat=flat_groups(rows, rewards, goal, group),
        form=_form(rows, rewards, goal),
        truncated_share=fmean(cut for row in rows for cut in row.truncated),
        tokens={"mean": fmean(tokens), **{f"p{q}": percentile(tokens, q) for q in (50, 90, 95)}, "max": tokens[-1]},
        duplicate_share=fmean(1 - len(set(row.texts)) / len(row.texts) for row in rows),
        goal_varies=goal_varies(rows, goal),
        rewards=means,
        unscored=unscored,
    )


def histogram(counts: Sequence[tuple[int, int]], samples: int) -> dict[str, int]:
    """How many prompts were right so often, each with its (right, judged)."""
    if samples <= BARS and all(n == samples for _, n in counts):
        by_right = Counter(right for right, _ in counts)
        return {f"{right} of {samples}": by_right[right] for right in range(samples + 1)}
    by_tenth = Counter(-1 if right == 0 else 10 if right == n else right * 10 // n for right, n in counts)
    names = {-1: "never", **{tenth: f"{tenth / 10:.1f} to {(tenth + 1) / 10:.1f}" for tenth in range(10)}, 10: "always"}
    return {name: by_tenth[place] for place, name in names.items()}


def majority_right(row: JudgedRow, goal: Reward) -> float | None:
    """Is the answer that most completions of a prompt give right (maj@n)? The share of the tied ones that are.

    Answers are alike where they read alike; a completion without an answer has no vote. None where nothing is judged.
    """
    if not row.right(goal):
        return None
    read = [(goal.read_answer(text), score) for text, score in zip(row.texts, row.scores[goal.label], strict=True)]
    votes = Counter(answer for answer, score in read if answer is not None and score is not None)
    if not votes:
        return 0.0
    winners = [answer for answer, count in votes.items() if count == max(votes.values())]
    right = [any(goal.is_right(score) for answer, score in read if answer == winner) for winner in winners]
    return fmean(right)


def flat_groups(rows: Sequence[JudgedRow], rewards: Sequence[Reward], goal: Reward, group: int) -> Flat:
    """The expected share of flat groups among groups of `group` completions drawn from those of each row.

    Without replacement where a row has enough of them, which makes it unbiased; else with. A completion that no
    reward judged is equal to anything, as in a run.
    """
    parts = [_flat_parts(row, rewards, goal, group) for row in rows]
    means = [fmean(column) for column in zip(*parts, strict=True)]
    return Flat(*means)


def _flat_parts(row: JudgedRow, rewards: Sequence[Reward], goal: Reward, group: int) -> tuple[float, ...]:
    """Of one row: the fields of `Flat`."""
    n = len(row.texts)
    columns = [row.scores[reward.label] for reward in rewards]
    totals = [total_reward(scores, rewards) for scores in zip(*columns, strict=True)]
    kinds = [_kind(row, goal, at) for at in range(n)]
    chance = _chance(n, group)
    unjudged = totals.count(None)
    flat, right, cut, unread, wrong = chance(unjudged), 0.0, 0.0, 0.0, 0.0
    for alike in _equal_totals(totals):
        own = Counter(kinds[at] for at in alike)
        not_right = len(alike) - own["right"] - own["unjudged"]
        flat += chance(len(alike) + unjudged) - chance(unjudged)
        right += chance(own["right"])
        cut += chance(own["truncated"])
        unread += chance(own["unreadable"])
        wrong += chance(not_right) - chance(own["truncated"]) - chance(own["unreadable"])
    return flat, right, cut, unread, wrong, flat - right - cut - unread - wrong


def _kind(row: JudgedRow, goal: Reward, at: int) -> str:
    score = row.scores[goal.label][at]
    if score is None:
        return "unjudged"
    if goal.is_right(score):
        return "right"
    if row.truncated[at]:
        return "truncated"
    return "unreadable" if goal.read_answer(row.texts[at]) is None else "wrong"


def _equal_totals(totals: Sequence[float | None]) -> list[list[int]]:
    """The completions of a row by total reward, those that are equal up to rounding together; unjudged ones in none."""
    order = sorted((total, at) for at, total in enumerate(totals) if total is not None)
    alike: list[list[int]] = []
    start = -math.inf
    for total, at in order:
        if not alike or total - start > ROUNDING * max(1.0, abs(total)):
            alike.append([])
            start = total
        alike[-1].append(at)
    return alike


def _chance(n: int, group: int) -> Callable[[int], float]:
    """How likely a group is all of a kind that `count` of the n completions are."""
    if group <= n:
        return lambda count: all_alike(count, n, group)
    return lambda count: (count / n) ** group


def _useful(counts: Sequence[tuple[int, int]]) -> dict[int, float]:
    """By group size the share of groups that are neither all right nor all wrong; each prompt with its (right, n)."""
    found: dict[int, float] = {}
    for group in GROUPS:
        if all(n >= group for _, n in counts):
            found[group] = fmean(1 - all_alike(right, n, group) - all_alike(n - right, n, group) for right, n in counts)
        else:  # too low where p is an estimate, because the formula is concave; a larger group is never less useful
            least = useful_share([right / n for right, n in counts], group)
            found[group] = max(least, *found.values()) if found else least
    return found


def pass_at_all(counts: Sequence[tuple[int, int]], samples: int) -> dict[int, tuple[float, Interval]]:
    """pass@k for k = 1, 2, 4, ... up to the number of completions, over the prompts that were judged often enough."""
    found = {}
    for k in [2**power for power in range(samples.bit_length())]:
        shares = [pass_at_k(right, n, k) for right, n in counts if n >= k]
        if shares:
            found[k] = (fmean(shares), accuracy_interval(shares, samples // k))
    return found


def _form(rows: Sequence[JudgedRow], rewards: Sequence[Reward], goal: Reward) -> Form:
    """A completion is formatted where the recipe's `format` reward gives full marks."""
    right = [one for row in rows for one in row.right(goal)]
    if not right:
        return Form(None, None, None, 0.0)
    leniently = [one for row in rows for one in row.right_leniently(goal)]
    unread = fmean(lenient and not strict for lenient, strict in zip(leniently, right, strict=True))
    form = next((reward for reward in rewards if reward.path.stem == "format"), None)
    if form is None:
        return Form(None, None, None, unread)
    well = [
        form.is_right(marks)
        for row in rows
        for marks, score in zip(row.scores[form.label], row.scores[goal.label], strict=True)
        if score is not None
    ]
    both = list(zip(right, well, strict=True))
    return Form(fmean(well), fmean(r and not w for r, w in both), fmean(w and not r for r, w in both), unread)
