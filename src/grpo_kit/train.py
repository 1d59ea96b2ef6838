"""A prepared recipe to its verdict: load; measure; train; measure again; say what happened."""

import copy
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from safetensors import SafetensorError
from transformers import TrainerCallback

from grpo_kit.console import Console, closing_lines, plan_lines
from grpo_kit.errors import NotFiniteError, RewardError, RunError, first_line, is_out_of_memory
from grpo_kit.evaluation.evaluate import Evaluation, nothing_right
from grpo_kit.files.durable import written_whole
from grpo_kit.files.lock import Lock
from grpo_kit.measure.held_out import HeldOut, save_for_use
from grpo_kit.model.model import load_model, weights_fingerprint, without_dropout
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.processes import count, is_main, on_main, together
from grpo_kit.report.write import report_written
from grpo_kit.rewards.scoring import RolloutJudge, Scorer
from grpo_kit.rewards.workers import shared_workers
from grpo_kit.run.checkpoint import checkpoints_of, step_of, unreadable
from grpo_kit.run.record import Recorder
from grpo_kit.run.resume import open_run
from grpo_kit.run.run_dir import RunDir
from grpo_kit.run.stop import StopRequest, listen_for_stop
from grpo_kit.run.summary import summarise
from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer
from grpo_kit.trainer.out_of_memory import UNFINISHED, out_of_memory, phase_of
from grpo_kit.trainer.rollout import Rollout


def train(
    prepared: Prepared, *, resume: bool = False, anyway: bool = False, console: Console | None = None
) -> dict[str, Any]:
    """Run a prepared recipe and return what `summary.json` holds.

    Raises RunError where a started run cannot go on, or where nothing was right before it and it is not to be tried
    `anyway`; the run directory then says so too. Ctrl-C, SIGTERM, SIGHUP end the run after its step, saved, with status
    `stopped`. Of several processes each does all of it but for writing.
    """
    console = console or Console()
    with (
        opened(prepared, resume, console) as (run, checkpoint),
        report_written(run, console),
        listen_for_stop() as stop,
        failures_recorded(prepared, run, stop) as clock,
        closing(shared_workers()),
    ):
        recorder = Recorder(prepared, run, console)
        scorer = Scorer(prepared.rewards, prepared.recipe.on_reward_error == "skip")
        measure = HeldOut(prepared, scorer, run, console, stop, recorder.on_lost)
        done = step_of(checkpoint) if checkpoint else 0
        callbacks = [measure, recorder, Stopper(stop)]
        trainer = build_trainer(prepared, scorer, run, recorder.on_rollout, callbacks, done, recorder.warn)
        if trainer.slow_because:
            console.say(f"note       slower than it could be: {trainer.slow_because}")
        model = trainer.accelerator.unwrap_model(trainer.model)
        untouched = weights_fingerprint(model)

        before = measure(model, 0)
        if before is not None and not (checkpoint or anyway):
            refuse_hopeless(before)
        if checkpoint and (done == prepared.plan.steps or measure.ended_before(done)):
            trainer.load_checkpoint(checkpoint)  # only the last measurement is missing
        elif not stop.agreed():
            console.start_progress("training", prepared.plan.steps, done)
            with last_state_saved(prepared, run, trainer):
                trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
                trainer.check_weights()
            console.stop_progress()
        steps = trainer.state.global_step
        after = measure(model, steps)

        moved = untouched != weights_fingerprint(model)
        if steps:
            on_main(lambda: save_final(prepared, model, run))
        summary = on_main(
            lambda: summarise(prepared, run, stop, before, after, moved, steps, clock.seconds(), measure.fallen)
        )
        on_main(lambda: run.write("summary.json", summary))
    for line in closing_lines(summary, prepared.goal.label, run.path):
        console.say(line)
    return summary


@contextmanager
def opened(prepared: Prepared, resume: bool, console: Console) -> Iterator[tuple[RunDir, Path | None]]:
    """The run's directory, this process's own until the end of the block, and the checkpoint to go on from; said."""
    with closing(Lock()) as lock:
        run, checkpoint, said = on_main(lambda: open_run(prepared, resume, lock))
        for line in [*plan_lines(prepared), f"run        {run.path}", *said]:
            console.say(line)
        yield replace(run, on_unwritable=said_once(console)), checkpoint


def build_trainer(
    prepared: Prepared,
    scorer: Scorer,
    run: RunDir,
    on_rollout: Callable[[Rollout], None],
    callbacks: Sequence[TrainerCallback],
    steps_done: int = 0,
    warn: Callable[[str], None] = print,
) -> DynamicSamplingTrainer:
    """The preconfigured trainer. Its rows carry only the prompt and an index; rewards look the columns up by it."""
    rows = prepared.data.rows
    init_kwargs = prepared.settings.from_recipe.get("model_init_kwargs") or {}
    with together():
        model = load_model(prepared.recipe, prepared.model_path, prepared.device, init_kwargs)
    if prepared.args.disable_dropout:
        without_dropout(model)
    args = copy.copy(prepared.args)
    args.output_dir, args.model_init_kwargs = str(run.checkpoints), None
    resampling = prepared.recipe.dynamic_sampling
    trainer = DynamicSamplingTrainer(
        model=model,
        args=args,
        train_dataset=_dataset(prepared),
        processing_class=prepared.chat.tokenizer,
        peft_config=prepared.lora,
        callbacks=list(callbacks),
        fast=prepared.recipe.fast,
        max_rounds=resampling.max_rounds if resampling else 0,
        judge=RolloutJudge(scorer, rows, prepared.chat.decode),
        on_rollout=on_rollout,
        epochs_done=steps_done // prepared.plan.steps_per_epoch,
        checkpoint_bytes=int(prepared.plan.memory.checkpoint * 1e9),
        before_checkpoint=run.sync_logs,
        warn=warn,
    )
    for noisy in [c for c in trainer.callback_handler.callbacks if type(c).__name__ == "PrinterCallback"]:
        trainer.remove_callback(noisy)
    return trainer


def save_final(prepared: Prepared, model: Any, run: RunDir) -> None:
    """The model to use. Raises RunError where there is no room for it: all that was learned would be thrown away."""
    try:
        with written_whole(run.final) as folder:
            save_for_use(prepared, model, folder)
    except (OSError, SafetensorError) as error:
        raise RunError(
            f"{run.final} cannot be written ({first_line(error)}); the checkpoints are there: mend that, or free some "
            "space, and go on with --resume"
        ) from None


def said_once(console: Console) -> Callable[[str, Exception], None]:
    """What to tell of a file of the run that cannot be written: the run goes on, and says so once for each."""
    told: set[str] = set()

    def say(what: str, error: Exception) -> None:
        if what not in told:
            told.add(what)
            console.say(f"warning    {what} cannot be written ({first_line(error)}); training goes on without it")

    return say


class _Prompts:
    """What the trainer is given for row numbers: the prompts, read when they are asked for."""

    def __init__(self, prepared: Prepared):
        self.rows, self.chat = prepared.data.rows, prepared.chat

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"prompt": [self.chat.prompt(self.rows[row]["prompt"]) for row in batch["row"]], **batch}

    def __getstate__(self) -> None:
        """Nothing: datasets pickles it for a hash that names the files of `map`, and there are none."""


def _dataset(prepared: Prepared) -> Dataset:
    dataset = Dataset.from_dict({"row": np.arange(len(prepared.data.rows))})
    dataset.set_transform(_Prompts(prepared))
    return dataset


class Stopper(TrainerCallback):
    """Ends training after the step in which the user asked for it, with a checkpoint."""

    def __init__(self, stop: StopRequest):
        self.stop = stop

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.stop.agreed():
            control.should_save = control.should_training_stop = True


def refuse_hopeless(before: Evaluation) -> None:
    """For all processes. Raises RunError where nothing at all was right before training."""
    if nothing_right(before):
        refused = RunError(
            f"none of {before.n * before.samples} held-out completions was right before training, so there is nothing "
            "to reinforce: `grpo-kit preflight` says why; run with --anyway where another reward should lead the way"
        )
        refused.everywhere = True
        raise refused


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
