"""What a run's files must hold for the run to reckon with them: a hand, a tool or a disk may have changed them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from grpo_kit.evaluation.evaluate import Evaluation


class _Shape(BaseModel):
    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class _Step(_Shape, extra="allow"):
    """A line of `metrics.jsonl`: numbers, None where one was not finite."""

    __pydantic_extra__: dict[str, float | None]
    step: int = Field(ge=0)


class _Completion(_Shape):
    step: int = Field(ge=0)
    row: int
    prompt: str
    completion: str
    rewards: dict[str, float | None]
    advantage: float | None = None
    "A preflight and an evaluation have none."
    tokens: int
    truncated: bool


class _Event(_Shape):
    event: str
    step: int = Field(ge=0)
    wall_s: float | None = None


class _Best(_Shape):
    step: int = Field(ge=0)
    accuracy: float
    ci95: Annotated[list[float], Field(min_length=2, max_length=2)]


class _Origin(_Shape):
    rewards: dict[str, str]
    data: dict[str, Any]
    model: dict[str, Any]
    settings: dict[str, Any] = Field(default_factory=dict)
    processes: int = 1


class _Flat(_Shape):
    share: float


class _Difficulty(_Shape):
    flat: _Flat
    truncated_share: float


class _Cost(_Shape):
    step_s: float


class _Foretold(_Shape):
    difficulty: _Difficulty
    cost: _Cost


SHAPES: dict[str, TypeAdapter[Any]] = {
    "metrics.jsonl": TypeAdapter(_Step),
    "samples.jsonl": TypeAdapter(_Completion),
    "eval.jsonl": TypeAdapter(Evaluation),
    "events.jsonl": TypeAdapter(_Event),
    "measured.json": TypeAdapter(_Best),
    "provenance.json": TypeAdapter(_Origin),
    "preflight.json": TypeAdapter(_Foretold),
}
"""By the name of the file; of a .jsonl file that of each line. More keys than these do no harm."""

LOGS = tuple(file for file in SHAPES if file.endswith(".jsonl"))


def is_whole(file: str, record: Any) -> bool:
    """Whether a record of a file has all that the run reckons with, each of its type."""
    try:
        SHAPES[file].validate_python(record)
    except ValidationError:
        return False
    return True
