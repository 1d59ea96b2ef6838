"""Histories of runs that never were: healthy ones, and the same with a fault planted at a step."""

from collections.abc import Callable

import numpy as np

from grpo_kit.diagnosis.findings import Facts

FACTS = Facts(
    max_completion_length=200,
    full_marks={"accuracy": 1.0, "format": 1.0},
    goal="accuracy",
    weights={"accuracy": 1.0, "format": 0.3},
    loss_type="dapo",
)
COMPLETIONS = 64

Step = dict[str, float | int | None]


def healthy(seed: int, steps: int = 120) -> list[Step]:
    """A run that learns: accuracy up, entropy down, length as it was but for noise; each seed another task."""
    draw = np.random.default_rng(seed)
    start, end = draw.uniform(0.1, 0.5), draw.uniform(0.55, 0.95)
    form, entropy, length = draw.uniform(0.2, 0.9), draw.uniform(0.1, 0.45), draw.uniform(20, 150)
    longer = draw.uniform(0.8, 1.5)
    history = []
    for step in range(1, steps + 1):
        gone = 1 - np.exp(-step / draw.uniform(20, 40))
        accuracy = draw.binomial(COMPLETIONS, start + (end - start) * gone) / COMPLETIONS
        formatted = draw.binomial(COMPLETIONS, form + (0.98 - form) * gone) / COMPLETIONS
        seconds = draw.uniform(8, 12)
        history.append(
            {
                "step": step,
                "reward": accuracy + 0.3 * formatted,
                "rewards/accuracy/mean": accuracy,
                "rewards/accuracy/std": 0.4,
                "rewards/format/mean": formatted,
                "rewards/format/std": 0.3,
                "kit/accuracy": accuracy,
                "kit/flat_group_share": min(draw.binomial(8, 0.1 + 0.5 * gone) / 8, 0.875),
                "kit/truncated_share": draw.binomial(COMPLETIONS, 0.03) / COMPLETIONS,
                "completions/mean_length": length * (1 + (longer - 1) * gone) * draw.normal(1, 0.06),
                "kit/entropy": entropy * (1 - 0.75 * gone) * draw.normal(1, 0.1),
                "clip_ratio/region_mean": abs(draw.normal(0, 0.01)),
                "grad_norm": draw.uniform(0.2, 1.0),
                "kit/rewards/accuracy/unscored_share": 0.0,
                "kit/rewards/format/unscored_share": 0.0,
                "kit/seconds/step": seconds,
                "kit/seconds/rewards": draw.uniform(0.05, 0.4),
                "kit/seconds/rewards/accuracy": 0.05,
                "kit/seconds/rewards/format": 0.01,
            }
        )
    return history


def planted(seed: int, onset: int, fault: Callable[[Step, int], Step], steps: int = 120) -> list[Step]:
    """A healthy run until `onset`; from then on each step is what the fault makes of it, by the steps since."""
    return [step if step["step"] < onset else fault(step, int(step["step"]) - onset) for step in healthy(seed, steps)]


def frozen(step: Step, at: Step) -> Step:
    """A step in which accuracy has stopped rising."""
    own = {key: at[key] for key in ("rewards/accuracy/mean", "kit/accuracy")}
    return {**step, **own}
