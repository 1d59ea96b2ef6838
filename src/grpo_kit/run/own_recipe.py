"""The recipe that a run directory is: everything that decides the run, and the reward files beside it."""

import shutil
from pathlib import Path
from typing import Any

import yaml

from grpo_kit.data.sources import find_file
from grpo_kit.errors import RecipeError
from grpo_kit.files.durable import sync_one
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.recipe.file import read_tree
from grpo_kit.run.run_dir import RunDir


def resolved_recipe(prepared: Prepared) -> dict[str, Any]:
    """All that decides a run, as a recipe's tree: the kit's defaults written out, data and model by absolute path."""
    recipe = prepared.recipe
    folder = recipe.source.parent
    tree = recipe.model_dump(mode="json", exclude_none=True)
    if recipe.eval_dataset is not None:  # a null there undoes what it would take over from `dataset`
        tree["eval_dataset"] |= dict.fromkeys(tree["dataset"].keys() - tree["eval_dataset"].keys())
    for key in {"dataset", "eval_dataset"} & tree.keys():
        for own in {"path", "pass_rate_file"} & {k for k, v in tree[key].items() if v is not None}:
            tree[key][own] = str(find_file(tree[key][own], folder) or tree[key][own])
    if Path(prepared.model_path).is_dir() and not recipe.model.startswith("builtin:"):
        tree["model"] = prepared.model_path
    tree["rewards"] = {
        label: {**section.model_dump(exclude={"options"}, exclude_none=True), **section.options}
        for label, section in recipe.rewards.items()
    }
    tree |= {
        "goal": prepared.goal.label,
        "grpo": {**prepared.settings.from_kit, **prepared.settings.from_recipe},
    }
    tree.pop("name", None)
    return {**tree, "name": recipe.run_name}  # the last one: `written_recipe` knows by it that nothing is cut off


def write_recipe(run: RunDir, prepared: Prepared) -> None:
    """Make the directory a recipe of its own, with copies of the reward files beside it."""
    tree = resolved_recipe(prepared)
    for reward in prepared.rewards:
        copy = run.path / "rewards" / reward.path.name
        if copy.exists() and copy.read_bytes() != reward.path.read_bytes():
            copy = run.path / "rewards" / reward.label / reward.path.name  # another file of the same name
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copyfile(reward.path, copy)
            for path in (copy, copy.parent):  # before the recipe that names it
                sync_one(path)
        if copy.relative_to(run.path) != Path("rewards", f"{reward.label}.py"):
            tree["rewards"][reward.label]["file"] = str(copy.relative_to(run.path))
        else:
            tree["rewards"][reward.label].pop("file", None)
    text = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False, width=120)
    run.write_text("recipe.yaml", text)


def written_recipe(run: RunDir) -> dict[str, Any]:
    """What `write_recipe` wrote, of plain values. Raises RecipeError where it is damaged, or cut off."""
    file = run.path / "recipe.yaml"
    tree = read_tree(file)
    sections = [(tree or {}).get(key) for key in ("dataset", "rewards", "grpo")]
    if tree is None or "name" not in tree or not all(isinstance(own, dict) for own in sections):  # `name` is the last
        raise RecipeError(
            f"{file}: cannot be read as the recipe of this run; put it right, move the folder away, or leave out "
            "--resume to start a new run"
        )
    return tree
