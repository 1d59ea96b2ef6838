"""How hard rows are for a model, as a person reads it."""

from grpo_kit.evaluation.difficulty import Difficulty, Interval

BAR = 40
"""Characters of the longest bar of the histogram."""


def difficulty_lines(title: str, found: Difficulty) -> list[str]:
    """The numbers of one data set."""
    lines = [f"{title}: {found.prompts} prompts x {found.samples} completions"]
    if found.accuracy is None or found.ci95 is None:
        lines.append("accuracy     nothing could be judged")
    else:
        lines.append(f"accuracy     {share(found.accuracy, found.ci95)}")
        rest = [f"pass@{k} {share(*value)}" for k, value in found.pass_at.items() if k > 1]
        lines += [f"             {text}" for text in rest]
        if found.majority is not None and found.samples > 1:
            lines.append(f"             maj@{found.samples} {share(*found.majority)}")
        lines += histogram_lines(found.histogram)
        least = {k: "at least " if k > found.samples else "" for k in found.useful}
        useful = ", ".join(f"{least[k]}{value:.2f} for groups of {k}" for k, value in found.useful.items())
        if found.samples > 1:
            lines.append(f"useful       neither all right nor all wrong: {useful}")
    flat = found.flat
    groups = [
        f"flat groups  {flat.share:.2f} (all right {flat.all_right:.2f}, all wrong {flat.all_wrong:.2f}, all truncated "
        f"{flat.all_truncated:.2f}, no answer read {flat.all_unreadable:.2f}, other {flat.other:.2f})",
    ]
    lines += [
        *(groups if found.samples >= found.group else []),
        f"completions  {found.truncated_share:.0%} truncated, {1 - found.truncated_share:.0%} stop by themselves; "
        f"{found.duplicate_share:.0%} repeat another of their prompt",
        "tokens       " + ", ".join(f"{name} {value:.0f}" for name, value in found.tokens.items()),
    ]
    form = found.form
    if form.formatted is not None:
        lines.append(
            f"form         {form.formatted:.2f} formatted; right but unformatted {form.right_unformatted:.2f}, "
            f"formatted but wrong {form.formatted_wrong:.2f}"
        )
    if form.right_unread:
        lines.append(
            f"             {form.right_unread:.2f} right, but not where the goal's reward looks for the answer"
        )
    for label, mean in found.rewards.items():
        lost = f", {found.unscored[label]:.0%} not judged" if found.unscored[label] else ""
        lines.append(f"reward       {label} {'none' if mean is None else f'{mean:.3f}'} on average{lost}")
    return lines


def share(value: float, interval: Interval) -> str:
    return f"{value:.3f} (95% interval {interval[0]:.3f} to {interval[1]:.3f})"


def histogram_lines(counts: dict[str, int]) -> list[str]:
    """A bar for each number of right completions, as long as the number of prompts that had so many."""
    most = max(counts.values())
    return [f"  {name:>12} right {count:>5} {'#' * round(BAR * count / most)}" for name, count in counts.items()]
