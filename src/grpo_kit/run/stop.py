"""A stop that the user asks for: Ctrl-C, SIGTERM, or a terminal that hangs up."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from grpo_kit.processes import gather, is_main
from grpo_kit.terminal import Output, show_at_once


class StopRequest:
    """A stop that the user asks for: `asked` is the signal that this process got, `signal` that of the whole run."""

    def __init__(self) -> None:
        self.asked = 0
        self.signal: int | None = None

    def agreed(self) -> bool:
        """For all processes: whether any of them has been asked by now, so that all stop at the same point."""
        self.signal = max(gather(self.asked)) or None
        return self.signal is not None


class AtOnce:
    """The answer to Ctrl-C where there is nothing to save yet: KeyboardInterrupt.

    `asked` remembers it: it comes in the middle of whatever is being imported or called, and some code swallows it.
    """

    def __init__(self) -> None:
        self.asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt


@contextmanager
def ended_at_once() -> Iterator[None]:
    """Ctrl-C raises KeyboardInterrupt within the block, and does so again at its end where that was swallowed."""
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, or somebody else's
        yield
        return
    answer = AtOnce()
    signal.signal(signal.SIGINT, answer)
    try:
        yield
        if answer.asked:
            raise KeyboardInterrupt
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@contextmanager
def listen_for_stop() -> Iterator[StopRequest]:
    """Turn Ctrl-C, SIGTERM and SIGHUP into a `StopRequest` while the block runs; the second raises SystemExit.

    Not so a second SIGHUP: the kernel and the shell send one each. Under nohup it stays ignored.
    """
    request = StopRequest()
    Output.hurried = False

    def handle(number: int, frame: FrameType | None) -> None:
        if request.asked and number == signal.SIGHUP:
            return
        if request.asked:
            raise SystemExit(128 + number)
        request.asked, Output.hurried = number, True
        if is_main():
            show_at_once(
                "\nstopping after this step, or the last one of its rollout, and saving; once more leaves at once"
            )

    heard = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in heard}
    try:
        yield request
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
