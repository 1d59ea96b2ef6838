"""The sections of a recipe: each key with its meaning, and what can be said of it by itself."""

import re
import unicodedata
from typing import Any

from pydantic import Field, PositiveInt, field_validator, model_validator

from grpo_kit.errors import shorten
from grpo_kit.recipe.schema import Section

_CONTROL = ("Cc", "Zl", "Zp")
_LOST_BACKSLASH = re.compile(r"\t(?:ext|imes|heta|riangle)")
"""What YAML makes of LaTeX's text, times, theta and triangle in double quotes: a tab and the rest."""


class DatasetSection(Section):
    """Where the rows come from and how a row becomes a prompt and a gold answer."""

    path: str = Field(min_length=1, max_length=1000)
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
    max_unusable: float = Field(default=0.05, ge=0, le=1)
    "Share of rows that may be left out because their gold answer cannot earn the reward; more is an error."
    gold_in_prompt: bool = False
    "True where the prompt is meant to show the gold answer's column."
    pass_rate: tuple[float, float] | None = None
    "Keep training rows whose measured pass rate lies within these two, such as [0.1, 0.9]."
    pass_rate_file: str | None = None
    "The rows.jsonl of the preflight that measured them."

    @field_validator("system", "prompt", "answer", "answer_pattern")
    @classmethod
    def _no_control_characters(cls, text: str | None) -> str | None:
        found = next((c for c in text or "" if unicodedata.category(c) in _CONTROL and c not in "\n\t"), None)
        found = found or ("\t" if _LOST_BACKSLASH.search(text or "") else None)
        if found is not None:
            raise ValueError(
                f"control character U+{ord(found):04X}; in YAML's double quotes \\b is a backspace: use single quotes"
            )
        return text

    @model_validator(mode="after")
    def _pass_rates_are_shares(self) -> "DatasetSection":
        if self.pass_rate is not None:
            low, high = self.pass_rate
            if not 0 <= low <= high <= 1:
                raise ValueError(f"pass_rate: found {list(self.pass_rate)}; write two shares such as [0.1, 0.9]")
        if (self.pass_rate is None) != (self.pass_rate_file is None):
            given, lacks = ("pass_rate", "pass_rate_file") if self.pass_rate else ("pass_rate_file", "pass_rate")
            raise ValueError(f"{given}: needs {lacks} too; `grpo-kit preflight RECIPE` measures and names both")
        return self

    @field_validator("answer_pattern")
    @classmethod
    def _one_group(cls, pattern: str | None) -> str | None:
        try:
            groups = re.compile(pattern).groups if pattern is not None else 1
        except re.error as error:
            raise ValueError(f"not a regular expression ({error}): {shorten(pattern)}") from None
        if groups < 1:
            raise ValueError(f"needs a group in parentheses, the part to keep: {shorten(pattern)}")
        return pattern


REWARD_KEYS = ("weight", "file", "only_if")
"""Keys of every reward; the others are options of its own."""


MOST = 1e6
"""A larger weight leaves float32 no digits for the other rewards."""


class RewardSection(Section):
    """One reward under its label: weight, file, options of its own."""

    weight: float = Field(default=1.0, ge=-MOST, le=MOST)
    file: str | None = None
    only_if: str | None = None
    "Label of a reward that must give full marks, else this one gives 0."
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_number_or_mapping(cls, value: Any) -> Any:
        """`NAME: 1.0` or `NAME: {weight, file, options of its own}`."""
        if isinstance(value, bool) or not isinstance(value, int | float | dict):
            raise ValueError(f"found {shorten(value)}; write a weight such as 1.0, or {{weight: 1.0, ...options}}")
        if not isinstance(value, dict):
            return {"weight": value}
        own = {key: value[key] for key in REWARD_KEYS if key in value}
        return {**own, "options": {str(k): v for k, v in value.items() if k not in own}}


class EvaluationSection(Section):
    """How held-out evaluation differs from training."""

    max_completion_length: PositiveInt | None = None
    "Tokens; absent: as in training."
    samples: PositiveInt = 4
    "Completions per held-out prompt."


class DynamicSamplingSection(Section):
    """Replacing groups that teach nothing before the update."""

    max_rounds: int = Field(default=2, ge=1, le=20)
    "How often at most the flat groups of a batch are replaced by fresh prompts."
