"""What changed rewards would have made of a run's completions, as a person reads it."""

from pathlib import Path

from grpo_kit.reward_tools.rescore import Replay, Rescored, differ, mean, rescore
from grpo_kit.run.run_dir import RunDir
from grpo_kit.terminal import visible

MOST_PROMPT, MOST_COMPLETION = 300, 800
"""Characters that are shown of a text; of a longer one its beginning and its end."""


def replay(run: RunDir, recipe_path: Path | None = None, limit: int = 5) -> list[str]:
    """Score a run's completions with a recipe's rewards and say what that changes, with up to `limit` examples.

    Without a recipe: with the rewards of the one that the run was started from, else with the run's own copies.
    Raises RecipeError where run or recipe cannot be used, RewardError where a reward breaks its contract.
    """
    found = rescore(run, recipe_path)
    lines = head_lines(run, found)
    if found.changes_nothing():
        return [*lines, f"nothing changes: the rewards give these {len(found.completions)} completions the same scores"]
    return [*lines, "", *change_lines(found), *example_lines(found, limit)]


def head_lines(run: RunDir, found: Replay) -> list[str]:
    """What is compared with what."""
    steps = len({one.sample["step"] for one in found.completions})
    sizes = _count(len(found.completions), "completion"), _count(len(found.groups), "group"), _count(steps, "step")
    return [
        f"run          {run.path}: {', '.join(sizes)}",
        f"rewards      {found.origin}",
        *(f"  {reward.label} x {reward.weight:g}  {reward.path}" for reward in found.rewards),
        *(f"note         {visible(note)}" for note in found.notes),
    ]


def change_lines(found: Replay) -> list[str]:
    """What the rewards say differently: each of them, their sum, and what training would have made of it."""
    completions = len(found.completions)
    lines = [_reward_line(found, label) for label in dict.fromkeys((*found.weights[0], *found.weights[1]))]
    lines.append(f"{'total':<12} {_compared(found.totals())}")

    flat = found.flat()
    turn, no_longer = flat.count((False, True)), flat.count((True, False))
    were, were_not = sum(before for before, _ in flat), sum(not before for before, _ in flat)
    lines.append(f"{'groups':<12} {turn} of {were_not} turn flat; {no_longer} of {were} flat ones no longer are")

    signs = [(before, after) for before, after in found.signs() if before and after]
    flips = sum(before != after for before, after in signs)
    of = f"{flips} of {len(signs)} change sign{_share(flips, len(signs))}"
    lines.append(f"{'advantages':<12} {of}; {completions - len(signs)} without one before or now")

    before, after = found.accuracy()
    goal = found.goals[1] if found.goals[0] == found.goals[1] else f"{found.goals[0]}, now {found.goals[1]}"
    return [*lines, f"{'accuracy':<12} {_number(before)} -> {_number(after)} (full marks of {goal})"]


def _reward_line(found: Replay, label: str) -> str:
    pairs = found.scores(label)
    before, after = (weights.get(label) for weights in found.weights)
    if after is None:
        text = f"only before (weight {before:g}), mean {_number(mean(score for score, _ in pairs))}"
    elif before is None:
        text = f"only now (weight {after:g}), mean {_number(mean(score for _, score in pairs))}"
    else:
        text = _compared(pairs) + (f"; weight {before:g} -> {after:g}" if before != after else "")
    return f"{label:<12} {text}"


def _compared(pairs: list[tuple[float | None, float | None]]) -> str:
    """How many scores changed, their means, and how many are no longer judged."""
    changed = sum(differ(*pair) for pair in pairs)
    lost = sum(before is not None and after is None for before, after in pairs)
    means = f"mean {_number(mean(before for before, _ in pairs))} -> {_number(mean(after for _, after in pairs))}"
    unscored = f"; {lost} no longer judged" if lost else ""
    return f"{changed} of {len(pairs)} changed{_share(changed, len(pairs))}; {means}{unscored}"


def example_lines(found: Replay, limit: int) -> list[str]:
    """The completions whose total changed most; of equal ones those that came first."""
    changed = sorted((one for one in found.completions if one.differs()), key=lambda one: -one.shift())
    if not changed or not limit:
        return []
    shown = changed[:limit]
    lines = ["", f"{len(shown)} of {len(changed)} completions that changed, those that changed most:"]
    for one in shown:
        lines += ["", *_example(one)]
    return lines


def _example(one: Rescored) -> list[str]:
    sample = one.sample
    gold = "" if sample.get("gold") is None else f"   gold: {visible(str(sample['gold']))}"
    then, now = ("none" if side.answer_read is None else visible(side.answer_read) for side in (one.before, one.after))
    read = now if then == now else f"{then} -> {now}"
    labels = dict.fromkeys((*one.before.rewards, *one.after.rewards))
    return [
        f"step {sample['step']}  row {sample['row']}  total {_change(one.before.total, one.after.total)}",
        f"  prompt: {_shown(sample['prompt'], MOST_PROMPT)}",
        *(f"  | {line}" for line in _shown(sample["completion"], MOST_COMPLETION).split("\n")),
        f"  answer read: {read}{gold}   {'  '.join(_score(one, label) for label in labels)}",
    ]


def _score(one: Rescored, label: str) -> str:
    before, after = one.before.rewards.get(label), one.after.rewards.get(label)
    if label not in one.after.rewards:
        return f"{label} {_judged(before)} (only before)"
    if label not in one.before.rewards:
        return f"{label} {_judged(after)} (only now)"
    return f"{label} {_change(before, after)}"


def _change(before: float | None, after: float | None) -> str:
    return f"{_judged(before)} -> {_judged(after)}" if differ(before, after) else _judged(before)


def _judged(score: float | None) -> str:
    return "not judged" if score is None else f"{score:.3g}"


def _number(value: float | None) -> str:
    return "unknown" if value is None else f"{value:.3f}"


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.2f})" if whole else ""


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _shown(text: str, most: int) -> str:
    """A text that can be read: of a long one more of its end, where the answer stands."""
    if len(text) > most:
        first, last = most // 3, most - most // 3
        text = f"{text[:first]} [... {len(text) - most} characters ...] {text[-last:]}"
    return visible(text)
