"""From what a preflight measured to its verdict: go, adjust (and what to change), or stop. Pure functions."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo_kit.evaluation.difficulty import Difficulty

CUT = 0.1
"""Share of truncated completions above which the token budget is too small."""

EASIEST, HARDEST = 0.9, 0.1
"""Accuracies outside of these mean other data or another model, unless enough prompts are within."""

FLAT = 0.6
"""Share of flat groups above which most of a step's work teaches nothing."""

USELESS = 0.95
"""Share of flat groups above which a step is too seldom worth its time."""

ENOUGH = 20
"""Fewer prompts than this are said to be few."""

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

    `rates` are the measured pass rates, one per prompt, `rows` the training rows there are; `kept_flat` is the share of
    flat groups among prompts of middling difficulty, None where there are none; `masked`: cut completions are left out
    of the loss; `longer` is what a part of the prompts came to with `longer_limit` tokens each, where the recipe's
    budget cut too many.
    """

    max_completion_length: int
    prompts_per_rollout: int
    temperature: float
    rows: int
    rates: list[float]
    rate_file: str
    kept_flat: float | None = None
    masked: bool = False
    longer: Difficulty | None = None
    longer_limit: int = 0


def decide(found: Difficulty, about: Circumstances) -> Decision:
    """The verdict on a recipe whose untrained model came to these numbers."""
    if found.accuracy is None:
        return Decision("stop", ["no completion could be judged; test the rewards with grpo-kit rewards test"], [])
    longer, warmer = _longer(found, about), _warmer(found, about)
    changes = [*longer, *warmer]
    reasons = [change.reason for change in changes]
    seen = about.longer if longer and about.longer is not None else found
    too_short = found.truncated_share > CUT and not longer
    if too_short:
        reasons.append(_never_stops(found, about))
        if about.masked and found.truncated_share > USELESS:
            return Decision("stop", [*reasons, "and grpo.mask_truncated_completions leaves those out"], [])
    accuracy = seen.accuracy or 0.0
    if not accuracy and not found.accuracy and not seen.goal_varies and not warmer:
        return Decision("stop", [_nothing_right(seen), *_why_wrong(seen), *reasons], [])
    if not accuracy and not found.accuracy and seen.goal_varies:
        reasons.append(_graded(seen))
        if seen.flat.share > USELESS:
            return Decision("stop", [*reasons, f"{seen.flat.share:.0%} of groups are flat"], [])
    elif not changes and not too_short and not (HARDEST <= accuracy <= EASIEST and seen.flat.share <= FLAT):
        return _by_pass_rate(seen, about)
    return Decision("adjust" if changes or too_short else "go", [*reasons, *_few(found)], changes)


def _longer(found: Difficulty, about: Circumstances) -> list[Change]:
    """A token budget that cuts 5 % of the completions, or as few as the longest look did, where too many are cut."""
    longer = about.longer
    if longer is None or longer.truncated_share > found.truncated_share - CUT:
        return []
    enough = min(math.ceil(longer.tokens["p95"] / 8) * 8, about.longer_limit)
    still = max(longer.truncated_share, 0.05)
    reason = (
        f"{found.truncated_share:.0%} of completions are cut at {about.max_completion_length} tokens; "
        f"{enough} would cut about {still:.0%}"
    )
    return [Change("grpo.max_completion_length", enough, reason)]


def _never_stops(found: Difficulty, about: Circumstances) -> str:
    still = "" if about.longer is None else f", and {about.longer.truncated_share:.0%} at {about.longer_limit}"
    return (
        f"{found.truncated_share:.0%} of completions are cut at {about.max_completion_length} tokens{still}: "
        "the model seldom stops by itself; ask for a short answer, or take an instruct model"
    )


def _graded(found: Difficulty) -> str:
    return (
        f"the goal's reward varies, but gave full marks to none of {found.prompts} prompts x {found.samples}: accuracy "
        "will read 0 until it does (FULL_MARKS in its file)"
    )


def _few(found: Difficulty) -> list[str]:
    if found.prompts >= ENOUGH:
        return []
    return [f"only {found.prompts} prompts were sampled, so all this is rough: give more --rows"]


def _warmer(found: Difficulty, about: Circumstances) -> list[Change]:
    """What is measured with a cold sampler says little of a warm one, so nothing else is changed with it."""
    if found.duplicate_share <= COLD or about.temperature >= 1:
        return []
    share = f"{found.duplicate_share:.0%} of completions repeat another of their group"
    return [Change("grpo.temperature", 1.0, f"{share} at temperature {about.temperature:g}")]


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


def _by_pass_rate(found: Difficulty, about: Circumstances) -> Decision:
    """Keep the prompts that the model solves sometimes, where there are enough of them and their groups vary."""
    within = sum(HARDEST <= rate <= EASIEST for rate in about.rates)
    share, fits = within / len(about.rates), HARDEST <= (found.accuracy or 0) <= EASIEST
    matter = f"{found.flat.share:.0%} of groups are flat"
    if not fits:
        how = "easy" if (found.accuracy or 0) > EASIEST else "hard"
        matter = f"the model is right {found.accuracy:.0%} of the time: too {how} to learn from"
    hopeless = "go" if fits and found.flat.share <= USELESS else "stop"
    if about.kept_flat is not None and about.kept_flat > FLAT:
        too = f"{about.kept_flat:.0%} of those of middling difficulty too"
        why = f"{matter}, and {too}: are the rewards constant, or do they cancel each other?"
        return Decision(hopeless, [why, *_few(found)], [])
    if within * about.rows < about.prompts_per_rollout * len(about.rates) or share < 1 - USELESS:
        why = (
            f"{matter}, and only {within} of {len(about.rates)} prompts have a pass rate within {HARDEST:g} to "
            f"{EASIEST:g}: other data or another model is needed"
        )
        return Decision(hopeless, [why, *_few(found)], [])
    if within < about.prompts_per_rollout:
        wanted = min(math.ceil(2 * about.prompts_per_rollout / share), about.rows)
        more = f"{matter}; measure more prompts, --rows {wanted}, to have enough of middling difficulty to keep"
        return Decision("adjust", [more], [])
    measured = len(about.rates)
    left = f" of the {measured} measured; {about.rows - measured} more are not" if measured < about.rows else ""
    changes = [
        Change("dataset.pass_rate", [HARDEST, EASIEST], matter),
        Change("dataset.pass_rate_file", about.rate_file, f"it keeps {within} prompts{left}"),
    ]
    return Decision("adjust", [matter, *_few(found)], changes)
