"""Run directories that never were a run: as a whole one leaves them, for the tests of the report."""

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from grpo_kit.run.run_dir import RunDir
from grpo_kit.stats import accuracy_interval, paired_difference

PROMPTS, SAMPLES = 24, 4

HOSTILE = {
    "script": "<script>window.acted = 1</script>",
    "end of script": "</script><script>window.acted = 1</script>",
    "handler": "<img src=x onerror='window.acted = 1'>",
    "attribute": '"><svg onload="window.acted = 1">',
    "jinja": "{{7*7}} {% raw %}",
    "literal": "${window.acted = 1}`",
    "comment": "<!--<script>",
    "entity": "&lt;b&gt; &amp;amp; \\u003c",
    "surrogate": "lone \ud800 surrogate",
    "direction": "abc \u202e fed",
    "nul": "nul \x00 here",
    "separators": "line \u2028 and \u2029 end",
    "chinese": "一共有　三个苹果，答案是 3。",
    "prototype": "__proto__",
}
"""What a model may write; each must be seen as text, and do nothing."""


def rates(seed: int, p: float) -> list[float]:
    draw = random.Random(seed)
    return [sum(draw.random() < p for _ in range(SAMPLES)) / SAMPLES for _ in range(PROMPTS)]


def metrics(step: int, steps: int) -> dict[str, Any]:
    """A step of a run that learns."""
    done = step / steps
    return {
        "step": step,
        "reward": 0.5 + 0.5 * done,
        "rewards/accuracy/mean": 0.4 + 0.4 * done,
        "rewards/format/mean": 0.3 + 0.6 * done,
        "grad_norm": 0.5,
        "completions/mean_length": 20.0,
        "kit/accuracy": 0.4 + 0.4 * done,
        "kit/flat_group_share": 0.5 * done,
        "kit/all_right": 0.25 * done,
        "kit/all_wrong": 0.0,
        "kit/truncated_share": 0.0,
        "kit/entropy": 0.3 - 0.2 * done,
        "kit/seconds/generation": 2.0,
        "kit/seconds/rewards": 0.5,
        "kit/seconds/update": 1.5,
        "kit/seconds/step": 4.0,
    }


def evaluation(step: int, pass_rates: list[float]) -> dict[str, Any]:
    mean = sum(pass_rates) / len(pass_rates)
    return {
        "step": step,
        "data": "test.jsonl",
        "goal": "accuracy",
        "accuracy": mean,
        "ci95": accuracy_interval(pass_rates, SAMPLES),
        "n": PROMPTS,
        "samples": SAMPLES,
        "mean_tokens": 20.0,
        "truncated_share": 0.0,
        "rewards": {"accuracy": mean, "format": 0.5},
        "unscored": {"accuracy": 0.0, "format": 0.1},
        "pass_rates": pass_rates,
        "example": {},
        "goal_varies": True,
    }


def sample(step: int, row: int, text: str, right: bool) -> dict[str, Any]:
    return {
        "step": step,
        "row": row,
        "prompt": f"What is {row}+{row}?",
        "completion": text,
        "gold": str(2 * row),
        "answer_read": None,
        "rewards": {"accuracy": float(right), "format": None},
        "tokens": 5,
        "truncated": False,
    }


def whole_run(
    folder: Path, steps: int = 40, before: list[float] | None = None, after: list[float] | None = None
) -> RunDir:
    """A run that learned, with two findings, prompts that come twice, and hostile completions where they can be."""
    run = RunDir(folder)
    folder.mkdir(parents=True)
    before, after = before or rates(1, 0.4), after or rates(2, 0.8)
    run.append("metrics.jsonl", *(metrics(step, steps) for step in range(1, steps + 1)))
    run.append(
        "eval.jsonl", evaluation(0, before), evaluation(steps, after), {**evaluation(steps, before), "target": "x"}
    )
    texts = list(HOSTILE.values())
    for step, side in ((0, before), (steps, after)):
        kept = RunDir(folder / "evals" / f"step-{step}")
        kept.path.mkdir(parents=True)
        kept.append("samples.jsonl", *held_out_samples(step, side, texts))
    run.append("samples.jsonl", *(
        sample(step, row, f"step {step}, completion {at}", at == 0)
        for step in range(1, steps + 1) for row in (step % 30, 100 + step) for at in range(2)
    ))  # fmt: skip
    finding = {"name": "truncation", "evidence": "31% <b>cut</b>", "cause": "they grow", "change": "raise the limit"}
    run.event("warning", 0, message="a note")
    run.event("finding", 12, since=8, override="grpo.max_completion_length=400", **finding)
    run.event("finding gone", 20, name="truncation")
    run.event("finding", 30, since=28, **finding)
    run.event("score lost", 5, reward="accuracy", fault="timeout", message="took too long", completion="<b>x</b>")
    gain = paired_difference(before, after)
    ends = {"eval_before": evaluation(0, before), "eval_after": evaluation(steps, after)}
    run.write("summary.json", {
        "status": "done", "reason": None, "verdict": "learned", "steps": steps, "wall_s": 200.0, **ends,
        "gain": {"value": gain.value, "ci95": gain.ci95, "rows_needed": None}, "reward_first": 0.5, "reward_last": 1.0,
        "diagnoses": [{"since": 28, **finding}],
    })  # fmt: skip
    run.write("provenance.json", {
        "grpo_kit": "0.1.0", "packages": {"torch": "2.13"}, "git": {"commit": "abc", "diff": "+secret line\n"},
        "argv": ["grpo-kit", "run", "grpo.hub_token=hf_abc", "a b.yaml"], "seed": 42,
    })  # fmt: skip
    recipe = {
        "model": "builtin:tiny",
        "seed": 42,
        "dataset": {"path": "/d.jsonl", "prompt": "{q}", "max_unusable": 0.05},
        "eval_dataset": {"path": "/e.jsonl", "prompt": "{q}"},
        "rewards": {"accuracy": {"weight": 1.0}, "format": {"weight": 0.3}},
        "grpo": {"learning_rate": 1e-5, "save_steps": 50.0, "max_completion_length": 200, "hub_token": "hf_abc"},
        "name": "sums",
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe, sort_keys=False), encoding="utf-8")
    return run


def held_out_samples(step: int, pass_rates: list[float], texts: list[str]) -> Iterable[dict[str, Any]]:
    """Hostile texts are those of the first prompts, one each, before and after."""
    for row, rate in enumerate(pass_rates):
        for at in range(SAMPLES):
            text = texts[row] if row < len(texts) else f"step {step} row {row} completion {at}"
            yield sample(step, row, text, at < rate * SAMPLES)


def write_lines(file: Path, records: Iterable[Any]) -> None:
    file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
