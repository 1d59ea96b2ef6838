"""Where a step's time goes when it takes too long."""

from collections.abc import Iterator

from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.diagnosis.history import History
from grpo_kit.diagnosis.trends import WINDOW, lately, shift

SECONDS = "kit/seconds/"

SLOW = 0.3
"""Share of a step that rewards may take."""


def slow_rewards(history: History, facts: Facts) -> Iterator[Finding]:
    """The card waits for the rewards."""
    column = history.column(f"{SECONDS}rewards")
    spent, whole = lately(column), lately(history.column(f"{SECONDS}step"))
    if spent is None or not whole or spent < 1 or spent / whole < SLOW:
        return
    each = {label: lately(history.column(f"{SECONDS}rewards/{label}")) or 0.0 for label in facts.full_marks}
    label = max(each, key=lambda name: each[name], default=None)
    yield Finding(
        "slow-rewards",
        column.lasting(lambda seconds: seconds >= SLOW * whole) or column.steps[-WINDOW],
        f"rewards take {spent:.1f} of {whole:.1f} s a step" + (f", {label} {each[label]:.1f} s" if label else ""),
        "the card waits for them",
        "time the reward with grpo-kit rewards test, and lower TIME_LIMIT_S in its file",
        None,
        label,
    )


SLOWER = 2.0
"""Times the run's own start that a step is spoken of."""

PARTS = ("generation", "rewards", "update")


def slow_step(history: History, facts: Facts) -> Iterator[Finding]:
    """A step takes twice as long as at the run's own start, or what is between steps takes most of the time."""
    found = shift(history.column(f"{SECONDS}step"))
    if found is not None and found.ratio >= SLOWER and found.now - found.before > 1:
        shifts = {part: shift(history.column(f"{SECONDS}{part}")) for part in PARTS}
        grown = {part: s.now - s.before for part, s in shifts.items() if s is not None and s.rises}
        part = max(grown, key=lambda name: grown[name], default=None)
        if part == "rewards":
            return  # that is slow-rewards
        tokens = shift(history.column("completions/mean_length"))
        longer = tokens is not None and tokens.ratio > 1.3
        yield Finding(
            "slow-step",
            found.since,
            f"a step takes {found.now:.1f} s, {found.before:.1f} s at first: {_seconds(history)}",
            (f"most of it is {part}" if part else "no part of it has grown alone: is the machine shared?")
            + (f"; completions have {tokens.ratio:.1f} times as many tokens" if tokens and longer else "")
            + _longest(history),
            "see length-growth" if longer else "look for what else uses the machine, and its memory",
        )
        return
    yield from _between_steps(history)


def _between_steps(history: History) -> Iterator[Finding]:
    """Measuring and saving, which happens between steps, takes most of the time."""
    column = history.column(f"{SECONDS}between")
    spent, steps = sum(column.values), sum(history.column(f"{SECONDS}step").values)
    if len(column.values) < 2 * WINDOW or spent < 60 or spent < 1.5 * steps:
        return
    places = [one.step for one in history.evaluations]
    every = places[-1] - places[-2] if len(places) > 2 else None
    yield Finding(
        "slow-step",
        column.steps[0],
        f"{spent:.0f} s of {spent + steps:.0f} s went by between steps",
        "measuring on held-out rows and saving checkpoints take longer than training",
        "measure less often, or with fewer completions (evaluation.samples)",
        f"eval_every={2 * every}" if every else "evaluation.samples=1",
    )


def _seconds(history: History) -> str:
    spent = {part: lately(history.column(f"{SECONDS}{part}")) for part in PARTS}
    return ", ".join(f"{part} {seconds:.1f} s" for part, seconds in spent.items() if seconds is not None)


def _longest(history: History) -> str:
    longest, mean = (lately(history.column(f"completions/{which}_length")) for which in ("max", "mean"))
    return (
        f"; sampling waits for the longest of {longest:.0f} tokens, {mean:.0f} on average" if longest and mean else ""
    )


PADDED = 0.8
"""Share of padding in what is sampled from which a few long completions hold up the rest."""


def padding(history: History, facts: Facts) -> Iterator[Finding]:
    """A few completions are much longer than all others, and a step waits for them."""
    column = history.column("kit/padding_share")
    share, most = lately(column), lately(history.column("kit/tokens_p95"))
    longest = lately(history.column("completions/max_length"))
    spent, whole = (lately(history.column(f"{SECONDS}{part}")) for part in ("generation", "step"))
    if share is None or most is None or longest is None or not whole or spent is None:
        return
    if share > PADDED and longest > 2 * most and spent > max(whole / 2, 1):
        yield Finding(
            "padding",
            column.lasting(lambda value: value > PADDED) or column.steps[-WINDOW],
            f"{share:.0%} of what is sampled is padding: 95 % of completions have at most {most:.0f} tokens, the "
            f"longest {longest:.0f}",
            f"sampling takes {spent:.1f} of {whole:.1f} s a step and waits for the longest",
            "a smaller budget cuts them",
            f"grpo.max_completion_length={-(-int(1.25 * most) // 8) * 8}",
        )
