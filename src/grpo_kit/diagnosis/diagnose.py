"""All symptoms that are looked for, and the findings of a run."""

import difflib
from collections.abc import Callable, Iterator

from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.diagnosis.gradient import gradient_spike, no_gradient
from grpo_kit.diagnosis.held_out import overfitting
from grpo_kit.diagnosis.history import History
from grpo_kit.diagnosis.length import length_collapse, length_growth, truncation
from grpo_kit.diagnosis.numbers import learning_rate_zero, lora_unmoved, not_finite
from grpo_kit.diagnosis.policy import accuracy_collapse, clipping, entropy_collapse, entropy_explosion, kl
from grpo_kit.diagnosis.rewards import amplified, dominating, farmed, unscored
from grpo_kit.diagnosis.speed import padding, slow_rewards, slow_step

SYMPTOMS: dict[str, Callable[[History, Facts], Iterator[Finding]]] = {
    "not-finite": not_finite,
    "no-gradient": no_gradient,
    "learning-rate-zero": learning_rate_zero,
    "lora-unmoved": lora_unmoved,
    "gradient-spike": gradient_spike,
    "accuracy-collapse": accuracy_collapse,
    "truncation": truncation,
    "farmed-reward": farmed,
    "dominating-reward": dominating,
    "amplified-noise": amplified,
    "unscored": unscored,
    "overfitting": overfitting,
    "length-growth": length_growth,
    "length-collapse": length_collapse,
    "entropy-explosion": entropy_explosion,
    "entropy-collapse": entropy_collapse,
    "kl": kl,
    "clipping": clipping,
    "slow-rewards": slow_rewards,
    "slow-step": slow_step,
    "padding": padding,
}
"""By the name of what they find, the gravest first."""

NAMES = tuple(SYMPTOMS)


def nearest(name: str) -> str:
    """What to write instead of a name that no finding has: the one that is meant, else all there are."""
    near = difflib.get_close_matches(name.lower().replace("_", "-").replace(" ", "-"), NAMES, n=1)
    return near[0] if near else f"one of {', '.join(NAMES)}"


def diagnose(history: History, facts: Facts) -> list[Finding]:
    """All that is wrong at the end of this history."""
    return [finding for symptom in SYMPTOMS.values() for finding in symptom(history, facts)]
