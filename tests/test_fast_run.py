"""Whole runs with `fast: true` and `fast: false`: the same rewards, the same weights up to rounding."""

from pathlib import Path

import pytest
import torch
from whole_run import RECIPE, lines, run, summary, weights

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_fast_is_the_same_run(lora):
    for fast in ("true", "false"):
        more = ["lora={r: 4}"] if lora else []
        assert run("sums.yaml", f"fast={fast}", f"name=fast-{fast}", "grpo.max_steps=20", *more) in (0, 1)
    fast, bare = lines("fast-true", "metrics.jsonl"), lines("fast-false", "metrics.jsonl")
    assert [m["reward"] for m in fast] == [m["reward"] for m in bare]
    for one, other in zip(fast, bare, strict=True):
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4, abs=1e-7)
    completions = [[s["completion"] for s in lines(name, "samples.jsonl")] for name in ("fast-true", "fast-false")]
    assert completions[0] == completions[1]
    assert summary("fast-true")["eval_after"] == summary("fast-false")["eval_after"]
    if not lora:
        one, other = weights("fast-true"), weights("fast-false")
        assert all(torch.allclose(one[key], other[key], rtol=1e-3, atol=1e-5) for key in one)


@pytest.mark.parametrize(("per_generation", "accumulation"), [(3, 2), (2, 3), (4, 2)])
def test_a_step_that_spans_rollouts_is_the_same_step(per_generation, accumulation):
    for fast in ("true", "false"):
        run(
            "sums.yaml", f"fast={fast}", f"name=fast-{fast}", "eval_dataset=null", "grpo.max_steps=5",
            f"grpo.steps_per_generation={per_generation}", f"grpo.gradient_accumulation_steps={accumulation}",
            "grpo.loss_type=grpo",
        )  # fmt: skip
    fast, bare = lines("fast-true", "metrics.jsonl"), lines("fast-false", "metrics.jsonl")
    for one, other in zip(fast, bare, strict=True):
        assert one["grad_norm"] == pytest.approx(other["grad_norm"], rel=1e-4, abs=1e-7)


ROUNDING = '"""Equal up to rounding."""\n\n\ndef mine(completion):\n    return 1.2 + 1e-7 * (len(completion) % 3)\n'


def test_a_group_that_is_flat_up_to_rounding_moves_nothing():
    Path("rewards").mkdir()
    Path("rewards/mine.py").write_text(ROUNDING)
    assert run("sums.yaml", "rewards={mine: 1.0}", "eval_dataset=null") == 1
    for metrics in lines("sums", "metrics.jsonl"):
        assert metrics["grad_norm"] == 0
        assert metrics["frac_reward_zero_std"] == 1
    assert {sample["advantage"] for sample in lines("sums", "samples.jsonl")} == {0.0}
    assert run("sums.yaml", "rewards={mine: 1.0}", "eval_dataset=null", "fast=false", "name=bare") == 1
    assert max(m["grad_norm"] for m in lines("bare", "metrics.jsonl")) > 0  # TRL scales the rounding up


def test_why_it_is_slow_is_said_once(capsys):
    assert run("sums.yaml", "grpo.activation_checkpointing=true", "eval_dataset=null") in (0, 1)
    assert (
        capsys.readouterr().out.count("gradient checkpointing keeps no keys and values, so prompts are not shared") == 1
    )
