"""A YAML file -> a plain tree and the line of each key; and `dotted.key=value` overrides of such a tree."""

import re
import stat
from pathlib import Path
from typing import Any

import yaml

from grpo_kit.errors import RecipeError, first_line, shorten
from grpo_kit.recipe.plain_values import plain

COMMAND_LINE = 0
"""Stands for a line number where an override set the key."""

MOST_VALUES = 100_000
"""Values that a text stands for, with its aliases written out: a few lines of them can stand for billions."""

LARGEST_INTEGER = 2**63
"""What counts steps, rows or bytes is below it; libraries stumble over more."""


class _Loader(yaml.SafeLoader):
    """Safe YAML in which `1e-6` is a number, as in YAML 1.2 (PyYAML reads it as a string)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+$"),
    list("-+0123456789"),
)


class InvalidError(ValueError):
    """What is wrong with a text that should be YAML, and on which of its lines."""

    def __init__(self, line: int, message: str):
        super().__init__(message)
        self.line = line


def parse_yaml(source: Path) -> tuple[dict[str, Any], dict[str, int]]:
    """The file's mapping, and the line of each dotted key."""
    lines: dict[str, int] = {}
    try:
        if source.is_dir():
            raise RecipeError(f"{source}: is a folder, not a recipe; name a .yaml file or a run directory")
        if is_special(source):
            raise RecipeError(f"{source}: is no regular file; write the recipe to one")
        tree = read_yaml(source.read_text(encoding="utf-8-sig"), lines)
    except FileNotFoundError:
        raise RecipeError(f"{source}: no such file; recipes are YAML files such as recipes/smoke.yaml") from None
    except OSError as error:
        raise RecipeError(f"{source}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise RecipeError(f"{source}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except InvalidError as error:
        raise RecipeError(f"{source}:{error.line}: {error}") from None
    if not isinstance(tree, dict):
        found = "is empty" if tree is None else f"has a {type(tree).__name__} at the top"
        raise RecipeError(f"{source}: {found}; a recipe is a mapping that starts with `model:`")
    return tree, lines


def is_file(path: Path) -> bool:
    """`Path.is_file`, also for a path that the system cannot even look up: too long, or behind a closed folder."""
    try:
        return path.is_file()
    except OSError:
        return False


def named(path: Path) -> Path:
    """What a path leads to, absolute; a file that is called otherwise there, as in a store, keeps its name here."""
    target = path.resolve()
    return target if target.is_dir() or target.name == path.name else path.parent.resolve() / path.name


def is_special(path: Path) -> bool:
    """Whether it is a pipe or a device: it can be read once, if at all, and may never end."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def override(tree: dict[str, Any], lines: dict[str, int], assignment: str) -> None:
    """Set one `dotted.key=value`; the value is YAML, a mapping replaces a mapping, and `KEY=null` removes a section."""
    dotted, equals, text = assignment.partition("=")
    keys = dotted.strip().split(".")
    if not equals or not all(keys):
        raise RecipeError(f"override {assignment!r}: write key=value, such as grpo.max_steps=100")
    try:
        value = read_yaml(text)
    except InvalidError as error:
        raise RecipeError(f"override {assignment!r}: {error}") from None
    section = tree
    for depth, key in enumerate(keys[:-1]):
        inner = section.setdefault(key, {})
        if inner is None:
            inner = section[key] = {}
        if keys[0] == "rewards" and depth == 1 and type(inner) in (int, float):
            inner = section[key] = {"weight": inner}  # `NAME: 0.1` is short for it
        if not isinstance(inner, dict):
            where = ".".join(keys[: depth + 1])
            raise RecipeError(f"override {assignment!r}: {where} is {inner!r}, not a mapping; write {where}={{...}}")
        section = inner
    section[keys[-1]] = value
    if value is None and len(keys) == 1:
        del tree[keys[0]]
    dotted = ".".join(keys)
    for replaced in [key for key in lines if key.startswith(f"{dotted}.")]:
        del lines[replaced]
    lines[dotted] = COMMAND_LINE


def read_yaml(text: str, lines: dict[str, int] | None = None) -> Any:
    """The value of a YAML text; the lines of its keys are added to `lines`. Raises InvalidError."""
    try:
        loader = _Loader(text)
        node = loader.get_single_node()
        if node is None:
            return None
        _collect_lines(loader, node, "", {} if lines is None else lines, (), set())
        if _written_out(node, {}) > MOST_VALUES:
            raise InvalidError(1, f"it stands for more than {MOST_VALUES} values, with its aliases (*) written out")
        return loader.construct_document(node)
    except InvalidError:
        raise
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise InvalidError(line, f"not valid YAML: the character U+{error.character:04X} is not allowed") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = ", ".join(part for part in (error.context, error.problem) if part)
        what = "a tab; YAML indents with spaces" if "\\t" in what else what
        raise InvalidError(line, f"not valid YAML: {what}") from None
    except RecursionError:
        raise InvalidError(1, "not valid YAML: nested too deeply") from None
    except (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError) as error:  # `!!int ""`
        raise InvalidError(1, f"not valid YAML: {first_line(error)}") from None


def read_tree(file: Path) -> dict[str, Any] | None:
    """The mapping in a YAML file, of plain values; None where it is missing or damaged."""
    try:
        tree = plain(read_yaml(file.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None


def _collect_lines(
    loader: _Loader,
    node: yaml.Node,
    prefix: str,
    lines: dict[str, int],
    around: tuple[yaml.Node, ...],
    seen: set[int],
) -> None:
    """Note each key's line, and refuse what YAML allows but no recipe means: a key given twice (the last one would
    silently win), a key that is a list or mapping, and an alias to what contains it.
    """
    if any(node is outer for outer in around):
        raise InvalidError(node.start_mark.line + 1, "an alias (*) refers to the very thing that contains it")
    if id(node) in seen:
        return
    seen.add(id(node))
    around = (*around, node)
    number = node if isinstance(node, yaml.ScalarNode) and node.tag == "tag:yaml.org,2002:int" else None
    if number is not None and abs(loader.construct_yaml_int(number)) >= LARGEST_INTEGER:
        key = f"{prefix[:-1]}: " if prefix else ""
        raise InvalidError(node.start_mark.line + 1, f"{key}found {shorten(number.value)}; write a number below 2^63")
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            _collect_lines(loader, item, f"{prefix}{index}.", lines, around, seen)
    if not isinstance(node, yaml.MappingNode):
        return
    own: dict[str, int] = {}
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            raise InvalidError(line, "a key is a list or a mapping; write text")
        if key.value == "<<":  # merged: its keys are this mapping's, unless it has them itself
            _collect_lines(loader, value, prefix, lines, around, seen)
            continue
        dotted = f"{prefix}{loader.construct_object(key)}"
        if dotted in own:
            raise InvalidError(line, f"{dotted}: given twice, first on line {own[dotted]}; remove one")
        own[dotted] = lines[dotted] = line
        _collect_lines(loader, value, f"{dotted}.", lines, around, seen)


def _written_out(node: yaml.Node, known: dict[int, int]) -> int:
    """How many values a node stands for, where each alias counts as what it refers to."""
    if id(node) not in known:
        parts = node.value if isinstance(node, yaml.CollectionNode) else []
        inner = [part for pair in parts for part in pair] if isinstance(node, yaml.MappingNode) else parts
        known[id(node)] = 1 + sum(_written_out(part, known) for part in inner)
    return known[id(node)]
