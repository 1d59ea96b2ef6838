"""What a run writes while it trains: one metrics line a step, every scored completion, and the line shown."""

import math
import time
from statistics import fmean
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from grpo_kit.console import LOSS_NOTE, Console, example_lines, step_line
from grpo_kit.errors import RunError
from grpo_kit.prepare import Prepared
from grpo_kit.rewards import Reward
from grpo_kit.run_dir import RunDir
from grpo_kit.stats import is_flat

if TYPE_CHECKING:
    from grpo_kit.trainer import Rollout


SECONDS = "kit/seconds/"


class Recorder(TrainerCallback):
    """Joins what the trainer logs with what its rollouts showed, and writes both."""

    def __init__(self, prepared: Prepared, run: RunDir, console: Console):
        self.prepared, self.run, self.console = prepared, run, console
        self._pending: list[dict[str, float]] = []
        self._step_started = time.perf_counter()
        self._step_s: list[float] = []
        self._first = True

    def on_rollout(self, rollout: "Rollout") -> None:
        self._pending.append(rollout_metrics(rollout, self.prepared))
        every = self.prepared.recipe.samples
        if every == "all" or rollout.step % every == 0 or rollout.step == 1:
            for sample in samples(rollout, self.prepared):
                self.run.append("samples.jsonl", sample)
        if self._first:
            self._first = False
            self.console.say(f"first completion of step {rollout.step}:")
            for line in example_lines(samples(rollout, self.prepared)[0]):
                self.console.say(line)
            self.console.say(LOSS_NOTE)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._step_started = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._step_s.append(time.perf_counter() - self._step_started)
        self.console.progress()

    def on_log(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        logs = given["logs"]
        if "loss" not in logs:  # the trainer's closing totals, no step
            return
        rollouts, self._pending = self._pending, []
        step_s, self._step_s = self._step_s, []
        metrics = {"step": state.global_step, **logs, **_means(rollouts, max(len(step_s), 1))}
        if step_s:
            total = fmean(step_s)
            spent = sum(metrics.get(f"{SECONDS}{part}", 0.0) for part in ("generation", "rewards"))
            metrics |= {f"{SECONDS}step": total, f"{SECONDS}update": max(total - spent, 0.0)}
        self.run.append("metrics.jsonl", {key: _json_number(value) for key, value in metrics.items()})
        self.console.say(step_line(metrics, state.max_steps))
        overflow_is_normal = args.fp16  # its loss scaling grows until a step overflows, and skips that step
        if not overflow_is_normal and not math.isfinite(float(logs.get("grad_norm", 0.0))):
            raise RunError(
                f"step {state.global_step}: the gradient norm is {logs['grad_norm']}, so the weights are lost; "
                "lower grpo.learning_rate"
            )


def rollout_metrics(rollout: "Rollout", prepared: Prepared) -> dict[str, float]:
    """The kit's own metrics of one generation batch. Shares are of groups or of completions, between 0 and 1."""
    goal, column = prepared.goal, prepared.rewards.index(prepared.goal)
    scores = [_scored(rewards[column]) for rewards in rollout.rewards]
    right = [goal.is_right(score) for score in scores]
    wrong = [score is not None and not goal.is_right(score) for score in scores]
    judged = sum(right) + sum(wrong)
    totals = [total_reward(rewards, prepared.rewards) for rewards in rollout.rewards]
    size = prepared.plan.num_generations
    groups = [range(start, start + size) for start in range(0, len(totals), size)]
    flat = [group for group in groups if is_flat([totals[i] for i in group])]
    return {
        "kit/accuracy": sum(right) / judged if judged else math.nan,
        "kit/flat_group_share": len(flat) / len(groups),
        "kit/all_right": sum(all(right[i] for i in group) for group in flat) / len(groups),
        "kit/all_wrong": sum(all(wrong[i] for i in group) for group in flat) / len(groups),
        "kit/truncated_share": fmean(prepared.chat.is_truncated(ids) for ids in rollout.completion_ids),
        f"{SECONDS}generation": rollout.generation_s,
        f"{SECONDS}rewards": rollout.rewards_s,
    }


def total_reward(rewards: list[float], given: list[Reward]) -> float:
    """The weighted sum as TRL forms it: unscored rewards are left out; NaN where nothing was scored."""
    scored = [value * reward.weight for value, reward in zip(rewards, given, strict=True) if not math.isnan(value)]
    return sum(scored) if scored else math.nan


def samples(rollout: "Rollout", prepared: Prepared) -> list[dict[str, Any]]:
    """One record per completion, as `samples.jsonl` keeps it."""
    records = []
    for position, index in enumerate(rollout.rows):
        row, ids = prepared.data.rows[index], rollout.completion_ids[position]
        text = prepared.chat.decode(ids)
        scores = zip(prepared.rewards, rollout.rewards[position], strict=True)
        records.append(
            {
                "step": rollout.step,
                "row": index,
                "prompt": row["prompt"][-1]["content"],
                "completion": text,
                "gold": row.get("answer"),
                "answer_read": prepared.goal.read_answer(text),
                "rewards": {reward.label: _scored(value) for reward, value in scores},
                "advantage": rollout.advantages[position],
                "tokens": len(ids),
                "truncated": prepared.chat.is_truncated(ids),
            }
        )
    return records


def _scored(value: float) -> float | None:
    return None if math.isnan(value) else value


def _json_number(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _means(rollouts: list[dict[str, float]], steps: int) -> dict[str, float]:
    """One value per key: seconds per step, and means of the rest over the rollouts that have a value."""
    found = {}
    for key in rollouts[0] if rollouts else ():
        values = [rollout[key] for rollout in rollouts if not math.isnan(rollout[key])]
        found[key] = sum(values) / (steps if key.startswith(SECONDS) else len(values)) if values else math.nan
    return found
