"""Histories of runs that never were: healthy ones, and the same with a fault planted at a step."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.findings import Facts, Finding
from grpo_kit.diagnosis.history import History

FACTS = Facts(
    max_completion_length=200,
    full_marks={"accuracy": 1.0, "format": 1.0},
    goal="accuracy",
    weights={"accuracy": 1.0, "format": 0.3},
    loss_type="dapo",
    beta=0.04,
    temperature=1.0,
    updates=2.0,
    scale_rewards="group",
    iterations=2.0,
    completions=64,
    group=8,
    lora=True,
    held_out=True,
)
SHAPES = ((4, 4), (8, 8), (16, 8), (64, 8))
"""Completions of a rollout, and of a prompt."""

COMPLETIONS, GROUP = SHAPES[-1]
HELD_OUT, EVERY = 100, 5
STEPS, LONG = 120, 500
ALIKE = 0.4
"""The correlation of scores within a group."""

Step = dict[str, float | int | None]


@dataclass(frozen=True)
class Made:
    """A history: steps, and the held-out measurements, each made before the step that follows it."""

    steps: tuple[Step, ...]
    evaluations: tuple[dict, ...]

    def looked_at(self, first: int = 1, last: int = LONG) -> Iterator[tuple[int, History]]:
        """The history as it is after each step from `first` to `last`; one that grows."""
        history, measured = History(), 0
        for step in self.steps[:last]:
            history.add(step)
            known = [one for one in self.evaluations if one["step"] < step["step"]]
            if len(known) != measured:
                measured = len(known)
                history.measured(known)
            if step["step"] >= first:
                yield step["step"], history

    def found(self, facts: Facts = FACTS, at: int = STEPS) -> dict[str, Finding]:
        """What is found at a step."""
        [(_, history)] = self.looked_at(at, at)
        return {finding.name: finding for finding in diagnose(history, facts)}


@cache
def healthy(seed: int, steps: int = STEPS, shape: tuple[int, int] = SHAPES[-1]) -> Made:
    """A run that learns: accuracy up, entropy down, length much as it was; noise that lasts for some steps.

    Each seed is another task, each shape another batch: fewer completions, more noise. Levels are those of real runs
    of 0.5B models: entropy 0.1 to 0.45 nats and falling, a norm of the gradient that may rise to three times its start,
    up to 8 % of completions cut.
    """
    draw, (completions, group) = np.random.default_rng(seed), shape
    groups, rough = completions // group, math.sqrt(COMPLETIONS / completions)
    start, end = draw.uniform(0.1, 0.5), draw.uniform(0.55, 0.95)
    form, entropy, length = draw.uniform(0.2, 0.9), draw.uniform(0.1, 0.45), draw.uniform(20, 150)
    longer, pace, cut = draw.uniform(0.8, 1.5), draw.uniform(20, 40), draw.uniform(0, 0.08)
    norm, rougher, spare = draw.uniform(0.1, 1.0), draw.uniform(0.7, 3), draw.uniform(0.03, 0.35)
    kl, tail, transfer = draw.uniform(0.01, 0.3), draw.uniform(1.5, 4), draw.uniform(0.8, 1.0)
    drift, made, evaluations = 0.0, [], []
    for step in range(1, steps + 1):
        gone = 1 - np.exp(-step / pace)
        drift = 0.7 * drift + draw.normal(0, 0.02)  # some batches are harder, for a while
        level = float(np.clip(start + (end - start) * gone + drift, 0.02, 0.98))
        odds = 1 / ALIKE - 1  # of a beta distribution whose draws make completions of a group so much alike
        right = draw.binomial(group, draw.beta(odds * level, odds * (1 - level), size=groups))  # (groups,)
        accuracy = right.sum() / completions
        formatted = draw.binomial(completions, form + (0.98 - form) * gone) / completions
        all_right, all_wrong = (right == group).mean(), (right == 0).mean()
        flat = all_right + all_wrong
        mean = length * (1 + (longer - 1) * gone) * draw.lognormal(0, 0.06 * rough)
        longest = mean * tail * draw.uniform(0.8, 1.2)
        share = float(np.clip(draw.normal(spare, 0.1 * rough), 0, 1))
        generation, rewards, update = draw.uniform(5, 7), draw.uniform(0.05, 0.4), draw.uniform(3, 5)
        measured = step % EVERY == 1 and step > 1
        metrics = {
            "step": step,
            "loss": draw.normal(0, 0.01),
            "learning_rate": 1e-5 * min((step - 1) / 10, 1),
            "grad_norm": norm * (1 + (rougher - 1) * gone) * draw.lognormal(0, 0.3) * float(flat < 1),
            "kl": kl * gone * draw.lognormal(0, 0.3 * math.sqrt(rough)),
            "reward": accuracy + 0.3 * formatted,
            "reward_std": 0.4,
            "rewards/accuracy/mean": accuracy,
            "rewards/accuracy/std": 0.4,
            "rewards/format/mean": formatted,
            "rewards/format/std": 0.3,
            "kit/accuracy": accuracy,
            "kit/flat_group_share": flat,
            "kit/all_right": all_right,
            "kit/all_wrong": all_wrong,
            "kit/truncated_share": draw.binomial(completions, cut) / completions,
            "kit/unread_share": draw.binomial(completions, 0.05) / completions,
            "kit/identical_group_share": draw.binomial(groups, 0.2 * gone) / groups,
            "kit/small_spread_share": draw.binomial(groups, 0.03) / groups,
            "kit/padding_share": 1 - mean / longest,
            "kit/tokens_p50": 0.9 * mean,
            "kit/tokens_p95": 0.8 * longest,
            "completions/mean_length": mean,
            "completions/max_length": longest,
            "kit/entropy": entropy * (1 - 0.75 * gone) * draw.lognormal(0, 0.1 * math.sqrt(rough)),
            "clip_ratio/region_mean": abs(draw.normal(0, 0.01)),
            "kit/rewards/accuracy/unscored_share": 0.0,
            "kit/rewards/format/unscored_share": 0.0,
            "kit/rewards/accuracy/variance_share": 1 - share,
            "kit/rewards/format/variance_share": share,
            "kit/seconds/step": generation + rewards + update,
            "kit/seconds/generation": generation,
            "kit/seconds/rewards": rewards,
            "kit/seconds/update": update,
            "kit/seconds/rewards/accuracy": 0.05,
            "kit/seconds/rewards/format": 0.01,
            "kit/seconds/between": draw.uniform(0.1, 0.3) + (10.0 if measured else 0.0),
            **({"kit/lora_b_max": 0.0 if step == 1 else 1e-5} if step <= 2 else {}),
        }
        made.append({key: value if key == "step" else float(value) for key, value in metrics.items()})
        if step % EVERY == 0:
            evaluations.append(evaluation(step, transfer * (start + (end - start) * gone), draw))
    return Made(tuple(made), (evaluation(0, transfer * start, draw), *evaluations))


def evaluation(step: int, level: float, draw: np.random.Generator) -> dict:
    """A held-out measurement of 100 prompts x 4: completions of a prompt are alike, so they count as 200."""
    accuracy = float(draw.binomial(2 * HELD_OUT, min(max(level, 0.0), 1.0))) / (2 * HELD_OUT)
    half = 1.96 * max(math.sqrt(accuracy * (1 - accuracy) / (2 * HELD_OUT)), 0.01)
    return {"step": step, "accuracy": accuracy, "ci95": [accuracy - half, accuracy + half]}


Change = Callable[[Step, int], dict]
"""From a step and how many there were since the onset (below 0: before it) to the metrics that are different."""


def changed(seed: int, onset: int, change: Change) -> Made:
    """A healthy run of which every step has some other metrics."""
    run = healthy(seed)
    return Made(tuple({**s, **change(s, int(s["step"]) - onset)} for s in run.steps), run.evaluations)


def planted(seed: int, onset: int, change: Change) -> Made:
    """A healthy run until `onset`, and a faulty one from then on."""
    return changed(seed, onset, lambda step, since: change(step, since) if since >= 0 else {})


def stagnant(seed: int, onset: int, change: Change) -> Made:
    """A run whose rewards stand still from the start, and which is faulty besides from the onset on."""
    still = {"rewards/format/mean": 0.6}
    return changed(
        seed,
        onset,
        lambda step, since: {**still, **stuck({**step, **still}), **(change(step, since) if since >= 0 else {})},
    )


def ramp(since: int, steps: int = 10) -> float:
    """From 0 to 1 over so many steps from the onset on."""
    return min(max(since + 1, 0) / steps, 1.0)


def stuck(step: Step, accuracy: float = 0.3) -> dict:
    """A step whose accuracy does not rise."""
    wave = accuracy + 0.02 * math.sin(int(step["step"]))
    return {
        "kit/accuracy": wave,
        "rewards/accuracy/mean": wave,
        "reward": wave + 0.3 * float(step["rewards/format/mean"] or 0),
    }


def overfitted(seed: int, onset: int, loss: float) -> Made:
    """Training goes on as it was; held-out accuracy loses so much over ten steps from the onset on."""
    run, draw = healthy(seed), np.random.default_rng(seed)
    peak = max(one["accuracy"] for one in run.evaluations if one["step"] <= onset)
    later = [one["step"] for one in run.evaluations if one["step"] > onset]
    fallen = (evaluation(step, peak - loss * ramp(step - onset), draw) for step in later)
    return Made(run.steps, (*(one for one in run.evaluations if one["step"] <= onset), *fallen))


def farming(seed: int, onset: int, rise: float) -> Made:
    """Accuracy stands still from the start; from the onset on format is learned, from 0.3 up by so much."""

    def change(step: Step, since: int) -> dict:
        form = 0.3 + 0.02 * math.sin(int(step["step"])) + rise * ramp(since)
        own = {"rewards/format/mean": form}
        return {**own, **stuck({**step, **own})}

    return changed(seed, onset, change)


def noisily(seed: int, onset: int, share: float, key: str) -> Made:
    """A share is about so much in each step from the onset on."""
    draw = np.random.default_rng(seed)
    return planted(seed, onset, lambda step, since: {key: draw.binomial(COMPLETIONS, share) / COMPLETIONS})


def broken(seed: int, onset: int, share: float) -> Made:
    """The norm of the gradient is no number at the onset, and in so large a share of the steps after it."""
    draw = np.random.default_rng(seed)
    return planted(seed, onset, lambda step, since: {"grad_norm": None} if not since or draw.random() < share else {})


def flat(seed: int, onset: int, share: float) -> Made:
    """In so large a share of the steps all groups are flat: each prompt is solved always or never."""
    draw = np.random.default_rng(seed)
    solved = {"kit/flat_group_share": 1.0, "kit/all_right": 0.5, "kit/all_wrong": 0.5}
    return planted(seed, onset, lambda step, since: solved if draw.random() < share else {})


def slowed(key: str, times: float) -> Change:
    """One part of a step takes so many times as long."""

    def change(step: Step, since: int) -> dict:
        more = (times - 1) * float(step[key] or 0)
        return {key: float(step[key] or 0) + more, "kit/seconds/step": float(step["kit/seconds/step"] or 0) + more}

    return change


def plant(change: Callable[[Step, int, float], dict], into: Callable[..., Made] = planted) -> Callable[..., Made]:
    """A fault whose strength is a number."""
    return lambda seed, onset, strength: into(seed, onset, lambda step, since: change(step, since, strength))


def stretched(key: str, steps: int = 10) -> Callable[..., Made]:
    """A run that does not get better, and in which a metric comes to so many times what it was."""
    return plant(
        lambda step, since, times: {key: float(step[key] or 0) * (1 + (times - 1) * ramp(since, steps))}, stagnant
    )


def never_moved(seed: int, onset: int, share: float) -> Made:
    """The adapter is at 0, which is looked at from the onset on; so large a share of groups is flat."""
    faulty = {"kit/lora_b_max": 0.0, "kit/flat_group_share": share}
    return changed(seed, onset, lambda step, since: faulty if since >= 0 else {"kit/lora_b_max": None})


def worse(step: Step, times: float) -> dict:
    """So many times the accuracy."""
    right = times * float(step["kit/accuracy"] or 0)
    more = right - float(step["kit/accuracy"] or 0)
    return {"kit/accuracy": right, "rewards/accuracy/mean": right, "reward": float(step["reward"] or 0) + more}


def outlier(step: Step, times: float) -> dict:
    """One completion is so many times as long as 95 % of them are."""
    longest = times * float(step["kit/tokens_p95"] or 0)
    return {
        "completions/max_length": longest,
        "kit/padding_share": 1 - float(step["completions/mean_length"] or 0) / longest,
    }


FAULTS: dict[str, tuple[Callable[[int, int, float], Made], tuple[float, float, float, float], str]] = {
    "not-finite": (broken, (0.0, 0.1, 0.5, 1.0), "norm not finite once, and in 10, 50, 100 % of steps after"),
    "no-gradient": (flat, (0.5, 0.7, 0.95, 1.0), "all groups flat in 50, 70, 95, 100 % of steps"),
    "learning-rate-zero": (
        plant(lambda step, since, over: {"learning_rate": 1e-5 * max(1 - (since + 1) / over, 0)}),
        (30, 20, 10, 1),
        "the rate falls to 0 over 30, 20, 10, 1 steps",
    ),
    "lora-unmoved": (never_moved, (0.9, 0.6, 0.3, 0.0), "B at 0 with 90, 60, 30, 0 % of groups flat"),
    "gradient-spike": (
        plant(lambda step, since, times: {"grad_norm": times * step["grad_norm"]}),
        (5, 15, 40, 200),
        "norm x 5, 15, 40, 200",
    ),
    "accuracy-collapse": (
        plant(lambda step, since, times: worse(step, 1 + (times - 1) * ramp(since, 5))),
        (0.8, 0.6, 0.3, 0.05),
        "x 0.8, 0.6, 0.3, 0.05 over five steps",
    ),
    "truncation": (
        lambda seed, onset, share: noisily(seed, onset, share, "kit/truncated_share"),
        (0.2, 0.4, 0.7, 1.0),
        "20, 40, 70, 100 % cut",
    ),
    "farmed-reward": (farming, (0.15, 0.3, 0.5, 0.7), "format up by 0.15, 0.3, 0.5, 0.7, accuracy not"),
    "dominating-reward": (
        plant(lambda step, since, share: {"kit/rewards/format/variance_share": share}, stagnant),
        (0.5, 0.75, 0.9, 0.98),
        "50, 75, 90, 98 % of the variance",
    ),
    "amplified-noise": (
        lambda seed, onset, share: noisily(seed, onset, share, "kit/small_spread_share"),
        (0.15, 0.3, 0.6, 0.9),
        "15, 30, 60, 90 % of groups",
    ),
    "unscored": (
        lambda seed, onset, share: noisily(seed, onset, share, "kit/rewards/accuracy/unscored_share"),
        (0.08, 0.2, 0.5, 1.0),
        "8, 20, 50, 100 % unjudged",
    ),
    "overfitting": (overfitted, (0.05, 0.1, 0.2, 0.3), "held-out down by 0.05, 0.1, 0.2, 0.3 in ten steps"),
    "length-growth": (
        stretched("completions/mean_length"),
        (1.5, 2.5, 4, 8),
        "x 1.5, 2.5, 4, 8 over ten steps",
    ),
    "length-collapse": (
        stretched("completions/mean_length"),
        (0.7, 0.4, 0.2, 0.1),
        "x 0.7, 0.4, 0.2, 0.1 over ten steps",
    ),
    "entropy-explosion": (
        plant(lambda s, since, nats: {"kit/entropy": s["kit/entropy"] + nats * ramp(since)}),
        (0.25, 0.5, 1, 3),
        "0.25, 0.5, 1, 3 nats more over ten steps",
    ),
    "entropy-collapse": (
        stretched("kit/entropy", 5),
        (0.3, 0.1, 0.03, 0.01),
        "x 0.3, 0.1, 0.03, 0.01 over five steps, at an accuracy of 0.3",
    ),
    "kl": (plant(lambda s, since, nats: {"kl": s["kl"] + nats}), (0.5, 1.2, 4, 20), "0.5, 1.2, 4, 20 nats more"),
    "clipping": (
        lambda seed, onset, share: noisily(seed, onset, share, "clip_ratio/region_mean"),
        (0.2, 0.4, 0.6, 0.9),
        "20, 40, 60, 90 % of tokens",
    ),
    "slow-rewards": (
        plant(lambda step, since, s: slowed("kit/seconds/rewards", s / step["kit/seconds/rewards"])(step, since)),
        (2, 6, 15, 60),
        "2, 6, 15, 60 s beside 10 s of other work",
    ),
    "slow-step": (
        plant(lambda step, since, times: slowed("kit/seconds/update", times)(step, since)),
        (2, 5, 12, 40),
        "the update takes 2, 5, 12, 40 times as long",
    ),
    "padding": (
        plant(lambda step, since, times: outlier(step, times)),
        (1.5, 3, 10, 30),
        "the longest has 1.5, 3, 10, 30 times the tokens of the 95th percentile",
    ),
}
"""For each finding: how it is planted (seed, onset, strength), four strengths that grow, and these in words."""
