"""Stopping and going on: a stop that was asked for, and the run and the checkpoint to go on from."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from grpo_kit.run_dir import RunDir, runs_called

NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")
"""Written after the weights, so a checkpoint that has them is whole."""


def step_of(checkpoint: Path) -> int:
    """The step after which `checkpoint-N` was written."""
    return int(checkpoint.name.rsplit("-", 1)[1])


def newest_checkpoint(run: RunDir) -> Path | None:
    """The newest complete checkpoint of a run, or None."""
    complete = [
        path
        for path in run.checkpoints.glob("checkpoint-*")
        if path.name.rsplit("-", 1)[1].isdigit() and all((path / name).is_file() for name in NEEDED)
    ]
    return max(complete, key=step_of, default=None)


def unfinished_run(name: str) -> RunDir | None:
    """The newest run of a recipe, if it did not finish."""
    newest = next(iter(runs_called(name)), None)
    if newest is None or (newest.read("summary.json") or {}).get("status") == "done":
        return None
    return newest


class StopRequest:
    """Whether the user has asked the run to stop, and by which signal."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def __bool__(self) -> bool:
        return self.signal is not None


@contextmanager
def listen_for_stop() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a `StopRequest` while the block runs; the second raises KeyboardInterrupt."""
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request:
            raise KeyboardInterrupt
        request.signal = number
        print("\nstopping after this step and saving; once more leaves at once", flush=True)

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
