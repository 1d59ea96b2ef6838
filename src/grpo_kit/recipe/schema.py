"""Strict checks of values that come from YAML, and what is wrong with them in one plain line."""

import difflib
import enum
import typing
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from grpo_kit.errors import shorten

MANY = 12
"""More legal values than this are not listed in a message."""


class Section(BaseModel):
    """A frozen mapping of known keys; numbers are finite, and no truth value counts as one."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_as_number(cls, value: Any, info: ValidationInfo) -> Any:
        hint = cls.model_fields[info.field_name or ""].annotation
        return _not_a_truth_value(value) if _is_numeric(hint) else value


def read_value(key: str, value: Any, hint: Any) -> Any:
    """`value` with YAML's strings and whole floats turned into the type of the hint.

    Raises pydantic's ValidationError, located at `key`, for a value of another type.
    """
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
    mapping: Any = dict[str, _strict(hint)]  # type: ignore[misc]
    checked = TypeAdapter(mapping, config=config).validate_python({key: value})[key]
    return checked.value if isinstance(checked, enum.Enum) else checked


def _strict(hint: Any) -> Any:
    """`SchedulerType | str` would accept any string, so the enumeration alone; and no truth value for a number."""
    enums = [part for part in typing.get_args(hint) if isinstance(part, type) and issubclass(part, enum.Enum)]
    if enums and str in typing.get_args(hint):
        return enums[0]
    return Annotated[hint, BeforeValidator(_not_a_truth_value)] if _is_numeric(hint) else hint


def _not_a_truth_value(value: Any) -> Any:
    """YAML's `on`, `off`, `yes` and `no` are truth values, which Python would take for 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"found {value}; write a number")
    return value


def _is_numeric(hint: Any) -> bool:
    """Whether a type hint allows numbers but no truth values."""

    def leaves(part: Any) -> list[Any]:
        return [leaf for inner in typing.get_args(part) for leaf in leaves(inner)] or [part]

    found = leaves(hint)
    return bool not in found and (int in found or float in found)


def explain(error: ValidationError, depth: int) -> tuple[list[str], str]:
    """The first of pydantic's findings: the path of a key, of at most `depth` parts, what was found, what to write.

    For a key that the schema lacks the second part is "": the caller knows better where it belongs.
    """
    found = error.errors(include_url=False)
    first = next((f for f in found if f["type"] == "extra_forbidden"), found[0])  # a misspelt key is also a missing one
    about_key = first["type"] == "invalid_key" or first["loc"][-1:] == ("[key]",)
    parts = [str(part) for part in first["loc"][:depth]]  # a union adds its branches: literal['all'], constrained-int
    path = [part for part in parts if not part.startswith(("[key]", "literal[", "constrained-"))]
    kind = first["type"]
    if kind == "extra_forbidden":
        return path, ""
    if kind == "missing":
        return path, f"missing; write {': {'.join(path)}: ..." + "}" * (len(path) - 1)
    if kind == "value_error":
        return path, first["msg"].removeprefix("Value error, ")
    if about_key:
        given = first["input"]
        return [
            *path[:-1],
            str(given),
        ], f"found the key {shorten(given)}; a key is text: put it in quotes, or remove it"
    at_key = [finding for finding in found if finding["loc"][: len(path)] == first["loc"][: len(path)]]
    wanted = " or ".join(dict.fromkeys(_wanted(finding) for finding in at_key))  # of every type that it may have
    return path, f"{'is empty' if first['input'] is None else 'found ' + shorten(first['input'])}; write {wanted}"


def _wanted(finding: Mapping[str, Any]) -> str:
    """What to write, in the words of a person who writes YAML."""
    if finding["type"] in ("dict_type", "model_type", "dataclass_type", "mapping_type"):
        return "a mapping (key: value)"
    if finding["type"] == "int_parsing_size":
        return "a number below 2^63"
    if finding["type"] == "string_type":
        return "text" + ("; braces and colons need quotes: '{question}'" if isinstance(finding["input"], dict) else "")
    expected = str(finding.get("ctx", {}).get("expected", "")).replace(" or ", ", ").split(", ")
    if len(expected) > MANY:
        near = difflib.get_close_matches(repr(finding["input"]), expected, n=5, cutoff=0.3)
        return f"one of {', '.join(near or expected)}"
    wanted = str(
        finding["msg"].removeprefix("Value error, ").removeprefix("Input should be ").removeprefix("String should ")
    )
    if wanted.startswith("have "):
        return f"text of {wanted.removeprefix('have ')}"
    return f"a number {wanted}" if wanted.startswith(("greater", "less")) else wanted
