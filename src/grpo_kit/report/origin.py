"""Where a run came from: what its recipe has that the kit's defaults have not, and its provenance."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grpo_kit.prepare.trl_args import DEFAULTS, trl_default, written_fields
from grpo_kit.recipe.file import read_tree
from grpo_kit.recipe.plain_values import flat
from grpo_kit.recipe.recipe import SECTIONS, Recipe
from grpo_kit.recipe.secrets import HIDDEN, command_without_secrets, without_secrets
from grpo_kit.report.foreign import line, mapping
from grpo_kit.run.run_dir import RunDir

MOST_ROWS = 200
"""Of a recipe, or of a group of its provenance, so many keys are shown."""

MOST_GROUPS = 20


@dataclass(frozen=True)
class Difference:
    """A key of the recipe, its value, and the default that it replaces: whose that is, or "" where there is none."""

    key: str
    value: str
    default: str
    whose: str


@dataclass(frozen=True)
class Origin:
    group: str
    facts: list[tuple[str, str]]


def differences_of(run: RunDir) -> list[Difference]:
    """What of the resolved recipe is not as it would be by itself, in the recipe's order."""
    tree = read_tree(run.path / "recipe.yaml") or {}
    found = list(_differences(tree, flat(without_secrets(tree))))
    more = [Difference(f"and {len(found) - MOST_ROWS} more keys", "", "", "")] if len(found) > MOST_ROWS else []
    return found[:MOST_ROWS] + more


def _differences(tree: dict[str, Any], harmless: dict[str, Any]) -> Iterator[Difference]:
    """`harmless` has the value of each key that may be shown; a key that has none is within one that may not be."""
    for key, value in flat(tree).items():
        section, _, own = key.partition(".")
        if section == "name" or (section == "eval_dataset" and mapping(tree.get("dataset")).get(own) == value):
            continue
        default, whose = _default(section, own, tree)
        if not whose or default != value:
            yield Difference(
                line(key, 200), _written(harmless.get(key, HIDDEN)), _written(default) if whose else "", whose
            )


def _default(section: str, own: str, tree: dict[str, Any]) -> tuple[Any, str]:
    """A key's default and whose it is."""
    if section == "grpo" and own in DEFAULTS:
        return DEFAULTS[own].full if tree.get("lora") is None else DEFAULTS[own].lora, "kit"
    if section == "grpo" and own in written_fields():
        return trl_default(own), "TRL"
    if section == "goal":
        return next(iter(mapping(tree.get("rewards"))), None), "kit"
    if section == "rewards" and own.endswith(".weight"):
        return 1.0, "kit"
    fields = SECTIONS[section].model_fields if own and section in SECTIONS else {} if own else Recipe.model_fields
    field = fields.get(own or section)
    if field is None or field.is_required():
        return None, ""
    return field.get_default(call_default_factory=True), "kit"


def provenance_of(run: RunDir) -> list[Origin]:
    """Everything in provenance.json but the settings, which are shown elsewhere, and the text of a diff."""
    top: list[tuple[str, str]] = []
    groups = []
    read = mapping(run.read("provenance.json"))
    argv = read.pop("argv", None)
    read.pop("settings", None)
    if isinstance(argv, list):
        top.append(("command", line(shlex.join(command_without_secrets([str(word) for word in argv])), 2000)))
    for key, value in without_secrets(read).items():
        if isinstance(value, dict):
            facts = [_fact(name, inner) for name, inner in flat(value).items()]
            more = [("and more", f"{len(facts) - MOST_ROWS} in provenance.json")] if len(facts) > MOST_ROWS else []
            groups.append(Origin(line(key, 200), facts[:MOST_ROWS] + more))
        else:
            top.append(_fact(key, value))
    return [origin for origin in (Origin("run", top[:MOST_ROWS]), *groups[:MOST_GROUPS]) if origin.facts]


def _fact(name: str, value: Any) -> tuple[str, str]:
    if name == "diff":
        return (
            "uncommitted changes",
            f"{str(value).count(chr(10))} lines of diff in provenance.json" if value else "none",
        )
    return line(name, 200), _written(value)


def _written(value: Any) -> str:
    """A value as a recipe would have it."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return line(text, 1000)
