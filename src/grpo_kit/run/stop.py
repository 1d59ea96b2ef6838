"""A stop that the user asks for, by Ctrl-C or SIGTERM."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from grpo_kit.processes import gather, is_main


class StopRequest:
    """A stop that the user asks for: `asked` is the signal that this process got, `signal` that of the whole run."""

    def __init__(self) -> None:
        self.asked = 0
        self.signal: int | None = None

    def agreed(self) -> bool:
        """For all processes: whether any of them has been asked by now, so that all stop at the same point."""
        self.signal = max(gather(self.asked)) or None
        return self.signal is not None


@contextmanager
def listen_for_stop() -> Iterator[StopRequest]:
    """Turn Ctrl-C and SIGTERM into a `StopRequest` while the block runs; the second raises SystemExit."""
    request = StopRequest()

    def handle(number: int, frame: FrameType | None) -> None:
        if request.asked:
            raise SystemExit(128 + number)
        request.asked = number
        if is_main():
            print(
                "\nstopping after this step, or the last one of its rollout, and saving; once more leaves at once",
                flush=True,
            )

    previous = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
