"""One call of a reward function: a number, None, or why there is neither. Workers import it, so nothing heavy."""

import importlib.util
import linecache
import math
import multiprocessing
import os
import sys
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, TypeVar

from grpo_kit.errors import first_line, is_out_of_memory, shorten

TRACE_DEPTH = 20


@dataclass(frozen=True)
class RewardCall:
    """A reward function as its file and the recipe define it, in a form that travels to another process."""

    path: Path
    source: bytes
    options: bytes  # pickled: they may be of a class of the file, which must be imported first
    batch_form: bool
    folder: str  # the current folder of the process that asks

    @property
    def name(self) -> str:
        return self.path.stem


@dataclass(frozen=True)
class Fault:
    """Why a completion has no score. `error`: the function broke its contract; the others are its environment's."""

    kind: Literal["error", "timeout", "died", "memory"]
    what: str
    where: str = ""  # file:line of the reward's code
    error_type: str = ""
    details: str = ""  # the traceback


Score = float | None | Fault

MOST_SCORE = 1e9
"""The square of this, with the largest weight there may be, is still a float32; beyond it a group's spread is not."""


class ResultError(Exception):
    """A reward returned something else than the numbers that it owes."""


def import_file(path: Path, source: bytes) -> ModuleType:
    """Run a reward file under a module name of its own, so that two files of one stem do not meet.

    Raises whatever the file raises.
    """
    name = f"grpo_kit_reward_{path.stem}_{zlib.crc32(str(path).encode()):x}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    linecache.checkcache(str(path))
    code = compile(source, str(path), "exec", dont_inherit=True)
    exec(code, module.__dict__)  # noqa: S102 - a reward file is code, and said to be
    return module


def score_row(call: RewardCall, function: Callable[..., Any], text: str, columns: dict[str, Any]) -> Score:
    """The score of one completion by a function of the normal form."""
    return _guarded(call, lambda: number(call.name, function(text, **columns), text))


def score_batch(
    call: RewardCall, function: Callable[..., Any], texts: list[str], columns: dict[str, Any], **more: Any
) -> list[Score]:
    """The scores of all completions by a function of the batch form; one fault stands for all.

    `columns` have one value for each completion, `more` one for the batch.
    """

    def scores() -> list[Score]:
        given = {name: list(values) for name, values in columns.items()}
        return numbers(call.name, function(completions=list(texts), **given, **more), texts)

    found = _guarded(call, scores)
    return [found] * len(texts) if isinstance(found, Fault) else found


T = TypeVar("T")


def _guarded(call: RewardCall, compute: Callable[[], T]) -> T | Fault:
    """What `compute` returns, or what kept it from doing so: whatever was raised, but for a Ctrl-C of the user's."""
    try:
        return compute()
    except ResultError as error:
        return Fault("error", str(error))
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) and multiprocessing.parent_process() is None:
            raise  # a worker is deaf to the user's, so there it is the reward's own
        if is_out_of_memory(error):
            return Fault("memory", f"{call.name} ran out of memory")
        return fault_of(call, error, f"{call.name} raised")


def fault_of(call: RewardCall, error: BaseException, what: str) -> Fault:
    """What an exception says, and where in the reward's file it comes from."""
    file, line = place(error, call.path)
    said = f"{what} {type(error).__name__}: {first_line(error)}"
    return Fault("error", said, f"{file}:{line}", type(error).__name__, _own_traceback(error, call.path))


def number(name: str, value: Any, text: str) -> float | None:
    """A score as a float. Raises ResultError for what is neither a finite number nor None."""
    plain = _plain(value)
    value = plain[0] if plain is not value and isinstance(plain, list) and len(plain) == 1 else plain
    if value is None:
        return None
    if not isinstance(value, bool | int | float) or not abs(value) <= sys.float_info.max:
        raise ResultError(
            f"{name} returned {shorten(value)} ({type(value).__name__}) for the completion {shorten(text)}; "
            "return a finite number, or None for a row that cannot be judged"
        )
    score = float(value)
    if not math.isfinite(score):  # a number of a class of its own may compare as it likes
        raise ResultError(
            f"{name} returned {shorten(value)} for the completion {shorten(text)}; return a finite number"
        )
    if abs(score) > MOST_SCORE:
        raise ResultError(
            f"{name} returned {shorten(value)} for the completion {shorten(text)}; return a number of at most "
            f"{MOST_SCORE:.0e}, because rewards are summed and squared in float32"
        )
    return score


def numbers(name: str, result: Any, texts: list[str]) -> list[Score]:
    """A batch-form result: a list, tuple, array or tensor of one number each; (n, 1) is flattened."""
    values = _plain(result)
    if not isinstance(values, list | tuple) or len(values) != len(texts):
        got = f"{len(values)} values" if isinstance(values, list | tuple) else type(result).__name__
        raise ResultError(
            f"{name} returned {got} ({shorten(result)}) for {len(texts)} completions; "
            f"return a list of {len(texts)} numbers"
        )
    if values is not result and all(isinstance(value, list) and len(value) == 1 for value in values):
        values = [value[0] for value in values]
    return [number(name, value, text) for value, text in zip(values, texts, strict=True)]


def _plain(value: Any) -> Any:
    """What numpy, torch or pandas made as Python's own lists and numbers; all else as it is."""
    return value.tolist() if hasattr(value, "tolist") else value


def place(error: BaseException, path: Path) -> tuple[str, int]:
    """File and line of the deepest frame in the reward file, or else of the deepest one."""
    frames = traceback.extract_tb(error.__traceback__)
    frame = next((frame for frame in reversed(frames) if frame.filename == str(path)), frames[-1])
    return Path(frame.filename).name, frame.lineno or 0


def _own_traceback(error: BaseException, path: Path) -> str:
    """The traceback from the reward file on; ours above it says nothing to its author."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename != str(path):
        frames = frames.tb_next
    lines = traceback.format_exception(type(error), error, frames or error.__traceback__, limit=-TRACE_DEPTH)
    return "".join(lines).rstrip()


def enter(folder: str) -> None:
    """Be in the folder of the process that asks, so that a reward may open files beside it."""
    os.chdir(folder)  # without asking where it is: a reward may have left a folder that is gone
