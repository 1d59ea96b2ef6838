"""What becomes of a run that fails: the steps that were finished are saved, and its ending is written."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from pickle import UnpicklingError

from grpo_kit.errors import NotFiniteError, RewardError, RunError, first_line, is_out_of_memory
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.processes import count, is_main, on_main
from grpo_kit.run.checkpoint import checkpoints_of, step_of, unreadable
from grpo_kit.run.run_dir import RunDir
from grpo_kit.run.stop import StopRequest
from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer
from grpo_kit.trainer.out_of_memory import UNFINISHED, out_of_memory, phase_of


class Clock:
    """Seconds that a run has taken, those before a resume included as far as they were recorded."""

    def __init__(self, run: RunDir):
        resumed = [event for event in run.lines("events.jsonl") if event.get("event") == "resumed"]
        self._before = float(resumed[-1].get("wall_s") or 0.0) if resumed else 0.0
        self._started = time.perf_counter()

    def seconds(self) -> float:
        return round(self._before + time.perf_counter() - self._started, 1)


@contextmanager
def failures_recorded(prepared: Prepared, run: RunDir, stop: StopRequest) -> Iterator[Clock]:
    """The run's clock. Whatever ends the block early leaves a `summary.json` that says so; the exception goes on.

    Raises RunError where there was no memory for what is not a step: the load, or a held-out measurement.
    """
    clock = Clock(run)
    try:
        yield clock
    except BaseException as raised:
        error = out_of_memory(prepared, raised, None, lambda: last_good(run)) if is_out_of_memory(raised) else raised
        status, reason = "failed", f"{type(error).__name__}: {error}"
        if isinstance(error, SystemExit) and stop.asked:
            status, reason = "stopped", signal.Signals(stop.asked).name
        if is_main():
            steps = max((record["step"] for record in run.steps()), default=0)
            run.write("summary.json", {"status": status, "reason": reason, "steps": steps, "wall_s": clock.seconds()})
            run.event(status, steps, reason=reason)
        if error is not raised:
            raise error from None
        raise


@contextmanager
def last_state_saved(prepared: Prepared, run: RunDir, trainer: DynamicSamplingTrainer) -> Iterator[None]:
    """A step that fails costs none that is finished: they are saved, and the error says how to go on.

    That is for rewards, for values that are not finite and for memory; anything else goes on as it is.
    """
    try:
        yield
    except RewardError as error:
        checkpoint = trainer.save_last_state()
        saved = f"; {trainer.state.global_step} steps are saved: mend it and go on with --resume" if checkpoint else ""
        said = RewardError(f"step {trainer.state.global_step + 1}: {error}{saved}", error.details)
        said.everywhere = error.everywhere
        raise said from None
    except UnpicklingError as error:
        raise RunError(
            f"{run.checkpoints}: the newest checkpoint holds what the trainer did not write, or another version of "
            f"torch did, and it is not loaded ({first_line(error)}); move it away to go on from the one before"
        ) from None
    except NotFiniteError as error:
        raise _with_last_good(run, trainer, error) from None
    except (RuntimeError, MemoryError) as error:
        if is_out_of_memory(error):
            unharmed = phase_of(error) in UNFINISHED and count() == 1  # others would wait for this one to save
            step = trainer.state.global_step + 1
            raise out_of_memory(prepared, error, step, lambda: _saved(run, trainer, unharmed)) from None
        try:
            trainer.check_weights()  # sampling from a model that is lost ends in a RuntimeError
        except NotFiniteError as lost:
            raise _with_last_good(run, trainer, lost) from None
        raise


@contextmanager
def model_outlives_rewards(run: RunDir, steps: int, save: Callable[[], None]) -> Iterator[None]:
    """A reward that fails in the last measurement costs that alone: the model is saved, and the error says so."""
    try:
        yield
    except RewardError as error:
        if steps and (error.everywhere or count() == 1):  # else others would wait for this process
            on_main(save)
        resumable = any(step_of(path) == steps for path in checkpoints_of(run))
        then = "go on with --resume" if resumable else f"measure with `grpo-kit eval {run.path}`"
        left = f"; the model is in {run.final}: mend it and {then}" if run.final.is_dir() else ""
        said = RewardError(f"held-out after step {steps}: {error}{left}", error.details)
        said.everywhere = error.everywhere
        raise said from None


def _saved(run: RunDir, trainer: DynamicSamplingTrainer, unharmed: bool) -> Path | None:
    """The checkpoint to go on from: one of the last step, where the weights are its and they can be saved."""
    if unharmed:
        with suppress(RuntimeError, MemoryError, OSError):
            trainer.save_last_state()
    return last_good(run)


def _with_last_good(run: RunDir, trainer: DynamicSamplingTrainer, error: NotFiniteError) -> NotFiniteError:
    """The error with the checkpoint that is left; where the weights are unharmed that is one of the last step."""
    checkpoint = _saved(run, trainer, not error.weights_lost)
    left = f"the last good checkpoint is {checkpoint}" if checkpoint else "there is no checkpoint yet"
    return NotFiniteError(f"{error}; {left}", error.weights_lost)


def last_good(run: RunDir) -> Path | None:
    """The newest checkpoint that is whole; none is ever written with a weight that is not finite."""
    return next((path for path in reversed(checkpoints_of(run)) if unreadable(path) is None), None)
