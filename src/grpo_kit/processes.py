"""The processes of one run, one for each card: which one speaks and writes, and what they must decide alike.

`accelerate launch` and `torchrun` start them. A command that is started by itself is one process, and all of this is
nothing to it. What is said to be for all processes must be called by each of them, in the same order.
"""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from grpo_kit.errors import RecipeError, RunError, first_line

T = TypeVar("T")


def count() -> int:
    """How many processes the launcher has started."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "LOCAL_RANK" in os.environ else 1


def rank() -> int:
    """The number of this one among them."""
    return int(os.environ.get("RANK", "0")) if count() > 1 else 0


def is_main() -> bool:
    """Whether this process speaks and writes for the run."""
    return rank() == 0


def card() -> int:
    """The number of this process's card among those that are visible."""
    return int(os.environ.get("LOCAL_RANK", "0")) if count() > 1 else 0


def spread_by() -> str | None:
    """What the launcher was told to divide the weights with, or None; to be asked after GRPOConfig is built."""
    from transformers.integrations import is_deepspeed_zero3_enabled

    if os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true":
        return "FSDP"
    return "DeepSpeed's zero_stage 3" if is_deepspeed_zero3_enabled() else None


def gather(value: T) -> list[T]:
    """The values of all processes in their order, in all of them; anything that can be pickled."""
    if count() == 1:
        return [value]
    import torch.distributed

    if not torch.distributed.is_initialized():  # GRPOConfig does it otherwise
        from accelerate import PartialState

        PartialState(cpu=not torch.cuda.is_available())
    values: list[T] = [value] * count()
    torch.distributed.all_gather_object(values, value)
    values[rank()] = value  # itself, not a copy
    return values


def leave() -> None:
    """For all processes, as the last thing they do: from here on each ends by itself, with its own exit code.

    A launcher ends the others as soon as one has failed, while the main one may still be writing or speaking.
    """
    if count() > 1:
        import torch.distributed

        gather(None)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        torch.distributed.destroy_process_group()  # else its threads may abort the interpreter's end


@contextmanager
def together() -> Iterator[None]:
    """For all processes: what fails in one of them fails in all, with the first one's error.

    Else the others would wait for it. Inside of it they must not need each other. An exception that is neither a
    RecipeError nor a RunError comes out as a RunError, of which it is the cause in its own process.
    """
    if count() == 1:
        yield
        return
    own: Exception | None = None
    try:
        yield
    except Exception as error:
        own = error
    said, cause = own, own and own.__cause__
    if own is not None and not isinstance(own, RecipeError | RunError):
        said, cause = RunError(f"process {rank()}: {type(own).__name__}: {first_line(own)}"), own
    first = next((error for error in gather(said) if error is not None), None)
    if isinstance(first, RunError):
        first.everywhere = True
    if first is not None:
        raise first from cause


def on_main(act: Callable[[], T]) -> T:
    """For all processes: what `act` returns in the main one, which alone does it; what it raises is raised in all."""
    done: list[T] = []
    with together():
        if is_main():
            done.append(act())
    return gather(done)[0][0]
