"""No gradient at all, or one that has grown out of bounds."""

import itertools
from collections.abc import Iterator

from grpo_kit.diagnosis.chance import groups_of, steps_beyond_chance, usually_flat
from grpo_kit.diagnosis.findings import FLAT, Facts, Finding
from grpo_kit.diagnosis.history import STEPS, Column, History
from grpo_kit.diagnosis.length import TRUNCATED, longer
from grpo_kit.diagnosis.policy import slower
from grpo_kit.diagnosis.rewards import accuracy_of, has_improved, level_of
from grpo_kit.diagnosis.trends import WINDOW, lately, mean, middle
from grpo_kit.stats import ROUNDING

NEARLY = 0.9
"""A share of completions or groups that stands for all of them."""


def no_gradient(history: History, facts: Facts) -> Iterator[Finding]:
    """Every group of completions is flat, so no completion is better than another; or the gradient is next to 0."""
    since, share = _flat_since(history, facts)
    if since is None:
        yield from _vanished(history)
        return
    reason, change, override = _reason(history, facts, since)
    spread = _share(history, "reward_std", since)
    healthy = f", though reward_std over the batch is {spread:.2g}" if spread > 0.01 else ""
    details = [_how_flat(history, label, full, since) for label, full in facts.full_marks.items()]
    if reason is not None and (share < 1 or _share(history, "kit/all_right", since) >= NEARLY):
        details = [said for said in details if "always" in said]  # what is left between groups is no reason
    said = [reason, *details] if reason else details
    yield Finding(
        "no-gradient",
        since,
        f"every group is flat{healthy}" if share == 1 else f"{share:.0%} of groups are flat, and nothing gets better",
        f"no completion is better than another: {'; '.join(said) or 'all advantages are 0'}",
        change,
        override,
    )


SOME_STEPS, SOME_GROUPS = 20, 160
"""Rollouts, and groups, at least over which nearly all groups are flat."""

NEARLY_FLAT, MOSTLY_FLAT = 0.95, 0.85
"""Shares of flat groups over these: in general, and where nothing is right, so that the others differ in form alone."""


def _flat_since(history: History, facts: Facts) -> tuple[int | None, float]:
    """Since when all groups have been flat for longer than chance has it, or nearly all in vain; and which share is."""
    column, groups = history.column(*FLAT), groups_of(history, facts)
    since = column.lasting(lambda share: share == 1)
    if since is not None:
        lasted = len(column.since(since))
        before = len(column.values) - lasted
        usual = usually_flat(column, before) if before or facts.group == 2 else AT_FIRST  # pairs are often flat
        if lasted >= steps_beyond_chance(usual, groups):
            return since, 1.0
    count = max(SOME_STEPS, -(-SOME_GROUPS // groups))
    share, lost = lately(column, count), _nothing_right(history, facts, count)
    if share is None or share < (MOSTLY_FLAT if lost else NEARLY_FLAT) or has_improved(history, facts):
        return None, 0.0
    return lost or column.steps[-count], share


def _nothing_right(history: History, facts: Facts, count: int = STEPS) -> int | None:
    """Since when nothing at all has earned the goal, for so many values."""
    right = accuracy_of(history, facts).lasting(lambda share: share == 0, count)
    return right if level_of(history, facts) == 0 else None


AT_FIRST = 0.25
"""Stands for the usual share of flat groups where all have been flat from the first step on: there is one such look in
a run, so ten groups in a row will do (0.5^10, a thousandth)."""


TINY = 1e-6
"""A norm of the gradient that moves nothing: where groups differ, advantages are about 1."""


def _vanished(history: History) -> Iterator[Finding]:
    """Groups differ, and there is no gradient all the same."""
    norms, flat = history.column("grad_norm"), lately(history.column(*FLAT))
    since = norms.lasting(lambda norm: norm < TINY, WINDOW)
    if since is not None and flat is not None and flat < NEARLY:
        yield Finding(
            "no-gradient",
            since,
            f"the norm of the gradient is {norms.values[-1]:.0e}, though {1 - flat:.0%} of groups are not flat",
            "what is learned from does not reach the weights that are trained",
            "see which weights are trained (lora.target_modules), and whether the loss counts any token",
        )


COLD = 0.5
"""A temperature so low that completions are alike because of it, whatever the policy has learned."""

TOO_FAR = "grpo-kit preflight RECIPE --apply NEW.yaml keeps the rows that are solved now and then"


def _reason(history: History, facts: Facts, since: int) -> tuple[str | None, str, str | None]:
    """Which of the known reasons makes all groups flat (None: none of them), what to change, and the override."""

    def nearly(*keys: str) -> bool:
        return any(_share(history, key, since) >= NEARLY for key in keys)

    wrong = nearly("kit/all_wrong") or _nothing_right(history, facts) is not None
    if wrong and (once := _before(history, since)) > LOST:
        return (
            f"every completion is wrong, though {once:.0%} were right before: the policy has collapsed",
            "go back to an earlier checkpoint, with a lower learning rate",
            slower(history),
        )
    if nearly(*TRUNCATED):
        override = longer(history, facts)
        return "all completions are cut before their end", "raise the token budget", override
    same = nearly("kit/identical_group_share")
    cold = same and facts.temperature is not None and facts.temperature <= COLD
    if nearly("kit/all_right") and not cold:
        return _all_right(history, facts, since)
    if same and (facts.temperature is None or facts.temperature < 1):
        return "all completions of a prompt are the same text", "sample warmer", "grpo.temperature=1.0"
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
    if wrong:
        return (
            "every completion is wrong: the rows are too hard, or the reward never pays",
            f"{TOO_FAR}; grpo-kit rewards test says whether a right answer can earn the reward",
            None,
        )
    if _share(history, "kit/all_right", since) + _share(history, "kit/all_wrong", since) >= NEARLY:
        return "each prompt is solved always or never, or the reward does not look at the completion", TOO_FAR, None
    return None, "see the completions (grpo-kit samples) and test the rewards (grpo-kit rewards test)", None


def _all_right(history: History, facts: Facts, since: int) -> tuple[str, str, str | None]:
    """Solved in this run, or from the start."""
    accuracy = history.column("kit/accuracy").values
    if accuracy and mean(accuracy[:WINDOW]) < NEARLY and _before(history, since) > 0:
        return (
            f"every completion is right, {mean(accuracy[:WINDOW]):.0%} were at first: the task is solved",
            "stop here, or take harder rows",
            None,
        )
    return f"every completion is right: the rows are too easy, or {facts.goal} pays for anything", TOO_FAR, None


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


def _first_norms(history: History, facts: Facts, norms: Column) -> list[float]:
    """The norms of the first steps that had something to learn from: groups that differ, some answers right."""
    right = accuracy_of(history, facts)
    idle = {step for step, share in _pairs(history.column(*FLAT)) if share == 1}
    if any(right.values):
        idle |= {step for step, share in _pairs(right) if share == 0}
    learning = (norm for step, norm in _pairs(norms) if norm and step not in idle)
    return list(itertools.islice(learning, WINDOW))


def _pairs(column: Column) -> Iterator[tuple[int, float]]:
    return zip(column.steps, column.values, strict=True)


def gradient_spike(history: History, facts: Facts) -> Iterator[Finding]:
    """The norm of the gradient is far above that of the run's own start; steps without a gradient do not count."""
    norms = history.column("grad_norm")
    first = _first_norms(history, facts, norms)
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
