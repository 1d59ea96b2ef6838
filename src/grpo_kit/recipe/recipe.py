"""YAML -> a frozen, fully checked `Recipe`. No torch, nothing of the data or the rewards is opened here."""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PositiveInt, ValidationError, field_validator, model_validator

from grpo_kit.diagnosis.diagnose import NAMES, nearest
from grpo_kit.errors import RecipeError, shorten
from grpo_kit.recipe.file import COMMAND_LINE, is_file, override, parse_yaml
from grpo_kit.recipe.schema import Section, explain, read_value
from grpo_kit.recipe.sections import (
    REWARD_KEYS,
    DatasetSection,
    DynamicSamplingSection,
    EvaluationSection,
    RewardSection,
)


def _is_folder_name(text: str) -> bool:
    """Of 100 characters and 200 bytes at most, so that a number can follow it."""
    if not re.fullmatch(r"[^\s./\\][^/\\\x00-\x1f\ud800-\udfff]{0,99}", text):
        return False
    return len(text.encode()) <= 200


def _label(text: str) -> str:
    if not re.fullmatch(r"\w[\w-]{0,63}", text):
        raise ValueError(f"found the name {shorten(text)}; write letters, digits, _ and - (64 at most)")
    return text


class Recipe(Section):
    """One run, as written by its user; `grpo` and `lora` are checked later against what they configure."""

    model: str = Field(min_length=1)
    "Hub id, local folder, or builtin:tiny."
    thinking: bool | None = None
    "`enable_thinking` of the chat template; absent: not passed."
    seed: int = Field(default=42, ge=0, lt=2**32)
    dataset: DatasetSection
    eval_dataset: DatasetSection | None = None
    "Held-out rows; keys it lacks come from `dataset`. Absent: nothing is measured, and no verdict is given."
    eval_every: PositiveInt | None = None
    "Also evaluate every N steps. Absent: before and after only."
    evaluation: EvaluationSection = EvaluationSection()
    goal: str | None = None
    "Label of the reward whose full marks mean that a completion is right. Absent: the first reward."
    rewards: dict[Annotated[str, AfterValidator(_label)], RewardSection]
    on_reward_error: Literal["raise", "skip"] = "raise"
    "What a reward that raises or returns no number does: end the run, its last state saved, or lose that row."
    lora: dict[str, Any] | None = None
    "peft.LoraConfig's keys; absent: full fine-tuning."
    grpo: dict[str, Any] = Field(default_factory=dict)
    "trl.GRPOConfig's keys, where they differ from the kit's defaults."
    fast: bool = True
    "Compute a step's gradients with less work; False: as TRL computes them."
    dynamic_sampling: DynamicSamplingSection | None = None
    "Replace flat groups by fresh prompts before the update; absent: they are left out of it."
    stop_on: list[str] = Field(default_factory=list)
    "Findings of the diagnosis, such as no-gradient, that end the run when they are made."
    samples: Literal["all"] | PositiveInt = "all"
    "Which steps' completions are written to samples.jsonl: all, or every Nth step."
    name: str | None = None
    "The run's name; absent: the recipe's file name."

    source: Path = Field(default=Path("recipe.yaml"), exclude=True)
    lines: dict[str, int] = Field(default_factory=dict, exclude=True, repr=False)

    @field_validator("name")
    @classmethod
    def _names_a_folder(cls, text: str | None) -> str | None:
        if text is not None and not _is_folder_name(text):
            raise ValueError(f"found {shorten(text)}; write a folder's name: no / or \\, no dot in front, 100 at most")
        return text

    @model_validator(mode="after")
    def _file_names_a_folder(self) -> "Recipe":
        if self.name is None and not _is_folder_name(self.source.stem):
            raise ValueError("name: missing, and the recipe's file has no name for a folder; write name: or rename it")
        return self

    @field_validator("stop_on")
    @classmethod
    def _names_findings(cls, names: list[str]) -> list[str]:
        for unknown in (name for name in names if name not in NAMES):
            raise ValueError(f"found {shorten(unknown)}; write {nearest(unknown)}")
        return names

    @model_validator(mode="after")
    def _names_are_rewards(self) -> "Recipe":
        if self.eval_dataset is not None and self.eval_dataset.pass_rate is not None:
            raise ValueError(
                "eval_dataset.pass_rate: only training rows are chosen by it; held-out rows stay as they are"
            )
        if not self.rewards:
            raise ValueError("rewards: empty; name at least one reward, such as `accuracy: 1.0`")
        if self.goal is not None and self.goal not in self.rewards:
            raise ValueError(f"goal: found {self.goal!r}; write one of the rewards: {', '.join(self.rewards)}")
        for label, reward in self.rewards.items():
            gate = reward.only_if
            if gate is not None and (gate == label or gate not in self.rewards or self.rewards[gate].only_if):
                others = [name for name, other in self.rewards.items() if name != label and other.only_if is None]
                wanted = f"another reward, one that has no only_if itself: {', '.join(others) or 'there is none'}"
                raise ValueError(f"rewards.{label}.only_if: found {gate!r}; write {wanted}")
        if all(reward.weight == 0 for reward in self.rewards.values()):
            raise ValueError("rewards: every weight is 0, so nothing could be learned; give one reward a weight")
        return self

    @property
    def goal_label(self) -> str:
        return self.goal or next(iter(self.rewards))

    @property
    def run_name(self) -> str:
        return self.name or self.source.stem

    def error(self, key: str, message: str) -> RecipeError:
        """A RecipeError that points at a dotted key of this recipe."""
        return _error(self.source, self.lines, key, message)


def load_recipe(path: Path, overrides: Iterable[str] = ()) -> Recipe:
    """Read a recipe (or the `recipe.yaml` of a run directory) and apply `dotted.key=value` overrides.

    Raises RecipeError for anything that is not a well-formed recipe.
    """
    source = path / "recipe.yaml" if is_file(path / "recipe.yaml") else path
    return recipe_of(*parse_yaml(source), source, overrides)


def recipe_of(tree: dict[str, Any], lines: dict[str, int], source: Path, overrides: Iterable[str] = ()) -> Recipe:
    """The recipe that a tree of plain values is; `lines` says where each key stands in `source`."""
    for assignment in overrides:
        override(tree, lines, assignment)
    for key, value in tree.items():
        if value is None and key in SECTION_KEYS:
            raise _error(source, lines, key, "is empty; write keys under it, or remove it")
    tree = _inherited(tree)
    try:
        for own in {"source", "lines"} & tree.keys():  # fields of ours that are no keys of a recipe
            raise _error(source, lines, own, unknown_key(own, "", keys_of("")))
        return Recipe.model_validate({**tree, "source": source, "lines": lines})
    except ValidationError as error:
        at, message = explain(error, depth=4)
        if not at:  # a rule between keys, which begins with the key to blame
            key, _, message = message.partition(": ")
            at = [key]
        if not message:
            section = at[0] if len(at) > 1 else ""
            message = unknown_key(at[-1], section, keys_of(section))
        raise _error(source, lines, ".".join(at), message) from None


def _inherited(tree: dict[str, Any]) -> dict[str, Any]:
    """`eval_dataset` with the keys it lacks from `dataset`: of another path's all but its `name` and `split`.

    Which rows are easy enough to be trained on is the training rows' own.
    """
    train, held_out = tree.get("dataset"), tree.get("eval_dataset")
    if not isinstance(train, dict) or not isinstance(held_out, dict):
        return tree
    own_place = ("pass_rate", "pass_rate_file", *(("name", "split") if "path" in held_out else ()))
    return {**tree, "eval_dataset": {**{k: v for k, v in train.items() if k not in own_place}, **held_out}}


def _error(source: Path, lines: dict[str, int], key: str, message: str) -> RecipeError:
    """One line: the file, the line of the key or else of the section around it, the key, what is wrong."""
    written = key
    while written and written not in lines:
        written = written.rpartition(".")[0]
    line = lines.get(written)
    where = f"override of {source}" if line == COMMAND_LINE else f"{source}:{line}" if line else str(source)
    return RecipeError(f"{where}: {key}: {message}")


SECTIONS: dict[str, type[Section]] = {
    "": Recipe,
    "dataset": DatasetSection,
    "eval_dataset": DatasetSection,
    "evaluation": EvaluationSection,
    "dynamic_sampling": DynamicSamplingSection,
}
OWNERS = {"grpo": "trl.GRPOConfig", "lora": "peft.LoraConfig"}
SECTION_KEYS = {*SECTIONS, *OWNERS, "rewards"}


def keys_of(section: str) -> list[str]:
    """The keys that a section of the recipe has ("" is the top level)."""
    return [key for key, field in SECTIONS[section].model_fields.items() if not field.exclude]


def unknown_key(key: str, section: str, known: list[str]) -> str:
    """What to say of a key that `section` does not have: where it belongs, or the nearest right one."""
    where = f"unknown key in {section}" if section else "unknown key at the top level"
    for home in SECTIONS:
        if home != section and key in keys_of(home):
            return f"{where}; it belongs {f'under {home}:' if home else 'at the top level'}"
    lower = {name.lower(): name for name in known}
    near = difflib.get_close_matches(key.lower(), lower, n=1)
    near = near or [name for name in lower if len(key) > 2 and f"_{key.lower()}" in name]
    if near:
        return f"{where}; did you mean {' or '.join(lower[name] for name in near[:3])}?"
    if section in OWNERS:
        return f"{where}; its keys are those of {OWNERS[section]}"
    has = f" (keys: {', '.join(known) or 'none'})"
    return f"{where}{has}" + ("; trl.GRPOConfig's settings go under grpo:" if section in SECTIONS else "")


def validated(recipe: Recipe, section: str, values: dict[str, Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a section that the recipe leaves open, in the types that `hints` name. Raises RecipeError."""
    known = [*hints, *(REWARD_KEYS if section.startswith("rewards.") else ())]
    checked = {}
    for key, value in values.items():
        if key not in hints:
            raise recipe.error(f"{section}.{key}", unknown_key(str(key), section, known))
        try:
            checked[key] = read_value(key, value, hints[key])
        except ValidationError as error:
            raise recipe.error(f"{section}.{key}", explain(error, depth=1)[1]) from None
    return checked
