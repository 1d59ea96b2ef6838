"""What a run has come to: its summary in numbers, and why where nothing was learned."""

import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import torch

from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.findings import Finding, flat_in_update
from grpo_kit.diagnosis.history import History
from grpo_kit.evaluation.evaluate import Evaluation, Verdict, judge_gain
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.run.browse import telling_completions
from grpo_kit.run.checkpoint import BEST, MEASURED
from grpo_kit.run.prediction import score_prediction
from grpo_kit.run.record import facts_of
from grpo_kit.run.run_dir import RunDir
from grpo_kit.run.stop import StopRequest
from grpo_kit.stats import ROUNDING


def summarise(
    prepared: Prepared,
    run: RunDir,
    stop: StopRequest,
    before: Evaluation | None,
    after: Evaluation | None,
    moved: bool,
    steps: int,
    wall_s: float,
    early: str | None = None,
) -> dict[str, Any]:
    """What happened, in numbers. A run that changed nothing is a failed run, whatever its log looked like.

    `moved`: does any trainable weight differ from what it was before the first step? `early`: why it ended early.
    """
    metrics, facts = list(run.records("metrics.jsonl")), facts_of(prepared)
    found = diagnose(History(metrics, run.own_evaluations()), facts)
    verdict = judge_gain(before, after)
    status, reason = ("stopped", signal.Signals(stop.signal).name) if stop.signal else ("done", early)
    flat = metrics and all(flat_in_update(m) in (1, None) for m in metrics)
    if status == "done" and (not moved or flat):
        status, reason = "failed", why_nothing_moved(prepared, metrics, steps, found)
        verdict = replace(verdict, word="not learned", rows_needed=None)
    tenth = max(len(metrics) // 10, 1)
    tokens = [float(m["num_tokens"]) for m in metrics if m.get("num_tokens")]
    seconds = sum(m.get("kit/seconds/step") or 0.0 for m in metrics)
    return {
        "status": status,
        "reason": reason,
        "verdict": verdict.word,
        "steps": steps,
        "wall_s": wall_s,
        "eval_before": before.summary() if before else None,
        "eval_after": after.summary() if after else None,
        "gain": gain_record(verdict),
        "reward_first": mean_of(metrics[:tenth], "reward"),
        "reward_last": mean_of(metrics[-tenth:], "reward"),
        "flat_group_share": mean_of(metrics, "kit/flat_group_share"),
        "tokens_per_s": round(max(tokens) / seconds, 1) if tokens and seconds else None,
        "peak_memory_gb": round(peak_memory_gb(), 2),
        "best": best_of(run),
        "preflight": score_prediction(foretold, metrics) if (foretold := run.read_whole("preflight.json")) else None,
        "diagnoses": [
            {**finding.record(), "completions": telling_completions(run, finding, facts)} for finding in found
        ],
    }


def best_of(run: RunDir) -> dict[str, Any] | None:
    """The measurement after which `best/` was written; None where it cannot be read."""
    best = run.read_whole(f"{BEST}/{MEASURED}")
    return {key: best[key] for key in ("step", "accuracy", "ci95")} if best else None


def gain_record(verdict: Verdict) -> dict[str, Any] | None:
    if verdict.gain is None:
        return None
    return {"value": verdict.gain, "ci95": verdict.ci95, "rows_needed": verdict.rows_needed}


def why_nothing_moved(
    prepared: Prepared, metrics: list[dict[str, Any]], steps: int, found: Sequence[Finding] = ()
) -> str:
    """The reason why no weight moved, or none for a reason, from what is certain to what is likely."""
    warmup = prepared.args.warmup_steps
    if not steps:
        return "no weight moved: no step was taken"
    if metrics and not any(m.get("learning_rate") for m in metrics):
        if prepared.args.learning_rate:
            return f"no weight moved: the only step fell into warmup, which starts at 0 (grpo.warmup_steps={warmup:g})"
        return "no weight moved: the learning rate was 0 (grpo.learning_rate=0)"
    if metrics and not any(m.get("reward") is not None for m in metrics):
        return "no weight moved: no reward judged any completion (all returned None)"
    if prepared.args.mask_truncated_completions and (mean_of(metrics, "kit/truncated_share") or 0) > 1 - ROUNDING:
        return "no weight moved: every completion was cut, and grpo.mask_truncated_completions leaves those out"
    no_gradient = next((finding for finding in found if finding.name == "no-gradient"), None)
    if no_gradient is not None and no_gradient.since == metrics[0]["step"]:
        return f"nothing could be learned in any step: {no_gradient.evidence}; {no_gradient.cause}"
    if metrics and not any(m.get("grad_norm") for m in metrics):
        flat, right, wrong = (
            mean_of(metrics, key) or 0.0 for key in ("kit/flat_group_share", "kit/all_right", "kit/all_wrong")
        )
        return (
            f"no weight moved: the gradient was 0 in every step; {flat:.0%} of groups were flat "
            f"({right:.0%} all right, {wrong:.0%} all wrong), so no completion was better than another"
        )
    return "no weight moved: every update was rounded away; raise grpo.learning_rate"


def mean_of(metrics: list[dict[str, Any]], key: str) -> float | None:
    values = [m[key] for m in metrics if m.get(key) is not None]
    return fmean(values) if values else None


def peak_memory_gb() -> float:
    """Of the card where there is one, else of this process."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_allocated() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9
