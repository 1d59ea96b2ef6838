"""YAML -> a frozen, fully checked `Recipe`. No torch, nothing of the data or the rewards is opened here."""

import difflib
import enum
import re
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    create_model,
    field_validator,
    model_validator,
)

from grpo_kit.errors import RecipeError
from grpo_kit.recipe_file import override, parse_yaml


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DatasetSection(_Section):
    """Where the rows come from and how a row becomes a prompt and a gold answer."""

    path: str
    "Hub id, or a local .jsonl, .json, .csv or .parquet file (beside the recipe, or from the current folder)."
    name: str | None = None
    "The hub data set's configuration, if it has any."
    split: str | None = None
    "Split of a hub data set (default train). A local file has none."
    limit: PositiveInt | None = None
    "Rows to keep, after a seeded shuffle. Absent: all rows in their order."
    system: str | None = None
    "System message, taken literally."
    prompt: str | None = None
    "Template of the user message; `{name}` is a column. Absent: the column `prompt` or `messages`."
    answer: str | None = None
    "Template of the gold answer, stored as the column `answer`. Absent: the column `answer`, if there is one."
    answer_pattern: str | None = None
    "Regular expression searched in the answer; its group 1 is kept."
    gold_in_prompt: bool = False
    "True where the prompt is meant to show the gold answer's column."

    @field_validator("system", "prompt")
    @classmethod
    def _no_control_characters(cls, text: str | None) -> str | None:
        found = next((c for c in text or "" if ord(c) < 32 and c not in "\n\t"), None)
        if found is not None:
            raise ValueError(
                f"control character U+{ord(found):04X}; in YAML's double quotes \\b is a backspace: use single quotes"
            )
        return text

    @field_validator("answer_pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        try:
            groups = re.compile(pattern).groups if pattern is not None else 1
        except re.error as error:
            raise ValueError(f"not a regular expression ({error}): {pattern!r}") from None
        if groups < 1:
            raise ValueError(f"needs a group in parentheses, the part to keep: {pattern!r}")
        return pattern


class RewardSection(_Section):
    """One reward under its label: weight, file, options of its own."""

    weight: float = 1.0
    file: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_number_or_mapping(cls, value: Any) -> Any:
        """`NAME: 1.0` or `NAME: {weight, file, options of its own}`."""
        if isinstance(value, bool) or not isinstance(value, int | float | dict):
            raise ValueError(f"found {value!r}; write a weight such as 1.0, or {{weight: 1.0, ...options}}")
        if not isinstance(value, dict):
            return {"weight": value}
        own = {key: value[key] for key in ("weight", "file") if key in value}
        return {**own, "options": {str(k): v for k, v in value.items() if k not in own}}


class EvaluationSection(_Section):
    """How held-out evaluation differs from training."""

    max_completion_length: PositiveInt | None = None
    "Tokens; absent: as in training."
    samples: PositiveInt = 4
    "Completions per held-out prompt."


class Recipe(_Section):
    """One run, as written by its user; `grpo` and `lora` are checked later against what they configure."""

    model: str
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
    rewards: dict[str, RewardSection]
    lora: dict[str, Any] | None = None
    "peft.LoraConfig's keys; absent: full fine-tuning."
    grpo: dict[str, Any] = Field(default_factory=dict)
    "trl.GRPOConfig's keys, where they differ from the kit's defaults."
    samples: Literal["all"] | PositiveInt = "all"
    "Which steps' completions are written to samples.jsonl: all, or every Nth step."
    name: str | None = Field(default=None, pattern=r"^[\w][\w.\-]*$")
    "The run's name; absent: the recipe's file name."

    source: Path = Field(default=Path("recipe.yaml"), exclude=True)
    lines: dict[str, int] = Field(default_factory=dict, exclude=True, repr=False)

    @model_validator(mode="after")
    def _goal_is_a_reward(self) -> "Recipe":
        if not self.rewards:
            raise ValueError("rewards: empty; name at least one reward, such as `accuracy: 1.0`")
        if self.goal is not None and self.goal not in self.rewards:
            raise ValueError(f"goal: {self.goal!r} is not among the rewards: {', '.join(self.rewards)}")
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
    source = path / "recipe.yaml" if (path / "recipe.yaml").is_file() else path
    tree, lines = parse_yaml(source)
    for assignment in overrides:
        override(tree, lines, assignment)
    if isinstance(tree.get("dataset"), dict) and isinstance(tree.get("eval_dataset"), dict):
        tree["eval_dataset"] = {**tree["dataset"], **tree["eval_dataset"]}
    try:
        for own in {"source", "lines"} & tree.keys():  # fields of ours that are no keys of a recipe
            raise _error(source, lines, own, unknown_key(own, "", keys_of("")))
        return Recipe.model_validate({**tree, "source": source, "lines": lines})
    except ValidationError as error:
        raise _readable(source, lines, error) from None


def _error(source: Path, lines: dict[str, int], key: str, message: str) -> RecipeError:
    line = lines.get(key)
    return RecipeError(f"{source}{f':{line}' if line else ''}: {key}: {message}")


SECTIONS: dict[str, type[_Section]] = {
    "": Recipe,
    "dataset": DatasetSection,
    "eval_dataset": DatasetSection,
    "evaluation": EvaluationSection,
}


def keys_of(section: str) -> list[str]:
    """The keys that a section of the recipe has ("" is the top level)."""
    return [key for key, field in SECTIONS[section].model_fields.items() if not field.exclude]


def unknown_key(key: str, section: str, known: list[str]) -> str:
    """What to say of a key that `section` does not have: where it belongs, or the nearest right one."""
    where = f"unknown key in {section}" if section else "unknown key at the top level"
    for home in SECTIONS:
        if home != section and key in keys_of(home):
            return f"{where}; it belongs {f'under {home}:' if home else 'at the top level'}"
    near = difflib.get_close_matches(key, known, n=1)
    if near:
        return f"{where}; did you mean {near[0]}?"
    has = f" (keys: {', '.join(known) or 'none'})" if len(known) < 30 else ""
    return f"{where}{has}" + ("; trl.GRPOConfig's settings go under grpo:" if section in SECTIONS else "")


def _readable(source: Path, lines: dict[str, int], error: ValidationError) -> RecipeError:
    """The first of pydantic's findings as one line: file, line, dotted key, what was found, what to write."""
    first = error.errors(include_url=False)[0]
    path = [str(part) for part in first["loc"] if not str(part).startswith(("literal[", "constrained-int"))]
    key = ".".join(path)
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        section = path[0] if len(path) > 1 else ""
        message = unknown_key(path[-1], section, keys_of(section))
    elif first["type"] == "missing":
        message = f"missing; write {key.replace('.', ': {')}: ..." + "}" * (len(path) - 1)
    elif first["type"] == "value_error" and not key:
        key, _, message = message.partition(": ")
    elif first["type"] != "value_error":
        message = f"found {shorten(first['input'])}; {message[0].lower()}{message[1:]}"
    return _error(source, lines, key, message)


def shorten(value: Any, width: int = 60) -> str:
    """`repr` cut to a readable length."""
    text = repr(value)
    return text if len(text) <= width else text[: width - 3] + "..."


def as_written(recipe: Recipe) -> dict[str, Any]:
    """The recipe as a tree that `load_recipe` reads back to the same recipe: only the keys that were set."""
    tree = recipe.model_dump(mode="json", exclude_unset=True)
    for label, reward in recipe.rewards.items():
        own = {"file": reward.file} if reward.file else {}
        tree["rewards"][label] = {"weight": reward.weight, **own, **reward.options}
    return tree


def strict_model(name: str, hints: Mapping[str, Any]) -> type[BaseModel]:
    """A pydantic model of optional fields from type hints that forbids every other key."""
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False, protected_namespaces=())
    fields: dict[str, Any] = {key: (_enum_only(hint), None) for key, hint in hints.items() if not key.startswith("_")}
    return create_model(name, __config__=config, **fields)


def _enum_only(hint: Any) -> Any:
    """`SchedulerType | str` would accept any string; the enumeration alone knows the legal ones."""
    enums = [part for part in typing.get_args(hint) if isinstance(part, type) and issubclass(part, enum.Enum)]
    return enums[0] if enums and str in typing.get_args(hint) else hint


def validated(recipe: Recipe, section: str, values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """`values` with YAML's strings and whole floats turned into the model's types. Raises RecipeError."""
    try:
        checked = model.model_validate(values).model_dump(exclude_unset=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = str(first["loc"][0])
        if first["type"] == "extra_forbidden":
            message = unknown_key(key, section, list(model.model_fields))
        else:
            message = f"found {shorten(first['input'])}; {first['msg'][0].lower()}{first['msg'][1:]}"
        raise recipe.error(f"{section}.{key}", message) from None
    return {key: value.value if isinstance(value, enum.Enum) else value for key, value in checked.items()}
