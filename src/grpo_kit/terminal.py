"""The way to the terminal: what is shown neither acts on it, nor ends or holds up what is being done."""

import errno
import io
import os
import select
import sys
import traceback
import unicodedata
from contextlib import suppress
from typing import Any

HURRY_S = 0.2
"""So long a write waits for its reader once a stop is asked for; before that, as long as it takes."""


def visible(text: str) -> str:
    """Text as it may be shown: a control character in it must not act on the terminal. Twice is the same as once."""
    return "".join(c if _is_harmless(c) else c.encode("unicode_escape").decode() for c in text)


def _is_harmless(character: str) -> bool:
    return character in "\n\t" or character.isprintable() or unicodedata.category(character) == "Zs"  # U+3000 among it


def show(text: object = "", *, error: bool = False) -> None:
    """Write a line to standard output, or to standard error; it is dropped where that cannot be done."""
    stream = sys.stderr if error else sys.stdout
    if stream is not None:
        with suppress(OSError, ValueError):  # also a closed file's, and of an encoding
            stream.write(f"{visible(str(text))}\n")  # at once: other processes write there too
            stream.flush()


def show_at_once(text: str) -> None:
    """The same in a signal handler: it enters no stream, which may be in the middle of a write, and does not wait."""
    with suppress(OSError, ValueError, AttributeError):
        descriptor = sys.stdout.fileno()
        if select.select([], [descriptor], [], 0)[1]:
            os.write(descriptor, f"{text}\n".encode())


class Output(io.RawIOBase):
    """A standard stream to which every write succeeds: what the descriptor does not take is dropped.

    Nothing is held back, so that nothing is left to fail at the interpreter's end.
    """

    hurried = False
    """For all of them: whether a stop is asked for, so that a reader that has gone to sleep is not waited for."""

    def __init__(self, name: str, descriptor: int):
        self.name, self.descriptor = name, descriptor
        self.lost: int | None = None  # the number of the first error

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.descriptor

    def isatty(self) -> bool:
        return os.isatty(self.descriptor)

    def write(self, data: Any) -> int:
        rest = bytes(data)
        try:
            while rest and self._is_ready():
                with suppress(BlockingIOError):
                    rest = rest[os.write(self.descriptor, rest[: select.PIPE_BUF]) :]  # what a ready pipe has room for
        except OSError as error:
            first, self.lost = self.lost is None, self.lost or error.errno
            if first and self.name == "<stdout>" and error.errno != errno.EPIPE:
                show(f"warning: standard output cannot be written ({error.strerror}): lines are missing", error=True)
        return len(data)

    def _is_ready(self) -> bool:
        while not select.select([], [self.descriptor], [], HURRY_S)[1]:
            if Output.hurried:
                return False
        return True


def is_unread() -> bool:
    """Whether the reader of standard output is gone, as that of `grpo-kit run ... | head` is."""
    output = getattr(sys.stdout, "buffer", None)
    return isinstance(output, Output) and output.lost == errno.EPIPE


def secure_output() -> None:
    """From here on nothing that this process writes to its standard streams can fail; for a process of the kit's own.

    What cannot be encoded is written as backslash escapes. Streams that somebody has put there stay as they are.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # closed, as by `>&-`: the next file to be opened would be taken for it
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        given = getattr(sys, name)
        if given is getattr(sys, f"__{name}__"):
            output: Any = Output(f"<{name}>", descriptor)
            encoding = "utf-8" if given is None else given.encoding
            text = io.TextIOWrapper(output, encoding, "backslashreplace", line_buffering=True, write_through=True)
            setattr(sys, name, text)
            if name == "stderr":
                sys.excepthook = lambda *raised: show("".join(traceback.format_exception(*raised)).rstrip(), error=True)
