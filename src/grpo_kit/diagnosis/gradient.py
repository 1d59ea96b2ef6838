"""No gradient at all, or one that has grown out of bounds."""

from collections.abc import Iterator

from grpo_kit.diagnosis.findings import FLAT, Facts, Finding
from grpo_kit.diagnosis.history import STEPS, History
from grpo_kit.diagnosis.length import TRUNCATED, longer
from grpo_kit.diagnosis.policy import slower
from grpo_kit.diagnosis.trends import WINDOW, mean, middle
from grpo_kit.stats import ROUNDING

NEARLY = 0.9
"""A share of completions or groups that stands for all of them."""


def no_gradient(history: History, facts: Facts) -> Iterator[Finding]:
    """Every group of completions is flat, so no completion is better than another."""
    since = history.column(*FLAT).lasting(lambda share: share == 1)
    if since is None:
        return
    reason, change, override = _reason(history, facts, since)
    spread = _share(history, "reward_std", since)
    healthy = f", though reward_std over the batch is {spread:.2g}" if spread > 0.01 else ""
    details = [_how_flat(history, label, full, since) for label, full in facts.full_marks.items()]
    said = [reason, *details] if reason else details
    yield Finding(
        "no-gradient",
        since,
        f"every group is flat{healthy}",
        f"no completion is better than another: {'; '.join(said) or 'all advantages are 0'}",
        change,
        override,
    )


TOO_FAR = "grpo-kit preflight RECIPE --apply NEW.yaml keeps the rows that are solved now and then"


def _reason(history: History, facts: Facts, since: int) -> tuple[str | None, str, str | None]:
    """Which of the known reasons makes all groups flat (None: none of them), what to change, and the override."""

    def nearly(*keys: str) -> bool:
        return any(_share(history, key, since) >= NEARLY for key in keys)

    if nearly("kit/all_wrong") and (once := _before(history, since)) > LOST:
        return (
            f"every completion is wrong, though {once:.0%} were right before: the policy has collapsed",
            "go back to an earlier checkpoint, with a lower learning rate",
            slower(history),
        )
    if nearly(*TRUNCATED):
        override = longer(history, facts)
        return "all completions are cut before their end", "raise the token budget", override
    same = nearly("kit/identical_group_share")
    if same and (facts.temperature is None or facts.temperature < 1):
        return "all completions of a prompt are the same text", "sample warmer", "grpo.temperature=1.0"
    if nearly("kit/all_right"):
        return f"every completion is right: the rows are too easy, or {facts.goal} pays for anything", TOO_FAR, None
    if same:
        return (
            f"all completions of a prompt are the same text at temperature {facts.temperature:g}: the policy collapsed",
            "go back to an earlier checkpoint, with a lower learning rate",
            slower(history),
        )
    if nearly("kit/unread_share"):
        return (
            "no answer is found in any completion",
            "ask for the form that the reward reads (dataset.system), and test it with grpo-kit rewards test",
            None,
        )
    if nearly("kit/all_wrong"):
        return (
            "every completion is wrong: the rows are too hard, or the reward never pays",
            f"{TOO_FAR}; grpo-kit rewards test says whether a right answer can earn the reward",
            None,
        )
    if _share(history, "kit/all_right", since) + _share(history, "kit/all_wrong", since) >= NEARLY:
        return "each prompt is solved always or never, or the reward does not look at the completion", TOO_FAR, None
    return None, "see the completions (grpo-kit samples) and test the rewards (grpo-kit rewards test)", None


LOST = 0.05
"""Accuracy before the groups became flat above which the rows were not too hard."""


def _before(history: History, since: int) -> float:
    """The accuracy over the last steps before one; 0 where there were none."""
    accuracy = history.column("kit/accuracy")
    place = len(accuracy.values) - len(accuracy.since(since))
    return mean(accuracy.values[max(place - WINDOW, 0) : place]) if place else 0.0


def _share(history: History, key: str, since: int) -> float:
    """The mean of a share from a step on; 0 where the run does not have it."""
    values = history.column(key).since(since)
    return mean(values) if values else 0.0


def _how_flat(history: History, label: str, full_marks: float, since: int) -> str:
    """In which way a reward says nothing about which completion of a group is better."""
    means, spreads = (history.column(f"rewards/{label}/{part}").since(since) for part in ("mean", "std"))
    if not means:
        return f"{label} judges nothing"
    scale = max(1.0, *map(abs, means))
    if max(means) - min(means) > ROUNDING * scale or max(spreads, default=0.0) > ROUNDING * scale:
        return f"{label} is equal inside every group, though it differs between groups"
    if max(spreads, default=0.0) > 0:
        return f"{label} is numerically flat: {means[-1]:g}, give or take {max(spreads):.0e}, which is rounding"
    if means[-1] == 0:
        return f"{label} is always zero"
    return (
        f"{label} gives always full marks" if means[-1] >= full_marks - ROUNDING else f"{label} is always {means[-1]:g}"
    )


SPIKE = 10.0
"""Times the run's own start that a norm of the gradient is spoken of."""


def gradient_spike(history: History, facts: Facts) -> Iterator[Finding]:
    """The norm of the gradient is far above that of the run's own start; steps without a gradient do not count."""
    norms = history.column("grad_norm")
    first = [norm for norm in norms.values[: 2 * WINDOW] if norm][:WINDOW]
    if len(norms.values) < WINDOW + STEPS or len(first) < WINDOW // 2:
        return
    usual = middle(first)
    since = norms.lasting(lambda norm: norm > SPIKE * usual)
    if since is not None:
        yield Finding(
            "gradient-spike",
            since,
            f"the norm of the gradient is {norms.values[-1]:.3g}, {usual:.2g} at first",
            "updates are thrown about: grpo.max_grad_norm bounds their size, not their direction",
            "lower the learning rate",
            slower(history),
        )
