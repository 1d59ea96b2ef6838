"""Processes that run reward functions, so that a reward that hangs, dies or eats memory costs a row and not the run.

Signals and threads cannot stop C code that never returns; only ending its process can. The processes are pebble's; what
is added here is the clock of each row. A worker notes in shared memory which row it has begun and when. The parent
ends a worker whose row is overdue: that row is lost, its neighbours are scored by another worker.
"""

import ctypes
import math
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, partial
from itertools import cycle
from typing import Any

from pebble import CONSTS, ProcessExpired, ProcessPool

from grpo_kit import processes
from grpo_kit.errors import RunError
from grpo_kit.rewards.call import Fault, RewardCall, enter, fault_of, import_file, score_batch, score_row
from grpo_kit.terminal import secure_output

Row = tuple[str, dict[str, Any]]
"""A completion and the columns that the function is called with."""

Batch = tuple[list[str], dict[str, Any]]
"""The same for all completions of a batch at once."""

MOST_WORKERS = 4
MEMORY_LIMIT = 4 * 2**30
"""Bytes that a worker may hold."""

START_LIMIT_S = 120.0
"""For starting a worker and importing a reward file, which no row's limit pays for."""

HAND_BACK_S = 0.25
"""A worker hands back what it has after this long, so that idle ones can take over rows that are slow."""

MOST_RESTARTS = 2 * MOST_WORKERS
"""Of all workers at once, within one call; each task in flight counts."""

CANNOT_START = (
    "the processes that run rewards end as soon as they start; where a script of your own calls train(), let it do so "
    'under `if __name__ == "__main__":`, for they import it'
)

GRACE_S = 0.25
"""How often the workers are looked after, and how long pebble has to say how one of them ended."""

WIDTH = 3
"""Numbers that a worker notes for its task: the piece it has begun, when, and its process."""

CONSTS.term_timeout = 0.01
"""Seconds that a worker has to follow SIGTERM, which it does not, before pebble kills it."""

SLOTS = 64
"""More than there can be tasks in flight, so that one that is being ended never writes into its successor's slot."""


class Workers:
    """A set of worker processes. It starts with the first call, serves any reward, and starts anew after `close`."""

    def __init__(self, count: int | None = None):
        self.count = count or min(MOST_WORKERS, max(2, (os.cpu_count() or 1) // processes.count()))
        self._slots = cycle(range(SLOTS))
        self._pool: ProcessPool | None = None
        self._begun: Any = None
        self._broken = 0

    def score(self, call: RewardCall, work: Sequence[Row | Batch], limit_s: float) -> list[Any]:
        """One result for each piece of work: a Score for a Row, a list of them or a Fault for a Batch.

        None takes longer than `limit_s` seconds. Raises RunError where no worker can be started.
        """
        results: list[Any] = [None] * len(work)
        todo = deque(_shares(range(len(work)), self.count))
        running: dict[Future[list[Any]], _Task] = {}
        self._broken = 0
        try:
            while todo or running:
                while todo and len(running) < self.count:
                    pieces = todo.popleft()
                    task = _Task(next(self._slots), pieces, time.monotonic())
                    running[self._start(call, [work[at] for at in pieces], task.slot)] = task
                patience = min(self._due(task, limit_s) for task in running.values()) - time.monotonic()
                finished, _ = wait(running, min(max(patience, 0.0), GRACE_S), FIRST_COMPLETED)
                for future in finished or [f for f, task in running.items() if self._is_overdue(task, limit_s)]:
                    task = running.pop(future)
                    done = self._collect(call, future, task, limit_s)
                    for at, result in zip(task.pieces, done, strict=False):
                        results[at] = result
                    todo.extend(_shares(task.pieces[len(done) :], self.count))
        finally:
            for future in running:  # left by an exception, such as the second Ctrl-C
                future.cancel()
        return results

    def close(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.stop()
            self._pool.join()
            self._pool = None

    def _start(self, call: RewardCall, work: list[Row | Batch], slot: int) -> Future[list[Any]]:
        if self._pool is None or not self._pool.active:  # never started, or broken: all workers died while idle
            self.close()
            spawning = multiprocessing.get_context("spawn")  # a fork would inherit CUDA and locks that are held
            self._begun = spawning.RawArray("d", WIDTH * SLOTS)
            settings = (self._begun, os.getpid(), MEMORY_LIMIT)
            self._pool = ProcessPool(self.count, initializer=_settle, initargs=settings, context=spawning)
        self._begun[WIDTH * slot + 1] = self._begun[WIDTH * slot + 2] = 0.0
        with _no_ctrl_c():  # threads and processes started here inherit that, those that replace others too
            return self._pool.schedule(_work, args=(call, work, slot))

    def _collect(self, call: RewardCall, future: Future[list[Any]], task: "_Task", limit_s: float) -> list[Any]:
        """What a finished or overdue task has to say about its first pieces of work."""
        at, begun = int(self._begun[WIDTH * task.slot]), self._begun[WIDTH * task.slot + 1]
        if not future.done():
            future.cancel()
            self._end_group(task)
            if task.gone_since is not None:
                return self._lost(task, at, Fault("died", f"{call.name} ended its process"))
            if not begun:
                raise RunError(f"{call.path}: no worker could import it within {START_LIMIT_S:g} s")
            return self._lost(task, at, Fault("timeout", f"{call.name} gave no result within {limit_s:g} s"))
        try:
            return future.result()
        except BrokenProcessPool:
            self._broken += 1
            if self._broken > MOST_RESTARTS:
                raise RunError(CANNOT_START) from None
            return []
        except ProcessExpired as death:
            self._end_group(task)
            if not begun:
                raise RunError(f"{call.path}: the worker that imported it died ({_how(death.exitcode)})") from None
            return self._lost(task, at, Fault("died", f"{call.name} ended its process ({_how(death.exitcode)})"))

    def _lost(self, task: "_Task", at: int, fault: Fault) -> list[Any]:
        """Blame the piece that was begun; those before it are to be done again, for their results died with it."""
        task.pieces = [task.pieces[at], *task.pieces[:at], *task.pieces[at + 1 :]]
        return [fault]

    def _end_group(self, task: "_Task") -> None:
        """End a worker with all that its reward has started."""
        pid = int(self._begun[WIDTH * task.slot + 2])
        if pid:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _is_gone(self, task: "_Task") -> bool:
        """Whether the worker has ended without a word: pebble overlooks those that end with exit code 0."""
        pid = int(self._begun[WIDTH * task.slot + 2])
        try:
            os.kill(pid or os.getpid(), 0)
            task.gone_since = None
        except ProcessLookupError:
            task.gone_since = task.gone_since or time.monotonic()
        return task.gone_since is not None and time.monotonic() > task.gone_since + GRACE_S

    def _due(self, task: "_Task", limit_s: float) -> float:
        begun = self._begun[WIDTH * task.slot + 1]
        return begun + limit_s if begun else time.monotonic() + limit_s

    def _is_overdue(self, task: "_Task", limit_s: float) -> bool:
        at, begun = self._begun[WIDTH * task.slot : WIDTH * task.slot + 2]
        if self._is_gone(task):
            return True
        if not begun:
            return time.monotonic() > task.started + START_LIMIT_S
        overdue = time.monotonic() >= begun + limit_s
        return overdue and at == self._begun[WIDTH * task.slot]  # else it went on at this very moment


@dataclass
class _Task:
    """Pieces of work in flight: their indices, and where their worker notes its progress."""

    slot: int
    pieces: Sequence[int]
    started: float
    gone_since: float | None = None


@cache
def shared_workers() -> Workers:
    """The workers of this process; one set is enough for all rewards."""
    return Workers()


def _shares(pieces: Sequence[int], count: int) -> Iterator[Sequence[int]]:
    size = -(-len(pieces) // count) or 1
    return (pieces[start : start + size] for start in range(0, len(pieces), size))


def _how(exitcode: int) -> str:
    return signal.Signals(-exitcode).name if exitcode < 0 else f"exit code {exitcode}"


@contextmanager
def _no_ctrl_c() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# In the worker


_monotonic = time.monotonic  # a reward may replace that of the module
_progress: Any = None
_functions: dict[tuple[Any, bytes], Callable[..., Any]] = {}


def _settle(begun: Any, parent: int, memory_limit: int) -> None:
    """Runs first in each worker: end at once when told to, and with the parent; hold no more memory than is given."""
    global _progress
    _progress = begun
    secure_output()  # a reward that prints is not at fault where nobody reads it
    for number in (signal.SIGTERM, signal.SIGHUP):  # sent to a whole job, they are for the run, which ends its step
        signal.signal(number, _unmoved)  # not ignored: what a reward executes would inherit that
    os.register_at_fork(after_in_child=_moved)
    if sys.platform == "linux":
        import resource

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        resource.setrlimit(resource.RLIMIT_DATA, (memory_limit, memory_limit))
    os.setsid()  # what a reward starts can be ended with it
    if os.getppid() != parent:
        os._exit(1)


def _unmoved(number: int, frame: object) -> None:
    """The run ends its workers, by SIGKILL, when it needs them no more."""


def _moved() -> None:
    """What a reward forks ends as usual when it is told to."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is _unmoved:
            signal.signal(number, signal.SIG_DFL)


def _work(call: RewardCall, work: list[Any], slot: int) -> list[Any]:
    """Score pieces of work in order, for a while; the results of as many as were done."""
    try:
        function = _function(call)
        enter(call.folder)
    except BaseException as error:
        return [fault_of(call, error, f"{call.name} cannot be imported in a worker:")] * len(work)
    score = score_batch if call.batch_form else score_row
    began = _monotonic()
    done: list[Any] = []
    _progress[WIDTH * slot + 2] = os.getpid()
    for at, (text, columns) in enumerate(work):
        _progress[WIDTH * slot] = at
        _progress[WIDTH * slot + 1] = _monotonic()
        done.append(score(call, function, text, columns))
        if _monotonic() > began + HAND_BACK_S:
            break
    _progress[WIDTH * slot + 1] = math.inf  # handing it back is on no row's account
    return done


def _function(call: RewardCall) -> Callable[..., Any]:
    file = (call.path, call.source)
    if file not in _functions:
        enter(call.folder)
        _functions[file] = getattr(import_file(call.path, call.source), call.name)
    return partial(_functions[file], **pickle.loads(call.options))
