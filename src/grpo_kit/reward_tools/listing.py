"""What a recipe can use: the reward files there are, and what the signature and the docstring of each say."""

import difflib
import inspect
import textwrap
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpo_kit.errors import RecipeError
from grpo_kit.recipe.file import is_file, named
from grpo_kit.recipe.recipe import Recipe, load_recipe
from grpo_kit.rewards.files import import_reward, looked_up, read_reward, reward_folders, reward_function
from grpo_kit.rewards.rewards import GIVEN, TRAINER_GIVES
from grpo_kit.shipped import shipped

WIDTH = 100
NO_RECIPE = Path("no recipe")
"""Stands for the recipe's file where none is named: rewards are looked for from the current folder."""


def found_rewards(recipe: Path | None) -> dict[str, Path]:
    """Every reward that a recipe could name, by name; of two files of one name the one that is looked for first."""
    source = NO_RECIPE if recipe is None else load_recipe(recipe).source
    found: dict[str, Path] = {}
    for folder in reward_folders(source):
        for path in sorted(folder.glob("*.py")):
            if not path.stem.startswith("_"):
                found.setdefault(path.stem, named(path))
    return found


def reward_file(name: str, found: dict[str, Path]) -> Path:
    """The file that a name, or a path to a .py file, means. Raises RecipeError listing the names there are."""
    if name.endswith(".py"):
        if not is_file(Path(name)):
            raise RecipeError(f"{name}: no such file; write the name of a reward, or the path of its .py file")
        return named(Path(name))
    if name not in found:
        near = difflib.get_close_matches(name, found, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise RecipeError(f"{name}: no such reward (there are {', '.join(found)}){hint}")
    return found[name]


def stand_in(path: Path) -> Recipe:
    """A recipe with one reward file alone, on the shipped sums, for where no recipe is named. Raises RecipeError."""
    if not path.stem.isidentifier():
        raise RecipeError(f"{path}: found the name {path.stem!r}; give the file a name that a function can have")
    data = shipped("recipes") / "data" / "sums_test.jsonl"
    return Recipe.model_validate(
        {
            "model": "builtin:tiny",
            "dataset": {"path": str(data), "prompt": "{question}"},
            "rewards": {path.stem: {"file": str(path)}},
            "source": NO_RECIPE,
        }
    )


def list_lines(found: dict[str, Path]) -> list[str]:
    """For each reward what it says of itself, its columns, its options and where it lies."""
    wide = max((len(name) for name in found), default=0) + 2
    lines: list[str] = []
    for name, path in found.items():
        facts = described(path)
        head = textwrap.wrap(facts[0], WIDTH - wide) or [""]
        lines += [f"{name:<{wide}}{head[0]}", *(" " * wide + more for more in head[1:])]
        for fact in facts[1:]:
            hanging = " " * (wide + len("columns  "))
            lines += textwrap.wrap(fact, WIDTH, initial_indent=" " * wide, subsequent_indent=hanging)
    return lines


def described(path: Path) -> list[str]:
    """What there is to know of a reward file; for one that cannot be used, why."""
    place = f"file     {where(path)}"
    try:
        recipe = stand_in(path)
        key = f"rewards.{path.stem}"
        module = import_reward(recipe, key, path, read_reward(recipe, key, path))
        function = reward_function(recipe, key, path, module)
    except RecipeError as error:
        return [f"cannot be used: {without_place(path, error)}"]
    said = inspect.getdoc(module) or inspect.getdoc(function) or "(no docstring)"
    columns = f"columns  {', '.join(_columns(function)) or 'none'}"
    return [said.splitlines()[0], columns, f"options  {', '.join(_options(function)) or 'none'}", place]


def without_place(path: Path, error: RecipeError) -> str:
    """What is wrong with a reward file, without the key of a recipe that there is not."""
    return str(error).removeprefix(f"{NO_RECIPE}: rewards.{path.stem}: ")


def where(path: Path) -> str:
    """Whether a file comes with the kit, or else its place, from the current folder if it is below that."""
    if path.parent == shipped("rewards").resolve():
        return "shipped"
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _columns(function: Callable[..., Any]) -> list[str]:
    """The data's columns that the function takes; what every reward is given is not the data's to have."""
    given = ("completion", "completions", "prompts", *GIVEN, *TRAINER_GIVES)
    parameters = inspect.signature(function).parameters.values()
    named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.name not in given]
    needed = [p.name for p in named if p.default is p.empty]
    needed += [name for name in looked_up(function) if name not in (*needed, *given)]
    return [*dict.fromkeys(needed), *(f"{p.name} (may be missing)" for p in named if p.default is not p.empty)]


def _options(function: Callable[..., Any]) -> list[str]:
    """Keyword-only parameters with their defaults, and the other values that a Literal allows."""
    try:
        hints = typing.get_type_hints(inspect.unwrap(function))
    except Exception:  # an annotation is code of the file; the load of a recipe says what is wrong with it
        hints = {}
    found = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.KEYWORD_ONLY:
            continue
        hint = hints.get(parameter.name)
        choices = typing.get_args(hint) if typing.get_origin(hint) is typing.Literal else ()
        others = ", ".join(str(choice) for choice in choices if choice != parameter.default)
        default = " (must be given)" if parameter.default is parameter.empty else f"={parameter.default}"
        found.append(f"{parameter.name}{default}{f' (or {others})' if others else ''}")
    return found
