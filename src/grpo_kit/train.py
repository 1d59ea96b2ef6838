"""A prepared recipe to its verdict: load; measure; train; measure again; say what happened."""

import copy
import resource
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch
from datasets import Dataset
from transformers import TrainerCallback

from grpo_kit.checkpoint import StopRequest, listen_for_stop, open_run, step_of
from grpo_kit.console import Console, evaluation_lines, plan_lines
from grpo_kit.errors import RunError
from grpo_kit.evaluate import Evaluation, Verdict, evaluate, judge_gain
from grpo_kit.model import load_model, save_model, weights_fingerprint
from grpo_kit.prepare import Prepared
from grpo_kit.record import Recorder
from grpo_kit.rewards import TrlReward
from grpo_kit.run_dir import RunDir
from grpo_kit.trainer import ObservedTrainer


def train(prepared: Prepared, *, resume: bool = False, console: Console | None = None) -> dict[str, Any]:
    """Run a prepared recipe and return what `summary.json` holds.

    Raises RunError where a started run cannot go on; the run directory then says so too. Ctrl-C and SIGTERM end the
    run after its step, saved, with status `stopped`.
    """
    console = console or Console()
    run, checkpoint, said = open_run(prepared, resume)
    for line in [*plan_lines(prepared), f"run        {run.path}", *said]:
        console.say(line)

    clock = Clock(run)
    with listen_for_stop() as stop, failures_recorded(run, clock, stop):
        recorder = Recorder(prepared, run, console)
        measure = HeldOut(prepared, run, console, stop)
        done = step_of(checkpoint) if checkpoint else 0
        trainer = build_trainer(prepared, run, recorder, [measure, recorder, Stopper(stop)], done)
        model = trainer.accelerator.unwrap_model(trainer.model)
        untouched = weights_fingerprint(model)

        before = measure(model, 0)
        if checkpoint and done == prepared.plan.steps:
            trainer.load_checkpoint(checkpoint)  # only the last measurement is missing
        elif not stop:
            console.start_progress("training", prepared.plan.steps, done)
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            console.stop_progress()
        steps = trainer.state.global_step
        after = measure(model, steps)

        moved = untouched != weights_fingerprint(model)
        if steps:
            save_final(prepared, run, model)
        summary = summarise(prepared, run, stop, before, after, moved, steps)
        summary |= {"wall_s": clock.seconds(), "peak_memory_gb": round(peak_memory_gb(), 2)}
        run.write("summary.json", summary)
    for line in closing_lines(summary, prepared.goal.label, run):
        console.say(line)
    return summary


def build_trainer(
    prepared: Prepared, run: RunDir, recorder: Recorder, callbacks: list[TrainerCallback], steps_done: int = 0
) -> ObservedTrainer:
    """The preconfigured trainer. Its rows carry only the prompt and an index; rewards look the columns up by it."""
    rows = prepared.data.rows
    init_kwargs = prepared.settings.from_recipe.get("model_init_kwargs") or {}
    model = load_model(prepared.recipe, prepared.model_path, prepared.device, init_kwargs)
    args = copy.copy(prepared.args)
    args.output_dir, args.model_init_kwargs = str(run.checkpoints), None
    trainer = ObservedTrainer(
        model=model,
        args=args,
        reward_funcs=[TrlReward(reward, rows, prepared.chat.decode) for reward in prepared.rewards],
        train_dataset=Dataset.from_dict(
            {"prompt": [prepared.chat.prompt(row["prompt"]) for row in rows], "row": list(range(len(rows)))}
        ),
        processing_class=prepared.chat.tokenizer,
        peft_config=prepared.lora,
        callbacks=callbacks,
        on_rollout=recorder.on_rollout,
        epochs_done=steps_done // prepared.plan.steps_per_epoch,
    )
    for noisy in [c for c in trainer.callback_handler.callbacks if type(c).__name__ == "PrinterCallback"]:
        trainer.remove_callback(noisy)
    return trainer


class HeldOut(TrainerCallback):
    """Measures on held-out rows: before, after, and every `eval_every` steps. Each result goes to `eval.jsonl`."""

    def __init__(self, prepared: Prepared, run: RunDir, console: Console, stop: StopRequest):
        self.prepared, self.run, self.console, self.stop = prepared, run, console, stop

    def __call__(self, model: Any, step: int) -> Evaluation | None:
        """Measure, or read the measurement that an interrupted run already made at this step."""
        data = self.prepared.eval_data
        if data is None or self.stop:
            return None
        for record in self.run.lines("eval.jsonl"):
            if record["step"] == step:
                return Evaluation(**record)
        self.console.start_progress(f"held-out after step {step}", len(data.rows))
        evaluation = evaluate(self.prepared, model, step, go_on=lambda: not self.stop, progress=self.console.progress)
        self.console.stop_progress()
        if evaluation is not None:
            self.run.append("eval.jsonl", evaluation.record())
            for line in evaluation_lines(evaluation):
                self.console.say(line)
        return evaluation

    def on_step_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        every = self.prepared.recipe.eval_every
        if every and state.global_step and state.global_step % every == 0:
            self(model, state.global_step)
            self.console.start_progress("training", state.max_steps, state.global_step)


class Stopper(TrainerCallback):
    """Ends training after the step in which the user asked for it, with a checkpoint."""

    def __init__(self, stop: StopRequest):
        self.stop = stop

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.stop:
            control.should_save = control.should_training_stop = True


OUT_OF_MEMORY = (
    "out of memory; lower grpo.per_device_train_batch_size (and raise grpo.gradient_accumulation_steps by the same "
    "factor), sample less at once with grpo.steps_per_generation, or set grpo.activation_checkpointing=true"
)


class Clock:
    """Seconds that a run has taken, those before a resume included as far as they were recorded."""

    def __init__(self, run: RunDir):
        recorded = (run.read("summary.json") or {}).get("wall_s")
        steps = (record.get("kit/seconds/step") or 0.0 for record in run.lines("metrics.jsonl"))
        self._before = sum(steps) if recorded is None else float(recorded)
        self._started = time.perf_counter()

    def seconds(self) -> float:
        return round(self._before + time.perf_counter() - self._started, 1)


@contextmanager
def failures_recorded(run: RunDir, clock: Clock, stop: StopRequest) -> Iterator[None]:
    """Whatever ends the block early leaves a `summary.json` that says so; the exception goes on."""
    try:
        yield
    except BaseException as error:
        status, reason = "failed", f"{type(error).__name__}: {error}"
        if isinstance(error, SystemExit) and stop.signal:
            status, reason = "stopped", signal.Signals(stop.signal).name
        steps = max((record["step"] for record in run.lines("metrics.jsonl")), default=0)
        run.write("summary.json", {"status": status, "reason": reason, "steps": steps, "wall_s": clock.seconds()})
        run.event(status, steps, reason=reason)
        if isinstance(error, torch.OutOfMemoryError):
            raise RunError(OUT_OF_MEMORY) from error
        raise


def save_final(prepared: Prepared, run: RunDir, model: Any) -> None:
    """The model to use, with its tokenizer: the adapter, or weights as exact as the forward that was measured."""
    from transformers import AutoConfig

    base = AutoConfig.from_pretrained(prepared.model_path, trust_remote_code=False).dtype or torch.float32
    # where the forward was finer than the base's dtype, casting could round away what was learned
    save_model(model, run.final, base if prepared.device.autocast == "bfloat16" else torch.float32)
    prepared.chat.tokenizer.save_pretrained(run.final)


def summarise(
    prepared: Prepared,
    run: RunDir,
    stop: StopRequest,
    before: Evaluation | None,
    after: Evaluation | None,
    moved: bool,
    steps: int,
) -> dict[str, Any]:
    """What happened, in numbers. A run that changed nothing is a failed run, whatever its log looked like."""
    metrics = list(run.lines("metrics.jsonl"))
    verdict = judge_gain(before, after)
    status, reason = ("stopped", signal.Signals(stop.signal).name) if stop.signal else ("done", None)
    if status == "done" and not moved:
        status, reason = "failed", why_nothing_moved(prepared, metrics, steps)
        verdict = replace(verdict, word="not learned", rows_needed=None)
    tenth = max(len(metrics) // 10, 1)
    tokens = [float(m["num_tokens"]) for m in metrics if m.get("num_tokens")]
    seconds = sum(m.get("kit/seconds/step") or 0.0 for m in metrics)
    return {
        "status": status,
        "reason": reason,
        "verdict": verdict.word,
        "steps": steps,
        "wall_s": None,
        "eval_before": before.summary() if before else None,
        "eval_after": after.summary() if after else None,
        "gain": gain_record(verdict),
        "reward_first": mean_of(metrics[:tenth], "reward"),
        "reward_last": mean_of(metrics[-tenth:], "reward"),
        "flat_group_share": mean_of(metrics, "kit/flat_group_share"),
        "tokens_per_s": round(max(tokens) / seconds, 1) if tokens and seconds else None,
        "peak_memory_gb": None,
        "diagnoses": [],
    }


def gain_record(verdict: Verdict) -> dict[str, Any] | None:
    if verdict.gain is None:
        return None
    return {"value": verdict.gain, "ci95": verdict.ci95, "rows_needed": verdict.rows_needed}


def why_nothing_moved(prepared: Prepared, metrics: list[dict[str, Any]], steps: int) -> str:
    """The reason why no weight moved, from what is certain to what is likely."""
    warmup = prepared.args.warmup_steps
    if not steps:
        return "no weight moved: no step was taken"
    if metrics and not any(m.get("learning_rate") for m in metrics):
        if prepared.args.learning_rate:
            return f"no weight moved: the only step fell into warmup, which starts at 0 (grpo.warmup_steps={warmup:g})"
        return "no weight moved: the learning rate was 0 (grpo.learning_rate=0)"
    if metrics and not any(m.get("reward") is not None for m in metrics):
        return "no weight moved: no reward judged any completion (all returned None)"
    if metrics and not any(m.get("grad_norm") for m in metrics):
        flat, right, wrong = (
            mean_of(metrics, key) or 0.0 for key in ("kit/flat_group_share", "kit/all_right", "kit/all_wrong")
        )
        return (
            f"no weight moved: the gradient was 0 in every step; {flat:.0%} of groups were flat "
            f"({right:.0%} all right, {wrong:.0%} all wrong), so no completion was better than another"
        )
    return "no weight moved: every update was rounded away; raise grpo.learning_rate"


def closing_lines(summary: dict[str, Any], goal: str, run: RunDir) -> list[str]:
    """The end of the story in a few lines."""
    before, after, gain = summary["eval_before"], summary["eval_after"], summary["gain"]
    lines = []
    if before and after and gain:
        own = "accuracy" if goal == "accuracy" or "accuracy" not in after["rewards"] else f"right ({goal})"
        pairs = {own: (before["accuracy"], after["accuracy"])}
        pairs |= {label: (before["rewards"][label], mean) for label, mean in after["rewards"].items() if label != goal}
        lines = [f"{name:<12} {a:.3f} -> {b:.3f}" for name, (a, b) in pairs.items() if a is not None and b is not None]
        low, high = gain["ci95"]
        lines.append(f"gain         {gain['value']:+.3f} (95% interval {low:+.3f} to {high:+.3f}, paired by prompt)")
    lines.append(f"status       {summary['status']}" + (f": {summary['reason']}" if summary["reason"] else ""))
    more = f"; about {gain['rows_needed']} held-out rows would tell" if gain and gain["rows_needed"] else ""
    lines.append(f"verdict      {summary['verdict']}{more}")
    return [*lines, f"files        {run.path}"]


def mean_of(metrics: list[dict[str, Any]], key: str) -> float | None:
    values = [m[key] for m in metrics if m.get(key) is not None]
    return fmean(values) if values else None


def peak_memory_gb() -> float:
    """Of the card where there is one, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
