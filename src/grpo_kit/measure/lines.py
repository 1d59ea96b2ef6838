"""`eval` and `compare` as a person reads them."""

from collections.abc import Sequence

from grpo_kit.console import example_lines
from grpo_kit.evaluation.lines import difficulty_lines, share
from grpo_kit.measure.compare import Comparison
from grpo_kit.measure.measure import Measured


def measured_lines(measured: Measured) -> list[str]:
    """A measurement in numbers, with one completion in full."""
    lines = difficulty_lines(f"held-out rows of {measured.evaluation.data}", measured.difficulty)
    lines += [f"speed        {measured.speed}", "an example:", *example_lines(measured.evaluation.example)]
    if measured.interrupted:
        lines.append(f"interrupted: this is of {measured.difficulty.prompts} prompts only")
    return [*lines, f"files        {measured.folder}"]


def checkpoint_lines(measured: Sequence[Measured]) -> list[str]:
    """A table of one run's checkpoints, and the best of them."""
    lines = [f"{'step':>6}  {'accuracy':<38}{'tokens':>7}  truncated"]
    for one in measured:
        found, step = one.evaluation, one.target.step
        accuracy = "nothing could be judged"
        if found.accuracy is not None and found.ci95 is not None:
            accuracy = share(found.accuracy, found.ci95)
        cut = "  interrupted" if one.interrupted else ""
        lines.append(f"{step:>6}  {accuracy:<38}{found.mean_tokens:>7.0f}  {found.truncated_share:>9.2f}{cut}")
    judged = [one for one in measured if one.evaluation.accuracy is not None and not one.interrupted]
    if judged:
        best = max(judged, key=lambda one: one.evaluation.accuracy or 0.0)
        lucky = f" (the highest of {len(judged)}, so a little of it may be luck)" if len(judged) > 1 else ""
        lines.append(f"best         step {best.target.step}: {best.target.name}{lucky}")
    return lines


def comparison_lines(found: Comparison, name_a: str, name_b: str) -> list[str]:
    """How much better B is than A, how sure that is, and where it comes from."""
    low, high = found.difference.ci95
    equal = found.prompts - found.won - found.lost
    left_out = f"; {found.left_out} prompts that only one has are left out" if found.left_out else ""
    p = f"p {found.difference.p:.2g}" if found.difference.p >= 0.001 else "p < 0.001"
    parts = found.parts
    form, truncation, answers = (round(part, 3) + 0.0 for part in (parts.form, parts.truncation, parts.answers))
    return [
        f"A            {found.accuracy_a:.3f}  {name_a}",
        f"B            {found.accuracy_b:.3f}  {name_b}",
        f"difference   {found.difference.value:+.3f} (95% interval {low:+.3f} to {high:+.3f}; {p}, {found.test})",
        f"prompts      {found.prompts}: B better on {found.won}, worse on {found.lost}, equal on {equal}{left_out}",
        f"of which     better answers {answers:+.3f}, better form {form:+.3f}, fewer truncated {truncation:+.3f}",
        f"verdict      {found.verdict}",
    ]
