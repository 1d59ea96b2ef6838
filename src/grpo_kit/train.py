"""A prepared recipe to its verdict: load; measure; train; measure again; say what happened."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from safetensors import SafetensorError
from transformers import TrainerCallback

from grpo_kit.console import Console, closing_lines, plan_lines
from grpo_kit.errors import RunError, first_line
from grpo_kit.evaluation.evaluate import Evaluation, nothing_right
from grpo_kit.files.durable import written_whole
from grpo_kit.files.lock import Lock
from grpo_kit.measure.held_out import HeldOut, save_for_use
from grpo_kit.model.model import load_model, weights_fingerprint, without_dropout
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.processes import on_main, together
from grpo_kit.report.write import report_written
from grpo_kit.rewards.scoring import RolloutJudge, Scorer
from grpo_kit.rewards.workers import shared_workers
from grpo_kit.run.checkpoint import step_of
from grpo_kit.run.failures import failures_recorded, last_state_saved, model_outlives_rewards
from grpo_kit.run.record import Recorder
from grpo_kit.run.resume import open_run
from grpo_kit.run.run_dir import RunDir
from grpo_kit.run.stop import StopRequest, listen_for_stop
from grpo_kit.run.summary import summarise
from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer
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
        with model_outlives_rewards(run, steps, lambda: save_final(prepared, model, run)):
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
