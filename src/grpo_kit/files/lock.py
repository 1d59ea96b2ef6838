"""One run has one owner at a time."""

import errno
import fcntl
import os
from pathlib import Path
from typing import BinaryIO
from weakref import WeakSet

from grpo_kit.errors import RecipeError

_held: "WeakSet[Lock]" = WeakSet()


def _let_go_in_a_fork() -> None:
    """A forked child, such as a data loader's worker, may outlive the process, and would hold its locks."""
    for lock in _held:
        lock.close()


os.register_at_fork(after_in_child=_let_go_in_a_fork)


class InUseError(RecipeError):
    """Another process has the directory."""


class Lock:
    """Holds a run's directory for this process until it is closed, or the process is gone, in whatever way."""

    def __init__(self) -> None:
        self._file: BinaryIO | None = None

    def take(self, folder: Path) -> None:
        """Raises InUseError where another process has the directory; one that has died has it no longer.

        Raises RecipeError where `.lock` is something else than a file of its own.
        """
        path = folder / ".lock"
        try:
            file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o666), "r+b", buffering=0)
        except OSError as error:
            is_other = error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO)
            then = "a run makes its own: remove it" if is_other else "a run goes on where it can write"
            raise RecipeError(f"{path}: cannot be opened ({error.strerror}); {then}") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = file.read().decode(errors="replace").strip() or "another process"
            file.close()
            raise InUseError(
                f"{folder}: is being trained by {owner[:200]}; wait for its end, or leave out --resume to start a "
                "new run"
            ) from None
        except OSError:
            pass  # a file system without locks
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n".encode())
        self._file = file
        _held.add(self)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
