"""The process table: which processes carry a mark in their environment."""

import contextlib
import time
import uuid

import psutil


def new_mark() -> dict[str, str]:
    """An environment variable that the processes started with it hand on to their children."""
    return {"GRPO_KIT_TEST_MARK": uuid.uuid4().hex}


def marked(mark: dict[str, str]) -> list[psutil.Process]:
    """The living processes that carry the mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() != psutil.STATUS_ZOMBIE and mark.items() <= process.environ().items():
                found.append(process)
    return found


def all_gone(mark: dict[str, str], within_s: float = 5.0) -> bool:
    """Whether no process carries the mark, now or soon."""
    deadline = time.monotonic() + within_s
    while marked(mark):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
