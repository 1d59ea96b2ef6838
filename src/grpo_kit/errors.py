"""The two ways in which a command ends badly without being a bug, and how to word what was found."""

from collections.abc import Callable
from typing import Any


class RecipeError(Exception):
    """Something that the user can fix: shown as one line, exit code 2.

    The message names the file, the key, what was found and what to write instead.
    """


class RunError(Exception):
    """A run that started and could not go on: shown as one line, exit code 1.

    `everywhere`: whether all processes of the run raise it, so that one of them is enough to say it.
    """

    everywhere = False


class RewardError(RunError):
    """A reward that broke its contract during a run: `details` is the traceback of its code, if it raised."""

    def __init__(self, message: str, details: str = ""):
        super().__init__(message)
        self.details = details


class NotFiniteError(RunError):
    """A value of the training that is not finite; `weights_lost`: whether it is one of the model's own weights.

    Nothing has been learned from it: all processes raise it before the optimizer's step.
    """

    everywhere = True

    def __init__(self, message: str, weights_lost: bool = False):  # pickled with its message alone
        super().__init__(message)
        self.weights_lost = weights_lost


NO_MEMORY = ("can't allocate memory", "CUDA out of memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""What a RuntimeError says: torch's own type for it is a card's alone."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether Python, torch on a CPU, or torch on a card could not get the memory that it asked for."""
    said = _said(str, error) if isinstance(error, RuntimeError) else ""
    return isinstance(error, MemoryError) or any(text in said for text in NO_MEMORY)


def shorten(value: Any, width: int = 60) -> str:
    """`repr` cut to a readable length."""
    text = _said(repr, value)
    return text if len(text) <= width else text[: width - 3] + "..."


def first_line(error: BaseException, width: int = 300) -> str:
    """What an exception says, in one line of a readable length."""
    text = (_said(str, error).strip() or type(error).__name__).splitlines()[0]
    return text if len(text) <= width else text[: width - 3] + "..."


def _said(how: Callable[[Any], str], value: Any) -> str:
    """`how(value)`, which runs code of a reward file where the value comes from there."""
    try:
        return how(value)
    except BaseException as error:
        return f"<{type(value).__name__} whose text raises {type(error).__name__}>"
