"""Rewards that are farmed, that do not judge, or that drown the others."""

from collections.abc import Iterator

from grpo_kit.diagnosis.chance import groups_of, plain_share, trials_of
from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.diagnosis.history import STEPS, Column, History
from grpo_kit.diagnosis.trends import WINDOW, has_risen, lately, mean, shift

MOSTLY = 0.8
"""Share of the total reward's rise that one reward makes up where it is farmed."""

GOOD = 0.9
"""At this accuracy there is little left to be gained, so that other rewards may rise alone."""


def accuracy_of(history: History, facts: Facts) -> Column:
    """The share of right completions; of another trainer the mean of the goal's reward."""
    return history.column("kit/accuracy", f"rewards/{facts.goal}/mean")


def _progress(history: History, facts: Facts) -> list[Column]:
    """What may rise where a run gets better: right answers, and the goal's mean, which may be graded."""
    return [accuracy_of(history, facts), history.column(f"rewards/{facts.goal}/mean")]


def has_improved(history: History, facts: Facts) -> bool:
    """Has the goal come nearer, by more than chance?"""
    return any(has_risen(column) for column in _progress(history, facts))


def level_of(history: History, facts: Facts) -> float | None:
    """The share of right answers lately, or of the goal's full marks where that is more."""
    right, scored = (lately(column) for column in _progress(history, facts))
    shares = [right, scored and scored / facts.full_marks.get(facts.goal or "", 1.0)]
    return max((share for share in shares if share is not None), default=None)


def lighter(label: str, facts: Facts) -> str | None:
    """The override that makes a reward count a quarter of what it does."""
    weight = facts.weights.get(label)
    return f"rewards.{label}.weight={weight / 4:.2g}" if weight else None


def farmed(history: History, facts: Facts) -> Iterator[Finding]:
    """The total reward rises and the goal's does not: another reward is being earned instead.

    A reward of negative weight is a penalty: that it falls is what it is for.
    """
    total = shift(history.column("reward"))
    goal = history.column(f"rewards/{facts.goal}/mean")
    now = lately(goal)
    if total is None or not total.rises or now is None or now >= GOOD * facts.full_marks.get(facts.goal or "", 1.0):
        return
    rise = total.now - total.before
    own = facts.weights.get(facts.goal or "", 1.0) * (now - mean(goal.values[:WINDOW]))
    rises = {label: _rise(history, label, facts) for label in facts.others() if facts.weights[label] > 0}
    label = max(rises, key=lambda name: rises[name], default=None)
    mostly = label is not None and rises[label] > MOSTLY * rise and own < (1 - MOSTLY) * rise
    if label is not None and mostly and not has_improved(history, facts):
        yield Finding(
            "farmed-reward",
            total.since,
            f"reward {total.before:.3g} -> {total.now:.3g}, of it {rises[label]:+.3g} from {label}; {facts.goal} stays "
            f"at {now:.2g}",
            f"{label} is easier to earn than {facts.goal}, so it is what is learned",
            f"let {label} count for less, or only for right answers (rewards.{label}.only_if={facts.goal})",
            lighter(label, facts),
            label,
        )


def _rise(history: History, label: str, facts: Facts) -> float:
    found = shift(history.column(f"rewards/{label}/mean"))
    return facts.weights[label] * (found.now - found.before) if found is not None else 0.0


def rising_reward(history: History, facts: Facts) -> str | None:
    """Besides the goal's, the reward that has risen most; None where none has."""
    rises = {label: _rise(history, label, facts) for label in facts.others()}
    label = max(rises, key=lambda name: rises[name], default=None)
    return label if label is not None and rises[label] > 0 else None


UNSCORED, RARELY = 0.1, 0.03
"""Shares of completions that a reward leaves unjudged: spoken of, and usual."""


def unscored(history: History, facts: Facts) -> Iterator[Finding]:
    """A reward leaves many completions unjudged; by its time limit, or for another reason."""
    for label in facts.full_marks:
        column = history.column(f"kit/rewards/{label}/unscored_share")
        share = plain_share(column, UNSCORED, RARELY, facts.completions or trials_of(history, facts), STEPS)
        if share is None or abstains(history, label):
            continue
        late = lately(history.column(f"kit/rewards/{label}/timeout_share"), STEPS) or 0.0
        by_limit = late > share / 2
        yield Finding(
            "unscored",
            column.lasting(lambda value: value > UNSCORED) or column.steps[-STEPS],
            f"{label} did not judge {share:.0%} of completions, {late:.0%} for its time limit",
            "they are left out of the mean, and of what is learned",
            f"make {label} faster, or raise TIME_LIMIT_S in its file"
            if by_limit
            else f"see `score lost` in events.jsonl, and for which rows {label} returns None",
            None,
            label,
        )

    yield from _unscored_by_all(history, facts)


def abstains(history: History, label: str) -> bool:
    """Does a reward leave the same share of completions unjudged from the first step on, none by its time limit?

    That is how a reward of one of several tasks is written. One that judges nothing has failed.
    """
    shares = history.column(f"kit/rewards/{label}/unscored_share")
    late = history.column(f"kit/rewards/{label}/timeout_share")
    if not shares.values or min(shares.values[:STEPS]) <= UNSCORED or mean(shares.values[:STEPS]) >= 1:
        return False
    return not any(late.values) and shift(shares) is None


def _unscored_by_all(history: History, facts: Facts) -> Iterator[Finding]:
    """Where no reward says so of itself, many completions may be judged by none."""
    if any(key.startswith("kit/rewards/") and key.endswith("/unscored_share") for key in history.columns):
        return
    column = history.column("kit/unscored_share")
    share = plain_share(column, UNSCORED, RARELY, facts.completions or trials_of(history, facts), STEPS)
    if share is not None:
        yield Finding(
            "unscored",
            column.lasting(lambda value: value > UNSCORED) or column.steps[-STEPS],
            f"no reward judged {share:.0%} of completions",
            "nothing is learned from them",
            "see `score lost` in events.jsonl, and for which rows the rewards return None",
        )


DOMINATES, LEADS = 0.7, 0.5
"""Shares of the variance within groups that another reward than the goal's has: where it is spoken of, and may be."""


KEPT = 0.8
"""Share of the total reward at the start below which a policy is being lost."""


def dominating(history: History, facts: Facts) -> Iterator[Finding]:
    """Within groups another reward than the goal's decides which completion is better, before the goal is reached.

    Where the total falls the policy is being lost, and what is left of the variance says nothing.
    """
    good, total = lately(accuracy_of(history, facts)), history.column("reward")
    now = lately(total)
    if now is not None and now < KEPT * mean(total.values[:WINDOW]):
        return
    for label in facts.others():
        column = history.column(f"kit/rewards/{label}/variance_share")
        share = plain_share(column, DOMINATES, LEADS, groups_of(history, facts))
        if good is None or (level_of(history, facts) or 0.0) >= GOOD or share is None:
            continue
        gated = good > 1 - GOOD
        yield Finding(
            "dominating-reward",
            column.lasting(lambda value: value > DOMINATES) or column.steps[-WINDOW],
            f"{label} makes up {share:.0%} of the reward's variance within groups, at an accuracy of {good:.2f}",
            f"which completion is better is decided by {label}, not by {facts.goal}; a small weight is no help where "
            "the goal's scores are all equal, because groups are scaled to the same spread",
            f"let {label} count only for right answers"
            if gated
            else f"let {label} count for less, or take easier rows",
            f"rewards.{label}.only_if={facts.goal}" if gated else lighter(label, facts),
            label,
        )


NOISE, SELDOM = 0.25, 0.05
"""Shares of groups whose spread is next to nothing: above which noise is what is learned, and usual."""


def amplified(history: History, facts: Facts) -> Iterator[Finding]:
    """Groups that differ by less than a hundredth of full marks, which scaling by the group makes full advantages."""
    column = history.column("kit/small_spread_share")
    share = plain_share(column, NOISE, SELDOM, groups_of(history, facts))
    if share is None or facts.scale_rewards not in (None, "group"):
        return
    each = {
        label: lately(history.column(f"kit/rewards/{label}/small_spread_share")) or 0.0 for label in facts.full_marks
    }
    label = max(each, key=lambda name: each[name], default=None)
    yield Finding(
        "amplified-noise",
        column.lasting(lambda value: value > NOISE) or column.steps[-WINDOW],
        f"in {share:.0%} of groups rewards differ, but by less than 1 % of full marks"
        + (f"; {label} does in {each[label]:.0%}" if label else ""),
        "scale_rewards=group divides by a group's own spread, so differences that mean nothing become full advantages",
        "scale by the batch, or round that reward",
        "grpo.scale_rewards=batch",
        label,
    )
