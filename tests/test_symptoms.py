"""Planted faults are named soon, and healthy runs are left alone."""

from dataclasses import replace

import numpy as np
import pytest
from histories import FACTS, healthy, planted

from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.symptoms import NAMES
from grpo_kit.diagnosis.trends import lately, shift


def found(history, facts=FACTS):
    findings = {finding.name: finding for finding in diagnose(history, facts)}
    assert findings.keys() <= set(NAMES)  # what --fail-on may name
    return findings


def test_healthy_runs_are_left_alone():
    told = 0
    for seed in range(200):
        history = healthy(seed)
        told += any(diagnose(history[:step], FACTS) for step in range(5, len(history) + 1, 5))
    assert told <= 10


def growing(times):
    return lambda step, since: {
        **step,
        "completions/mean_length": step["completions/mean_length"] * min(1 + since / 10 * (times - 1), times),
        "kit/accuracy": 0.3,
        "rewards/accuracy/mean": 0.3,
        "reward": 0.3 + 0.3 * step["rewards/format/mean"],
    }


def noisier(times):
    return lambda step, since: {**step, "kit/entropy": 0.3 + step["kit/entropy"] * min(1 + since / 5 * times, times)}


def cut(share):
    return lambda step, since: {**step, "kit/truncated_share": share}


def clipped(share):
    return lambda step, since: {**step, "clip_ratio/region_mean": share}


def drifting(kl):
    return lambda step, since: {**step, "kl": kl}


def unjudged(share):
    return lambda step, since: {**step, "kit/rewards/accuracy/unscored_share": share}


def slow(seconds):
    return lambda step, since: {
        **step,
        "kit/seconds/rewards": seconds,
        "kit/seconds/rewards/accuracy": seconds,
        "kit/seconds/step": 10 + seconds,
    }


def flat(step, since):
    return {**step, "kit/flat_group_share": 1.0, "rewards/accuracy/mean": 0.0, "rewards/accuracy/std": 0.0}


FAULTS = {
    "no gradient": [flat],
    "truncation": [cut(0.4), cut(0.7), cut(1.0)],
    "length growth": [growing(3), growing(6)],
    "length collapse": [growing(0.3), growing(0.1)],
    "entropy explosion": [noisier(4), noisier(20)],
    "clipping": [clipped(0.4), clipped(0.8)],
    "KL": [drifting(2.0), drifting(20.0)],
    "unscored": [unjudged(0.3), unjudged(1.0)],
    "slow rewards": [slow(10), slow(100)],
}


@pytest.mark.parametrize("onset", [30, 60])
@pytest.mark.parametrize(("name", "at"), [(name, at) for name, faults in FAULTS.items() for at in range(len(faults))])
def test_a_planted_fault_is_named_within_20_steps(name, at, onset):
    late = []
    for seed in range(10):
        history = planted(seed, onset, FAULTS[name][at])
        named = next((step for step in range(onset, len(history) + 1) if name in found(history[:step])), None)
        late.append(999 if named is None else named - onset)
    assert sorted(late)[8] <= 20, late  # nine of ten


def farming(seed, weight):
    """Format is worth so much and is earned; accuracy stays where it was at step 30."""

    def farmed(step, since):
        form = min(0.3 + since / 15, 1.0)
        accuracy = 0.3 + 0.02 * np.sin(step["step"])
        return {
            **step, "rewards/format/mean": form, "kit/accuracy": accuracy, "rewards/accuracy/mean": accuracy,
            "reward": accuracy + weight * form,
        }  # fmt: skip

    def before(step, since):
        return {**farmed(step, 0), "step": step["step"]}

    start = planted(seed, 1, before)[:29]
    return start + planted(seed, 30, farmed)[29:]


@pytest.mark.parametrize("weight", [0.3, 1.0])
def test_a_reward_that_is_farmed_is_named(weight):
    for seed in range(5):
        facts = replace(FACTS, weights={"accuracy": 1.0, "format": weight})
        finding = found(farming(seed, weight), facts)["reward up, accuracy flat"]
        assert "from format; accuracy stays at 0.3" in finding.evidence
        assert 30 <= finding.since <= 45
        assert "rewards.format.weight" in finding.change


def test_entropy_that_falls_while_answers_get_right_is_learning():
    history = [{**step, "kit/entropy": 0.3 if step["step"] < 20 else 0.01} for step in healthy(0)]
    assert "entropy collapse" not in found(history)
    alike = [{**step, "kit/accuracy": 0.1} for step in history]
    assert "entropy collapse" in found(alike)


def test_a_shift_by_hand():
    # ten times 1, then ten times 3, with deviations of 0.1: error sqrt(2 * 0.01 / 9) = 0.047, 2 is 42 of them
    values = [0.9, 1.1] * 5 + [2.9, 3.1] * 5
    assert (shift(values).before, shift(values).now, shift(values).since) == (1.0, 3.0, 9)
    assert shift(values[:-1]) is None  # too early
    assert shift([0.9, 1.1] * 10) is None
    assert lately(values, 2) == 3.0
    assert lately([], 2) is None
