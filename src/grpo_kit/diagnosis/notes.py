"""What a diagnosis does not say, and why: things that look like faults and are none, and what could not be seen."""

from collections.abc import Iterator

from grpo_kit.diagnosis.findings import FLAT, Facts
from grpo_kit.diagnosis.held_out import CONFIRMED
from grpo_kit.diagnosis.history import STEPS, History
from grpo_kit.diagnosis.length import TRUNCATED
from grpo_kit.diagnosis.policy import ENTROPY
from grpo_kit.diagnosis.rewards import abstains
from grpo_kit.diagnosis.trends import WINDOW, lately

NEEDS: dict[str, tuple[str, ...]] = {
    "not-finite": ("loss", "grad_norm"),
    "no-gradient": FLAT,
    "learning-rate-zero": ("learning_rate",),
    "gradient-spike": ("grad_norm",),
    "truncation": TRUNCATED,
    "length-growth, length-collapse": ("completions/mean_length",),
    "entropy-explosion, entropy-collapse": ENTROPY,
    "amplified-noise": ("kit/small_spread_share",),
    "slow-step": ("kit/seconds/step",),
    "slow-rewards": ("kit/seconds/rewards",),
    "padding": ("kit/padding_share",),
}
"""The metrics of which a finding needs one."""

CLIPS = "clip_ratio/region_mean"


def notes(history: History, facts: Facts) -> Iterator[str]:
    """One line each."""
    rollouts = len(history.column(*FLAT).values)
    if rollouts < 2 * WINDOW:
        yield f"changes of level are looked for from {2 * WINDOW} rollouts on, and there are {rollouts}"
    if not history.column("kl").values:
        off = "grpo.beta is 0" if facts.beta == 0 else "the log has no kl, which is so where beta is 0"
        yield f"KL is not computed: {off}"
    yield from _clips(history, facts)
    yield from _abstaining(history, facts)
    measured = len(history.evaluations)
    if facts.held_out is False:
        yield "no held-out rows (eval_dataset), so overfitting cannot be seen"
    elif measured <= CONFIRMED:
        enough = CONFIRMED + 1
        yield f"overfitting is looked for from {enough} held-out measurements on (eval_every), and there are {measured}"
    if facts.goal is None:
        yield "which reward means success is not known, so farmed-reward and dominating-reward are not looked for"
    elif not facts.others():
        yield "one reward alone: farmed-reward and dominating-reward need another"
    missing = [name for name, keys in NEEDS.items() if not history.column(*keys).values]
    if not any(key.endswith("/unscored_share") for key in history.columns):
        missing.append("unscored")
    if missing:
        yield f"not looked for, because their metrics are not there: {', '.join(missing)}"


def _abstaining(history: History, facts: Facts) -> Iterator[str]:
    for label in facts.full_marks:
        share = lately(history.column(f"kit/rewards/{label}/unscored_share"), STEPS)
        if share is not None and abstains(history, label):
            yield (
                f"{label} leaves {share:.0%} of completions unjudged, as from the first step on and none by its time "
                "limit: so does a reward that is for some of the rows"
            )


def _clips(history: History, facts: Facts) -> Iterator[str]:
    share = lately(history.column(CLIPS))
    if facts.updates == 1:
        yield "the clip share is 0 by construction: one update per rollout"
    elif facts.updates is not None and share is not None and share < 0.001:
        yield f"next to no token is clipped in {facts.updates:g} updates per rollout: each of them is small"
