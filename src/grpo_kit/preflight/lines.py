"""A preflight as a person reads it, line by line."""

from grpo_kit.evaluation.lines import difficulty_lines
from grpo_kit.preflight.preflight import Preflight


def preflight_lines(result: Preflight) -> list[str]:
    """What was measured, what a run would cost, what to change, and the verdict as the last line."""
    decision = result.decision
    lines = difficulty_lines(f"training rows of {result.data}", result.difficulty)
    if result.held_out is not None:
        lines += difficulty_lines("held-out rows", result.held_out)
    lines.append(f"speed        {result.speed}")
    if result.cost is not None:
        cost = result.cost
        lines += [
            f"a step       {cost.step_s:.3g} s, {cost.step_tokens:.0f} completion tokens",
            f"the run      {_duration(cost.hours)}, of which evaluations {_duration(cost.evaluations_s / 3600)}; "
            f"peak memory {cost.peak_memory_gb:.1f} GB",
        ]
    lines.append(f"files        {result.folder}")
    if result.interrupted:
        lines.append(f"interrupted: what follows is from {result.difficulty.prompts} prompts, and no step was timed")
    lines += [f"change       {change.override()}   ({change.reason})" for change in decision.changes]
    given = {change.reason for change in decision.changes}
    lines += [f"because      {reason}" for reason in decision.reasons if reason not in given]
    return [*lines, f"verdict: {decision.verdict}"]


def _duration(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{hours:.1f} h"
