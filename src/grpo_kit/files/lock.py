"""One run has one owner at a time."""

import fcntl
import os
from pathlib import Path
from typing import TextIO

from grpo_kit.errors import RecipeError


class Lock:
    """Holds a run's directory for this process until it is closed, or the process is gone, in whatever way."""

    def __init__(self) -> None:
        self._file: TextIO | None = None

    def take(self, folder: Path) -> None:
        """Raises RecipeError where another process has the directory; one that has died has it no longer."""
        file = (folder / ".lock").open("a+", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise RecipeError(
                f"{folder}: is being trained by {owner}; wait for its end, or leave out --resume to start a new run"
            ) from None
        except OSError:
            pass  # a file system without locks
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        self._file = file

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
