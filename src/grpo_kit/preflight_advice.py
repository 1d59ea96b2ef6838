"""From what a preflight measured to its verdict: go, adjust (and what to change), or stop. Pure functions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo_kit.difficulty import Difficulty

CUT = 0.1
"""Share of truncated completions above which the token budget is too small."""

EASIEST, HARDEST = 0.9, 0.1
"""Accuracies outside of these mean other data or another model, unless enough prompts are within."""

FLAT = 0.6
"""Share of flat groups above which most of a step's work teaches nothing."""

USELESS = 0.95
"""Share of flat groups above which a step is too seldom worth its time."""

COLD = 0.5
"""Share of completions that repeat another of their group above which sampling is too cold."""


@dataclass(frozen=True)
class Change:
    """One dotted override of the recipe, and why."""

    key: str
    value: Any
    reason: str

    def override(self) -> str:
        """As the command line takes it; without spaces, so that a shell keeps it whole."""
        return f"{self.key}={str(self.value).replace(' ', '')}"


@dataclass(frozen=True)
class Decision:
    """`verdict` is go, adjust or stop; `changes` are the recipe patch, none where it says stop."""

    verdict: str
    reasons: list[str]
    changes: list[Change]


@dataclass(frozen=True)
class Circumstances:
    """What the measurement does not say itself.

    `rates` are the measured pass rates, one per prompt, `rows` the training rows there are; `longer` is what a part of
    the prompts came to with `longer_limit` tokens each, where the recipe's budget cut too many.
    """

    group: int
    max_completion_length: int
    prompts_per_rollout: int
    temperature: float
    rows: int
    rates: list[float]
    rate_file: str
    longer: Difficulty | None = None
    longer_limit: int = 0


def decide(found: Difficulty, about: Circumstances) -> Decision:
    """The verdict on a recipe whose untrained model came to these numbers."""
    if found.accuracy is None:
        return Decision("stop", ["no completion could be judged; test the rewards with grpo-kit rewards test"], [])
    changes = [*_longer(found, about), *_warmer(found, about)]
    lengthened = any(change.key == "grpo.max_completion_length" for change in changes)
    seen = about.longer if lengthened and about.longer is not None else found
    reasons = [change.reason for change in changes] or list(_never_stops(found, about))
    if not seen.accuracy:
        return Decision("stop", [_nothing_right(seen), *_why_wrong(seen), *reasons], [])
    fits = HARDEST <= seen.accuracy <= EASIEST
    if (not fits or seen.flat.share > FLAT) and not lengthened:
        chosen, reason = _by_pass_rate(seen, about)
        reasons.append(reason)
        if chosen is None and (not fits or seen.flat.share > USELESS):
            return Decision("stop", reasons, [])
        if chosen == [] and not changes:
            return Decision("adjust", reasons, [])  # what to do is to measure more
        changes += chosen or []
    return Decision("adjust" if changes else "go", reasons, changes)


def _longer(found: Difficulty, about: Circumstances) -> Iterator[Change]:
    """A token budget that cuts 5 % of the completions, where the present one cuts too many."""
    longer = about.longer
    if found.truncated_share > CUT and longer is not None and longer.truncated_share < found.truncated_share / 2:
        enough = min(math.ceil(longer.tokens["p95"] / 8) * 8, about.longer_limit)
        yield Change(
            "grpo.max_completion_length",
            enough,
            f"{found.truncated_share:.0%} of completions are cut at {about.max_completion_length} tokens; "
            f"{enough} would cut about 5%",
        )


def _never_stops(found: Difficulty, about: Circumstances) -> Iterator[str]:
    if found.truncated_share > CUT:
        still = "" if about.longer is None else f", and {about.longer.truncated_share:.0%} at {about.longer_limit}"
        yield (
            f"{found.truncated_share:.0%} of completions are cut at {about.max_completion_length} tokens{still}: "
            "the model seldom stops by itself; ask for a short answer, or take an instruct model"
        )


def _warmer(found: Difficulty, about: Circumstances) -> Iterator[Change]:
    if found.duplicate_share > COLD and about.temperature < 1:
        yield Change(
            "grpo.temperature",
            1.0,
            f"{found.duplicate_share:.0%} of completions repeat another of their group at temperature "
            f"{about.temperature:g}",
        )


def _nothing_right(found: Difficulty) -> str:
    return f"nothing at all was right in {found.prompts} prompts x {found.samples}, so there is nothing to reinforce"


def _why_wrong(found: Difficulty) -> Iterator[str]:
    """Of completions none of which is right, what most of them are."""
    if found.form.right_unread:
        yield (
            f"{found.form.right_unread:.0%} of completions end at the gold answer, but not where the goal's reward "
            "looks for it: ask for that form in the prompt"
        )
    if found.flat.all_truncated > 0.5:
        yield "most groups are cut before an answer"
    elif found.flat.all_unreadable > 0.5:
        yield "in most groups no answer could be read"
    elif not found.form.right_unread:
        yield "other data or another model is needed"


def _by_pass_rate(found: Difficulty, about: Circumstances) -> tuple[list[Change] | None, str]:
    """Keep the prompts that the model solves sometimes; and what is the matter.

    None where there are not enough of them; no changes where more have to be measured first.
    """
    within = sum(HARDEST <= rate <= EASIEST for rate in about.rates)
    share = within / len(about.rates)
    matter = f"{found.flat.share:.0%} of groups are flat"
    if not HARDEST <= (found.accuracy or 0) <= EASIEST:
        easy = (found.accuracy or 0) > EASIEST
        matter = f"the model is right {found.accuracy:.0%} of the time: too {'easy' if easy else 'hard'} to learn from"
    if within * about.rows < about.prompts_per_rollout * len(about.rates) or share < 1 - USELESS:
        return None, (
            f"{matter}, and only {within} of {len(about.rates)} prompts have a pass rate within {HARDEST:g} to "
            f"{EASIEST:g}: other data or another model is needed"
        )
    if within < about.prompts_per_rollout:
        wanted = min(math.ceil(2 * about.prompts_per_rollout / share), about.rows)
        return [], f"{matter}; measure more prompts, --rows {wanted}, to have enough of middling difficulty to keep"
    measured = len(about.rates)
    left = f" of the {measured} measured; {about.rows - measured} more are not" if measured < about.rows else ""
    return [
        Change("dataset.pass_rate", [HARDEST, EASIEST], matter),
        Change("dataset.pass_rate_file", about.rate_file, f"it keeps {within} prompts{left}"),
    ], matter
