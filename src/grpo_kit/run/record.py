"""What a run writes while it trains: one metrics line a step, every scored completion, and the line shown."""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from transformers import TrainerCallback

from grpo_kit.console import LOSS_NOTE, Console, example_lines, finding_lines, step_line
from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.findings import Facts, Finding, facts_of_settings
from grpo_kit.diagnosis.history import STEPS, History
from grpo_kit.errors import RewardError, RunError, shorten
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.processes import on_main
from grpo_kit.rewards.scoring import LostScore
from grpo_kit.run.browse import telling_completions
from grpo_kit.run.checkpoint import checkpoint_before
from grpo_kit.run.metrics import SECONDS, largest_of_b, rollout_metrics
from grpo_kit.run.run_dir import MEASURED_STEP, RunDir
from grpo_kit.trainer.rollout import Rollout

UNJUDGED_BATCHES = 3
"""So many in a row without a single score end the run: it could go on for a night and learn nothing."""

LARGEST_OF_B = "kit/lora_b_max"

MOST_TEXT = 2000
"""Characters of a text that an event keeps."""


class Recorder(TrainerCallback):
    """Joins what the trainer logs with what its rollouts showed; the main process writes both, for all of them."""

    def __init__(self, prepared: Prepared, run: RunDir, console: Console):
        self.prepared, self.run, self.console = prepared, run, console
        self._pending: list[dict[str, float]] = []
        self._step_started = time.perf_counter()
        self._step_s: list[float] = []
        self._first = True
        self._step = 0
        self._unjudged = 0
        self._told: set[tuple[str, str]] = set()
        self._history = History(run.steps(), run.own_evaluations())
        self._facts = facts_of(prepared)
        self._findings = open_findings(run)
        self._taken_over = set(self._findings)
        self._measured = 0
        self._between: list[float] = []
        self._step_ended: float | None = None
        self._moved = prepared.lora is None or any(step.get(LARGEST_OF_B) for step in run.steps())

    def on_rollout(self, rollout: Rollout) -> None:
        """For all processes. Raises RewardError where too many batches in a row were not judged."""
        on_main(lambda: self._write_rollout(rollout))

    def _write_rollout(self, rollout: Rollout) -> None:
        self.on_lost(rollout.scores.lost)
        records = samples(rollout, self.prepared)
        metrics = rollout_metrics(rollout, self.prepared, [record["answer_read"] for record in records])
        self._pending.append(metrics if not rollout.round else _seconds_of(metrics))
        every = self.prepared.recipe.samples
        if every == "all" or rollout.step % every == 0 or rollout.step == 1:
            self.run.append("samples.jsonl", *records)
        if self._first:
            self._first = False
            self.console.say(f"first completion of step {rollout.step}:")
            for line in example_lines(records[0]):
                self.console.say(line)
            self.console.say(LOSS_NOTE)
        self._unjudged = self._unjudged + 1 if metrics["kit/unscored_share"] == 1 else 0
        if self._unjudged == UNJUDGED_BATCHES:
            raise RewardError(f"no reward judged any completion of {UNJUDGED_BATCHES} batches: {_why(rollout)}")

    def _tell_findings(self, step: int) -> list[Finding]:
        """Those that are new, or were there when the run was gone on with.

        Each is said once, and again only after it had been gone for some steps.
        """
        size = self.run.size("eval.jsonl")
        if size != self._measured:
            self._measured = size
            self._history.measured(self.run.own_evaluations())
        found = diagnose(self._history, self._facts)
        new = [finding for finding in found if finding.key not in self._findings]
        for finding in new:
            texts = telling_completions(self.run, finding, self._facts)
            for line in finding_lines(finding, texts):
                self.console.say(line)
            self.run.event("finding", step, **finding.record(), completions=texts)
        self._findings |= {finding.key: step for finding in found}
        for name, reward in [key for key, seen in self._findings.items() if step - seen >= STEPS]:
            del self._findings[name, reward]
            self.run.event("finding gone", step, name=name, reward=reward)
        taken_over, self._taken_over = self._taken_over, set()
        return [finding for finding in found if finding in new or finding.key in taken_over]

    def _stop_on(self, found: Sequence[Finding], step: int) -> None:
        """Raises RunError where the recipe ends the run on one of these findings."""
        for finding in found:
            if finding.name in self.prepared.recipe.stop_on:
                good = checkpoint_before(self.run, finding.since)
                raise RunError(f"step {step}: stop_on: {finding.describe()}; {left_of(good)}")

    def on_lost(self, lost: Sequence[LostScore], measured: int | None = None) -> None:
        """For the main process: each score that was lost is an event with its text; the first of its kind is shown.

        Those of a held-out measurement have the step that was `measured`.
        """
        step = {"step": self._step} if measured is None else {"step": measured, MEASURED_STEP: measured}
        for one in lost:
            self.run.event(
                "score lost", **step, reward=one.label, fault=one.fault.kind, message=one.fault.what,
                where=one.fault.where, question=one.row["prompt"][-1]["content"][:MOST_TEXT],
                completion=one.completion[:MOST_TEXT],
            )  # fmt: skip
            if (one.label, one.fault.kind) not in self._told:
                self._told.add((one.label, one.fault.kind))
                at = f" ({one.fault.where})" if one.fault.where else ""
                self.console.say(
                    f"note       reward {one.label} judges nothing where this happens (counted, and written to "
                    f"events.jsonl): {one.fault.what}{at}, completion {shorten(one.completion)}"
                )

    def warn(self, message: str) -> None:
        """For the main process: something went wrong that the run can do without."""
        self.console.say(f"warning    {message}")
        self.run.event("warning", self._step, message=message)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._step = state.global_step + 1
        self._step_started = time.perf_counter()
        if self._step_ended is not None:
            self._between.append(self._step_started - self._step_ended)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self._step_ended = time.perf_counter()
        self._step_s.append(self._step_ended - self._step_started)
        if not self._moved:
            self._largest_of_b = largest_of_b(model)
        self.console.progress()

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        if "loss" in given["logs"]:  # else the trainer's closing totals, no step
            step_s, self._step_s = self._step_s, []
            on_main(lambda: self._write_step(args, state, given["logs"], step_s))

    def _write_step(self, args: Any, state: Any, logs: dict[str, Any], step_s: list[float]) -> None:
        rollouts, self._pending = self._pending, []
        metrics = {"step": state.global_step, **logs, **_means(rollouts, max(len(step_s), 1))}
        if step_s:
            total = fmean(step_s)
            spent = sum(metrics.get(f"{SECONDS}{part}", 0.0) for part in ("generation", "rewards"))
            metrics |= {f"{SECONDS}step": total, f"{SECONDS}update": max(total - spent, 0.0)}
        if self._between:
            metrics[f"{SECONDS}between"] = sum(self._between) / max(len(step_s), 1)
            self._between = []
        if not self._moved:
            metrics[LARGEST_OF_B] = self._largest_of_b
            self._moved = self._largest_of_b != 0
        record = {key: _json_number(value) for key, value in metrics.items()}
        self.run.append("metrics.jsonl", record)
        self.console.say(step_line(metrics, state.max_steps))
        self._history.add(record)
        new = self._tell_findings(state.global_step)
        self._stop_on(new, state.global_step)


def open_findings(run: RunDir) -> dict[tuple[str, str | None], int]:
    """By their key those of a run that is gone on with that are not gone, and the last step it was at."""
    keys: dict[tuple[str, str | None], int] = {}
    last = max((record["step"] for record in run.steps()), default=0)
    for event in run.lines("events.jsonl"):
        key = str(event.get("name")), own if isinstance(own := event.get("reward"), str) else None
        if event.get("event") == "finding":
            keys[key] = last
        elif event.get("event") == "finding gone":
            keys.pop(key, None)
    return keys


def left_of(checkpoint: Path | None) -> str:
    """What there is to go back to, and how to go past what ended the run."""
    left = (
        f"the last checkpoint from before it is {checkpoint}" if checkpoint else "there is no checkpoint from before it"
    )
    return f"{left}; --resume goes on from the newest one: give it stop_on=[] to go past this"


def facts_of(prepared: Prepared) -> Facts:
    """What the diagnosis needs to know of a run besides its metrics."""
    counted = [reward for reward in prepared.rewards if reward.weight]
    return facts_of_settings(
        prepared.args.to_dict(),
        {reward.label: reward.full_marks for reward in counted},
        goal=prepared.goal.label,
        weights={reward.label: reward.weight for reward in counted},
        gates={reward.label: reward.only_if for reward in counted if reward.only_if},
        lora=prepared.lora is not None,
        held_out=prepared.eval_data is not None,
    )


def samples(rollout: Rollout, prepared: Prepared) -> list[dict[str, Any]]:
    """One record per completion, as `samples.jsonl` keeps it."""
    records = []
    for position, index in enumerate(rollout.rows):
        row, ids = prepared.data.rows[index], rollout.completion_ids[position]
        text = prepared.chat.decode(ids)
        records.append(
            {
                "step": rollout.step,
                **({"round": rollout.round} if rollout.round else {}),
                "row": index,
                "prompt": row["prompt"][-1]["content"],
                "completion": text,
                "gold": row.get("answer"),
                "answer_read": prepared.goal.read_answer(text),
                "rewards": {label: scores[position] for label, scores in rollout.scores.values.items()},
                "advantage": rollout.advantages[position],
                "tokens": len(ids),
                "truncated": prepared.chat.is_truncated(ids),
            }
        )
    return records


def _seconds_of(metrics: dict[str, float]) -> dict[str, float]:
    """All that a step's metrics take from prompts that replaced others: they describe the step's own prompts."""
    return {key: value for key, value in metrics.items() if key.startswith(SECONDS)}


def _why(rollout: Rollout) -> str:
    """What kept the completions of a batch from being judged."""
    if not rollout.scores.lost:
        return "all rewards returned None for all of them"
    lost = rollout.scores.lost[0]
    return f"{lost.fault.what}, for example"


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _means(rollouts: list[dict[str, float]], steps: int) -> dict[str, float]:
    """One value per key: seconds per step, and means of the rest over the rollouts that have a value."""
    found = {}
    for key in rollouts[0] if rollouts else ():
        values = [rollout[key] for rollout in rollouts if not math.isnan(rollout.get(key, math.nan))]
        found[key] = sum(values) / (steps if key.startswith(SECONDS) else len(values)) if values else math.nan
    return found
