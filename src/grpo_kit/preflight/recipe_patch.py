"""A recipe with what a preflight found to change, as a new file."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from grpo_kit.data.sources import find_file
from grpo_kit.preflight.advice import Change
from grpo_kit.recipe.file import override, parse_yaml
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.rewards.files import find_reward
from grpo_kit.shipped import shipped

PATHS = (("model",), ("dataset", "path"), ("dataset", "pass_rate_file"), ("eval_dataset", "path"))


def write_patched(source: Path, overrides: Iterable[str], changes: Iterable[Change], target: Path) -> None:
    """Write the recipe `source` with its overrides and the changes to `target`, with each reason in its head.

    Local files are named by absolute path, so that it means the same from wherever it is.
    """
    recipe = load_recipe(source, overrides)
    tree, lines = parse_yaml(recipe.source)
    for assignment in [*overrides, *(change.override() for change in changes)]:
        override(tree, lines, assignment)
    _make_absolute(tree, recipe.source.parent)
    for label, section in recipe.rewards.items():
        path = find_reward(recipe, label, section)
        if path.parent != shipped("rewards").resolve():
            written = tree["rewards"][label]
            own = written if isinstance(written, dict) else {"weight": written}
            tree["rewards"][label] = {**own, "file": str(path)}
    head = [f"# {source}, with what a preflight changed:", *(f"#   {c.override()}: {c.reason}" for c in changes)]
    text = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False, width=120)
    target.write_text("\n".join([*head, text]), encoding="utf-8")


def _make_absolute(tree: dict[str, Any], folder: Path) -> None:
    for *section, key in PATHS:
        inside = tree.get(section[0]) if section else tree
        if isinstance(inside, dict) and isinstance(inside.get(key), str):
            found = find_file(inside[key], folder)
            inside[key] = inside[key] if found is None else str(found)
