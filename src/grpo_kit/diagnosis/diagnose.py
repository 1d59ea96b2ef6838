"""Symptoms -> what they mean and what to change."""

from collections.abc import Sequence

from grpo_kit.diagnosis.findings import STEPS, Facts, Finding, Metrics, flat_in_update
from grpo_kit.diagnosis.symptoms import SYMPTOMS


def diagnose(history: Sequence[Metrics], facts: Facts) -> list[Finding]:
    """All that is wrong at the end of this history."""
    rollouts = [metrics for metrics in history if flat_in_update(metrics) is not None]
    if len(rollouts) < STEPS:
        return []
    return [finding for symptom in SYMPTOMS for finding in symptom(rollouts, facts)]
