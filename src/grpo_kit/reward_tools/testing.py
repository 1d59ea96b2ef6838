"""`rewards test`: each reward on trial by itself, then under attack together with those it is used with."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpo_kit.data.data import Data, load_data
from grpo_kit.data.sources import is_local
from grpo_kit.errors import RecipeError
from grpo_kit.hub import use_cache_if_unreachable
from grpo_kit.recipe.file import named
from grpo_kit.recipe.recipe import Recipe, RewardSection, load_recipe
from grpo_kit.reward_tools.attack import attack_rewards
from grpo_kit.reward_tools.listing import NO_RECIPE, found_rewards, reward_file, stand_in, where, without_place
from grpo_kit.reward_tools.trial import Processes, try_reward
from grpo_kit.rewards.checks import check_rewards
from grpo_kit.rewards.files import find_reward
from grpo_kit.rewards.rewards import Reward, load_rewards

Say = Callable[[str], Any]


def test_rewards(name: str | None, recipe: Path | None, say: Say) -> int:
    """Test one reward or all of them, with a recipe or on the shipped sums; returns how much was found.

    Raises RecipeError for what cannot be tested because something else is wrong.
    """
    processes = Processes()
    try:
        return _test_files(name, processes, say) if recipe is None else _test_recipe(name, recipe, processes, say)
    finally:
        processes.close()


def _test_files(name: str | None, processes: Processes, say: Say) -> int:
    """Rewards without a recipe. Where all are tested, one that cannot be loaded is a finding and not the end."""
    found = found_rewards(None)
    findings = 0
    for path in found.values() if name is None else [reward_file(name, found)]:
        try:
            findings += _test_alone(path, processes, say)
        except RecipeError as error:
            if name is not None:
                raise RecipeError(without_place(path, error)) from None
            say(f"{path.stem}  {where(path)}\n  FINDING: {without_place(path, error)}\n")
            findings += 1
    return findings


def _test_alone(path: Path, processes: Processes, say: Say) -> int:
    recipe = stand_in(path)
    rewards = load_rewards(recipe)
    return _test(recipe, rewards, rewards, load_data(recipe, recipe.dataset, "dataset"), processes, say, alone=True)


def _test_recipe(name: str | None, path: Path, processes: Processes, say: Say) -> int:
    """A recipe's rewards on its own data; a reward that it does not name is attacked alone, but on that data too."""
    recipe = load_recipe(path)
    label = name if name is None or name in recipe.rewards else _label_of(recipe, name)
    alone = name is not None and label is None
    if name is not None and label is None:
        file = reward_file(name, found_rewards(path))
        stand_in(file)  # for its complaint about the name
        recipe = recipe.model_copy(update={"goal": None, "rewards": {file.stem: RewardSection(file=str(file))}})
    rewards = load_rewards(recipe)
    if not is_local(recipe, recipe.dataset):
        use_cache_if_unreachable()
    data = load_data(recipe, recipe.dataset, "dataset")
    check_rewards(recipe, rewards, data.columns, None)
    tried = [reward for reward in rewards if label in (None, reward.label)]
    return _test(recipe, tried, rewards, data, processes, say, alone=alone)


def _label_of(recipe: Recipe, name: str) -> str | None:
    """The label under which a recipe uses the file that was named by its path."""
    file = named(Path(name))
    labels = [label for label, section in recipe.rewards.items() if find_reward(recipe, label, section) == file]
    return labels[0] if labels else None


def _test(
    recipe: Recipe,
    tried: list[Reward],
    together: list[Reward],
    data: Data,
    processes: Processes,
    say: Say,
    *,
    alone: bool,
) -> int:
    """Some rewards on trial, each by itself, and all under attack - unless one would make that last for hours."""
    findings, hanging = 0, None
    for reward in tried:
        report = try_reward(recipe, reward, data.rows, processes)
        say("\n".join([f"{reward.label}  {where(reward.path)}", *report.lines]))
        findings += report.findings
        hanging = reward.label if report.hangs else hanging
    if not alone:
        say(f"\nattack on {recipe.source}")
    if hanging is not None:
        say(f"  {'attack':<13}not tried, because {hanging} reaches its time limit\n")
        return findings
    label = "the shipped sums" if recipe.source == NO_RECIPE else data.label
    report = attack_rewards(recipe, together, data.rows, label, alone)
    say("\n".join([*report.lines, ""]))
    return findings + report.findings
