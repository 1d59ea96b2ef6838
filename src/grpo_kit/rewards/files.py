"""Find and import reward files: where they are looked for, and what must be in one."""

import ast
import difflib
import inspect
import os
import textwrap
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from grpo_kit.errors import first_line
from grpo_kit.recipe.file import is_file, named
from grpo_kit.recipe.recipe import Recipe, RewardSection
from grpo_kit.rewards.call import import_file, place
from grpo_kit.shipped import shipped


def reward_folders(recipe_file: Path) -> list[Path]:
    """Where rewards are looked for by name, in order: beside the recipe, one folder up, the shipped ones."""
    folder = recipe_file.resolve().parent
    return [folder / "rewards", folder.parent / "rewards", shipped("rewards")]


def find_reward(recipe: Recipe, label: str, section: RewardSection) -> Path:
    """The file of a reward. Raises RecipeError listing the names there are."""
    folders = reward_folders(recipe.source)
    wanted = os.path.expanduser(section.file) if section.file else f"{label}.py"
    if not wanted.endswith(".py"):
        raise recipe.error(f"rewards.{label}.file", f"found {section.file!r}; a reward is a .py file")
    places = [folder / wanted for folder in folders]
    if section.file:
        places = [recipe.source.resolve().parent / wanted, Path.cwd() / wanted, *places]
    found = next((path for path in places if is_file(path)), None)
    if found is None:
        names = sorted({path.stem for folder in folders for path in folder.glob("*.py")})
        near = difflib.get_close_matches(Path(wanted).stem, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise recipe.error(f"rewards.{label}", f"no file {wanted} in rewards/ (there are {', '.join(names)}){hint}")
    return named(found)


def read_reward(recipe: Recipe, key: str, path: Path) -> bytes:
    """The code of a reward file. Raises RecipeError."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise recipe.error(key, f"{path}: cannot be read ({error.strerror})") from None


def import_reward(recipe: Recipe, key: str, path: Path, source: bytes) -> ModuleType:
    """Import one reward file. Raises RecipeError that names the line at which it fails."""
    try:
        return import_file(path, source)
    except (Exception, SystemExit) as error:
        line = error.lineno if isinstance(error, SyntaxError) else place(error, path)[1]
        what = f"{type(error).__name__}: {first_line(error)}"
        raise recipe.error(key, f"{path}:{line or 1}: cannot be imported ({what})") from None


def reward_function(recipe: Recipe, key: str, path: Path, module: ModuleType) -> Callable[..., Any]:
    """The function of the file's name. Raises RecipeError where there is none that can be called like one."""
    name = path.stem
    function = getattr(module, name, None)
    if function is None:
        defined = [n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__]
        hint = "" if name.isidentifier() else "; give the file a name that a function can have"
        raise recipe.error(key, f"{path} has no function {name!r} (it defines {', '.join(defined) or 'none'}){hint}")
    if not inspect.isfunction(function):
        raise recipe.error(key, f"{path}: {name} is a {type(function).__name__}; write def {name}(completion, ...)")
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise recipe.error(key, f"{path}: {name} is asynchronous or a generator; write a plain function")
    return function


def looked_up(function: Callable[..., Any]) -> list[str]:
    """The columns that a function asks its `**kwargs` for without a default: `kwargs["x"]`, `kwargs.get("x")`."""
    catch_all = [p.name for p in inspect.signature(function).parameters.values() if p.kind is p.VAR_KEYWORD]
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, SyntaxError):  # made by exec, or a lambda in the middle of a line
        return []

    def is_catch_all(node: ast.AST) -> bool:
        return isinstance(node, ast.Name) and node.id in catch_all

    asked: list[ast.expr] = []
    guarded: list[Any] = []  # by `"x" in kwargs`: the code knows that the column may be missing
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant) and is_catch_all(node.comparators[0]):
            guarded.append(node.left.value)
        if isinstance(node, ast.Subscript) and is_catch_all(node.value) and isinstance(node.ctx, ast.Load):
            asked.append(node.slice)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and is_catch_all(node.func.value):
            asked += node.args if node.func.attr in ("get", "pop") and len(node.args) == 1 else []
    names = [key.value for key in asked if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return [name for name in names if name not in guarded]


def reads_messages(function: Callable[..., Any]) -> bool:
    """Whether the code looks like that of most public rewards, which take messages: `completion[0]["content"]`."""
    try:
        return '["content"]' in inspect.getsource(function).replace("'", '"')
    except OSError:
        return False
