"""Numbers that are not finite, a learning rate of 0, an adapter that does not move."""

from collections.abc import Iterator

from grpo_kit.diagnosis.findings import FLAT, Facts, Finding
from grpo_kit.diagnosis.history import STEPS, History
from grpo_kit.diagnosis.policy import slower
from grpo_kit.diagnosis.trends import mean
from grpo_kit.errors import NotFiniteError


def not_finite(history: History, facts: Facts) -> Iterator[Finding]:
    """The first step whose loss or gradient was no number; in fp16 a norm that overflows is how its scaling works."""
    broken = [(step, key) for step, key in history.broken if not (facts.fp16 and key == "grad_norm")]
    if broken:
        first = broken[0][0]
        what = " and ".join(dict.fromkeys(key for step, key in broken if step == first))
        yield Finding(
            "not-finite",
            first,
            f"{what} of step {first} is NaN or infinite, and of {len({step for step, _ in broken})} steps in all",
            "from there on the weights are lost",
            "go back to a checkpoint from before it, with a lower learning rate",
            slower(history),
        )
    elif facts.ended is not None and facts.ended.startswith(NotFiniteError.__name__):
        yield Finding(
            "not-finite",
            (history.steps[-1] if history.steps else 0) + 1,
            facts.ended.removeprefix(f"{NotFiniteError.__name__}: "),
            "the run ended there, before it could learn from it",
            "go on from the last good checkpoint, with a lower learning rate",
            slower(history),
        )


def learning_rate_zero(history: History, facts: Facts) -> Iterator[Finding]:
    """Steps that change nothing: the rate was set to 0, or its schedule has ended."""
    rates = history.column("learning_rate")
    since = rates.lasting(lambda rate: rate == 0)
    if since is None:
        return
    ended = max(rates.values) > 0
    yield Finding(
        "learning-rate-zero",
        since,
        f"the learning rate is 0{' again' if ended else ''}",
        "its schedule has come to its end" if ended else "steps are computed, and change nothing",
        "take a schedule that does not end" if ended else "set a learning rate",
        "grpo.lr_scheduler_type=constant_with_warmup"
        if ended
        else f"grpo.learning_rate={'1e-5' if facts.lora else '1e-6'}",
    )


def lora_unmoved(history: History, facts: Facts) -> Iterator[Finding]:
    """LoRA's B matrices begin at 0; after steps with a learning rate and groups that differ they cannot be there."""
    column = history.column("kit/lora_b_max")
    since = column.lasting(lambda largest: largest == 0)
    if since is None:
        return
    rates, flat = history.column("learning_rate").since(since), history.column(*FLAT).since(since)
    if sum(rate > 0 for rate in rates) >= STEPS and flat and mean(flat) < 1:
        yield Finding(
            "lora-unmoved",
            since,
            f"every entry of LoRA's B matrices is still 0 after {len(column.values)} steps",
            "the adapter gets no gradient: the model computed is still the base model",
            "adapt layers that the forward uses",
            "lora.target_modules=all-linear",
        )
