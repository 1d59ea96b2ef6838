"""A YAML file -> a plain tree and the line of each key; and `dotted.key=value` overrides of such a tree."""

import re
from pathlib import Path
from typing import Any

import yaml

from grpo_kit.errors import RecipeError


class _Loader(yaml.SafeLoader):
    """Safe YAML in which `1e-6` is a number, as in YAML 1.2 (PyYAML reads it as a string)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


def parse_yaml(source: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The file's mapping, and the line of each dotted key."""
    if source.is_dir():
        raise RecipeError(f"{source}: is a folder, not a recipe; name a .yaml file or a run directory")
    try:
        text = source.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise RecipeError(f"{source}: no such file; recipes are YAML files such as recipes/smoke.yaml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise RecipeError(f"{source}: cannot be read as UTF-8 text ({error})") from None
    loader = None
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        lines: dict[str, int] = {}
        if node is not None:
            _collect_lines(source, node, "", lines, set())
        tree = loader.construct_document(node) if node is not None else None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        hint = "a tab; YAML indents with spaces" if "\\t" in str(error.problem) else error.problem
        raise RecipeError(f"{source}:{line}: not valid YAML: {hint}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecipeError(f"{source}: not valid YAML: {str(error).splitlines()[0]}") from None
    finally:
        if loader is not None:
            loader.dispose()
    if not isinstance(tree, dict):
        found = "is empty" if tree is None else f"has a {type(tree).__name__} at the top"
        raise RecipeError(f"{source}: {found}; a recipe is a mapping that starts with `model:`")
    return tree, lines


def _collect_lines(source: Path, node: yaml.Node, prefix: str, lines: dict[str, int], seen: set[int]) -> None:
    """Note each key's line, and refuse a key given twice (YAML would keep the last one silently)."""
    if id(node) in seen or not isinstance(node, yaml.MappingNode):
        return
    seen.add(id(node))
    own: dict[str, int] = {}
    for key, value in node.value:
        dotted, line = f"{prefix}{key.value}", key.start_mark.line + 1
        if isinstance(key.value, str) and key.value != "<<":
            if dotted in own:
                raise RecipeError(f"{source}:{line}: {dotted}: given twice, first on line {own[dotted]}; remove one")
            own[dotted] = lines[dotted] = line
            _collect_lines(source, value, f"{dotted}.", lines, seen)


def override(tree: dict[str, Any], lines: dict[str, int], assignment: str) -> None:
    """Set one `dotted.key=value`; the value is YAML, and a mapping replaces a mapping."""
    dotted, equals, text = assignment.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise RecipeError(f"override {assignment!r}: write key=value, such as grpo.max_steps=100")
    try:
        value = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, ValueError) as error:
        raise RecipeError(
            f"override {assignment!r}: the value is not valid YAML ({str(error).splitlines()[0]})"
        ) from None
    section = tree
    for depth, key in enumerate(keys[:-1]):
        inner = section.setdefault(key, {})
        if inner is None:
            inner = section[key] = {}
        if not isinstance(inner, dict):
            where = ".".join(keys[: depth + 1])
            raise RecipeError(f"override {assignment!r}: {where} is {inner!r}, not a mapping; write {where}={{...}}")
        section = inner
    section[keys[-1]] = value
    lines.pop(".".join(keys), None)
