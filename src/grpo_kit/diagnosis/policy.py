"""The policy: its entropy, its distance to the reference model, and how much of an update is clipped."""

from collections.abc import Iterator

from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.diagnosis.history import STEPS, Column, History
from grpo_kit.diagnosis.rewards import accuracy_of, has_improved, level_of
from grpo_kit.diagnosis.trends import LONG, SHORT, WINDOW, fall, lately, mean, middle, shift


def slower(history: History) -> str | None:
    """The override for a fifth of the learning rate."""
    rate = max(history.column("learning_rate").values, default=0.0)
    return f"grpo.learning_rate={rate / 5:.2g}" if rate else None


LOST, DECLINED = 0.6, 0.8
"""Shares of the best accuracy so far below which the policy has lost what it could: of a few steps, and of many."""


def accuracy_collapse(history: History, facts: Facts) -> Iterator[Finding]:
    """Accuracy in training has fallen far from its best."""
    column, trials = accuracy_of(history, facts), facts.trials
    found = fall(column, SHORT, WINDOW, trials)
    slow = found is None or found.ratio >= LOST
    if slow:
        found = fall(column, LONG, LONG, trials)
    if found is not None and found.ratio < (DECLINED if slow else LOST):
        yield Finding(
            "accuracy-collapse",
            found.since,
            f"accuracy in training was {found.before:.2f} and is {found.now:.2f}",
            "the policy loses what it could, little by little"
            if slow
            else "the policy has lost what it could: an update went too far, and what it writes now earns less",
            "go back to a checkpoint from before it, with a lower learning rate",
            slower(history),
        )


ENTROPY = ("kit/entropy", "entropy")


def entropy_explosion(history: History, facts: Facts) -> Iterator[Finding]:
    """Entropy far above that of the run's own start."""
    column = history.column(*ENTROPY)
    found = shift(column)
    if column.values and (hot := _hot(column)) and not has_improved(history, facts):
        yield Finding(
            "entropy-explosion",
            column.steps[0],
            f"entropy {hot:.2f} nats a token from the first step on, and accuracy has not risen",
            "the model does not know what to write: sampling is too warm, or its chat template is not the one it knows",
            "read a prompt and its completions (grpo-kit samples), and sample colder",
            "grpo.temperature=0.7" if (facts.temperature or 1.0) > COLD else None,
        )
        return
    before, now, since = (found.before, found.now, found.since) if found else _jump(column)
    if now > 2 * before and now - before > 0.3:
        yield Finding(
            "entropy-explosion",
            since,
            f"entropy {before:.2f} -> {now:.2f} nats a token",
            "the policy drifts towards noise: updates are too large, or bad completions are rewarded",
            "lower the learning rate, and go back to a checkpoint from before it; grpo.beta=0.04 holds it to the start",
            slower(history),
        )


HOT, COLD = 3.0, 0.7
"""Nats a token that no model which knows its task has, and a temperature that is not to blame for them."""


def _hot(column: Column) -> float | None:
    """The entropy of a run that has never had a usual one."""
    values = column.values
    return mean(values) if len(values) >= 2 * WINDOW and min(values[0], values[-1], mean(values)) > HOT else None


JUMP = 3.0
"""Times the run's first values that the last ones are at least where it is too early for a level."""


def _jump(column: Column) -> tuple[float, float, int]:
    """The first few values, the last few, and since when those are so much higher; alike where they are not."""
    first = column.values[:STEPS]
    before = sum(first) / STEPS
    since = column.lasting(lambda value: value > JUMP * before) if len(first) == STEPS else None
    return (before, sum(column.values[-STEPS:]) / STEPS, since) if since is not None else (0.0, 0.0, 0)


def entropy_collapse(history: History, facts: Facts) -> Iterator[Finding]:
    """Entropy far below that of the run's own start while most answers are wrong; else that is what learning does."""
    found, accuracy = shift(history.column(*ENTROPY)), level_of(history, facts)
    if found is None or found.ratio >= 0.1 or accuracy is None or accuracy >= 0.5:
        return
    clips = facts.updates is not None and facts.updates > 1
    yield Finding(
        "entropy-collapse",
        found.since,
        f"entropy {found.before:.2f} -> {found.now:.3f} nats a token at an accuracy of {accuracy:.2f}",
        "all completions have become alike before the answers were right",
        "let rare tokens grow (clip-higher)"
        if clips
        else "lower the learning rate, or pay for entropy with grpo.entropy_coef",
        "grpo.epsilon_high=0.28" if clips else slower(history),
    )


CLIPPED = 0.3


def clipping(history: History, facts: Facts) -> Iterator[Finding]:
    """Many tokens are clipped: their ratio to the policy that wrote them is out of bounds."""
    column = history.column("clip_ratio/region_mean")
    share = lately(column, STEPS)
    if share is None or share <= CLIPPED:
        return
    many = facts.updates is not None and facts.updates > 2
    repeated = many and facts.iterations is not None and facts.iterations > 1
    yield Finding(
        "clipping",
        column.lasting(lambda value: value > CLIPPED) or column.steps[-STEPS],
        f"{share:.0%} of tokens are clipped",
        "the policy has moved far from the one that wrote the completions"
        + (f": each rollout is used for {facts.updates:g} steps" if many else ""),
        "use each rollout less often" if repeated else "lower the learning rate; a wider grpo.epsilon only hides it",
        "grpo.num_iterations=1" if repeated else slower(history),
    )


KL = 1.0
"""Nats a token above which the policy has left the model it started from."""

SPIKE = 10.0
"""Times what was usual that a single step is called a spike."""


def kl(history: History, facts: Facts) -> Iterator[Finding]:
    """The distance to the reference model: a spike, or a steady climb."""
    column = history.column("kl")
    values = column.values
    if len(values) < STEPS or max(values[-STEPS:]) <= KL:
        return
    usual = middle(values[-WINDOW - STEPS : -STEPS] or values[:1])
    spike = sum(value > max(SPIKE * usual, KL) for value in values[-STEPS:]) > 1  # one is a completion out of few
    if not spike and min(values[-STEPS:]) <= KL:
        return
    found = None if spike else shift(column)
    since = next(at for at, value in zip(column.steps[-STEPS:], values[-STEPS:], strict=True) if value > KL)
    beta = facts.beta or 0.04
    yield Finding(
        "kl",
        found.since if found else column.lasting(lambda value: value > KL) or since,
        f"KL to the reference model {max(values[-STEPS:]):.2g} nats a token, "
        + (f"a spike: it was {usual:.2g}" if spike else "a steady climb" if found else "for some steps"),
        "one update threw the policy off" if spike else "the policy leaves the model it started from",
        "lower the learning rate" if spike else "hold it closer to the reference model, or lower the learning rate",
        slower(history) if spike else f"grpo.beta={2 * beta:.2g}",
    )
