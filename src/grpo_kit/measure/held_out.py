"""Held-out measurements of a run: before, after and between, the best model kept, and a fall noticed."""

import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, TrainerCallback

from grpo_kit.console import Console, evaluation_lines
from grpo_kit.evaluation.evaluate import Evaluation, difference_of, evaluate
from grpo_kit.evaluation.judged import LENIENT, JudgedRow, Task, lenient
from grpo_kit.evaluation.row_records import row_record, sample_records
from grpo_kit.files.durable import written_whole
from grpo_kit.memory.heap import trim
from grpo_kit.model.model import save_model
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.processes import on_main
from grpo_kit.rewards.scoring import LostScore, Scorer
from grpo_kit.run.checkpoint import BEST, MEASURED
from grpo_kit.run.run_dir import RunDir
from grpo_kit.run.stop import StopRequest
from grpo_kit.trainer.random_streams import random_streams_kept

CHANCE = 0.005
"""How likely a run whose accuracy stays the same may be ended for a fall."""

ENDED_EARLY = "ended early"

PATIENCE = 3
"""So many measurements in a row must have fallen: training is noisy, and what fell once often comes back."""


class HeldOut(TrainerCallback):
    """Measures on held-out rows: before, after, and every `eval_every` steps. Each result goes to `eval.jsonl`.

    Prompts and completions of the first and of the last one are kept in `evals/step-N/`, as `eval` keeps its own. The
    model of the best measurement so far is kept in `best/`. Where the accuracy has fallen from its best by more than
    chance, `fallen` says so and training ends.
    """

    def __init__(
        self,
        prepared: Prepared,
        scorer: Scorer,
        run: RunDir,
        console: Console,
        stop: StopRequest,
        on_lost: Callable[[list[LostScore], int], None],
    ):
        self.prepared, self.run, self.console, self.stop = prepared, run, console, stop
        self.scorer = Scorer([*scorer.rewards, *lenient(prepared.goal)], scorer.skip_errors)
        self.on_lost = on_lost
        self.fallen: str | None = None

    def __call__(self, model: Any, step: int, insist: bool = False) -> Evaluation | None:
        """For all processes: measure, or read the measurement that an interrupted run already made at this step.

        None where a stop was asked for before the end; with `insist` that is put off.
        """
        data = self.prepared.eval_data
        if data is None or (not insist and self.stop.agreed()):
            return None
        known = on_main(lambda: next((one for one in self._made() if one.step == step), None))
        if known is not None:
            return known
        self.console.start_progress(f"held-out after step {step}", len(data.rows))
        with random_streams_kept():
            evaluation = evaluate(
                self.prepared,
                model,
                step,
                scorer=self.scorer,
                go_on=lambda: insist or not self.stop.agreed(),
                progress=self.console.progress,
                on_lost=lambda lost: self.on_lost([one for one in lost if one.label != LENIENT], step),
                keep=lambda task, rows: on_main(lambda: self._keep_rows(task, rows)),
            )
        self.console.stop_progress()
        if evaluation is not None:
            on_main(lambda: self._keep(model, evaluation))
            for line in evaluation_lines(evaluation):
                self.console.say(line)
        return evaluation

    def _made(self) -> list[Evaluation]:
        """The measurements so far, of these rows."""
        rows = len(self.prepared.eval_data.rows) if self.prepared.eval_data else 0
        return [one for one in self.run.evaluations() if len(one.pass_rates) == rows]

    def _keep(self, model: Any, evaluation: Evaluation) -> None:
        """Write the measurement, and the model where none was better; the first of equals is the best."""
        best = best_evaluation(self._made())
        kept = self.run.read_whole(f"{BEST}/{MEASURED}") or {"accuracy": 0.0}  # its line of the log may be lost
        better = best is not None and (evaluation.accuracy or 0.0) > max(best.accuracy or 0.0, kept["accuracy"])
        if evaluation.step and better and self.prepared.recipe.eval_every:
            self._keep_model(model, evaluation)
        self.run.append("eval.jsonl", evaluation.record())

    def _keep_rows(self, task: Task, rows: list[JudgedRow]) -> None:
        """Of the first measurement for good, of a later one until the next."""
        folder = self.run.path / "evals" / f"step-{task.step}"
        with self.run.without("evals/"):
            with written_whole(folder) as aside:
                aside.mkdir(parents=True)
                kept = RunDir(aside)
                kept.append("rows.jsonl", *(row_record(task, row) for row in rows))
                kept.append("samples.jsonl", *(record for row in rows for record in sample_records(task, row)))
            for old in folder.parent.glob("step-*"):  # not before the new one is there
                if old != folder and (task.step == 0 or old.name != "step-0"):
                    shutil.rmtree(old)

    def _keep_model(self, model: Any, evaluation: Evaluation) -> None:
        with self.run.without(f"{BEST}/"), written_whole(self.run.path / BEST) as best:
            save_for_use(self.prepared, model, best)
            RunDir(best).write(MEASURED, evaluation.summary() | {"step": evaluation.step})

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        every = self.prepared.recipe.eval_every
        if every and state.global_step and state.global_step % every == 0:
            self(model, state.global_step, insist=True)  # the step follows, so it could not be made up for later
            self.fallen = on_main(lambda: fall(self._made()))
            if self.fallen:
                on_main(lambda: self._note_end(state.global_step))
                self.console.say(f"note       {self.fallen}")
            trim()
            self.console.start_progress("training", state.max_steps, state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.fallen:
            control.should_training_stop = True  # not before: it would be heeded between two micro-batches

    def _note_end(self, step: int) -> None:
        """An event, unless a run that is gone on with from here had ended here."""
        events = self.run.records("events.jsonl")
        if not any(event["event"] == ENDED_EARLY and event["step"] == step for event in events):
            self.run.event(ENDED_EARLY, step, reason=self.fallen)

    def ended_before(self, step: int) -> bool:
        """Whether a run that is gone on with after `step` had ended for a fall by then; `fallen` says so again."""
        events = self.run.records("events.jsonl")
        ends = [event for event in events if event["event"] == ENDED_EARLY and event["step"] < step]
        if ends:
            self.fallen = str(ends[-1].get("reason"))
        return bool(ends)


def best_evaluation(made: Sequence[Evaluation]) -> Evaluation | None:
    """The first of the measurements with the highest accuracy."""
    judged = [one for one in made if one.accuracy is not None]
    return max(judged, key=lambda one: one.accuracy or 0.0, default=None)


def fall(made: Sequence[Evaluation]) -> str | None:
    """In words, whether the last PATIENCE measurements have all fallen from the best by more than chance.

    The best of many measurements is a lucky one, so each pair of them counts as a comparison that could have been made
    (Bonferroni).
    """
    best = best_evaluation(made)
    if best is None or len(made) <= PATIENCE:
        return None
    last = made[-PATIENCE:]
    level = CHANCE / math.comb(len(made), 2)
    falls = [difference_of(best, one) for one in last]
    if not all(difference is not None and difference.is_below_zero(level) for difference in falls):
        return None
    where = f"of step {best.step}, kept in best/" if best.step else "before training"
    return (
        f"ended early: held-out accuracy was {', '.join(f'{one.accuracy:.3f}' for one in last)} in the last {PATIENCE} "
        f"measurements, below the {best.accuracy:.3f} {where}, by more than chance"
    )


def save_for_use(prepared: Prepared, model: Any, folder: Path) -> None:
    """The model to use, with its tokenizer: the adapter, or weights as exact as the forward that was measured."""
    base = AutoConfig.from_pretrained(prepared.model_path, trust_remote_code=False).dtype or torch.float32
    # where the forward was finer than the base's dtype, casting could round away what was learned
    save_model(model, folder, base if prepared.device.autocast == "bfloat16" else torch.float32)
    prepared.chat.tokenizer.save_pretrained(folder)
