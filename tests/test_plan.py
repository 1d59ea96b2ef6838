"""The plan that `check` prints is what a run then does."""

import json
from pathlib import Path

import pytest
from random_model import save_random_model

from grpo_kit.prepare.prepare import prepare
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.train import train

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_random_model(tmp_path_factory.mktemp("plan") / "model")


@pytest.mark.parametrize(
    ("rows", "grpo", "steps", "prompts", "completions", "unused"),
    [
        # 8 x 2 completions in groups of 4 are 4 prompts; 21 // 4 = 5 rollouts of one step
        (21, {"num_train_epochs": 1}, 5, 4, 16, 1),
        (21, {"num_train_epochs": 2}, 10, 4, 16, 1),
        (21, {"max_steps": 3}, 3, 4, 16, 1),
        # a rollout of 8 x 4 completions, 8 prompts, serves two steps: 21 // 8 = 2 rollouts, 4 steps
        (21, {"num_train_epochs": 1, "steps_per_generation": 4}, 4, 4, 16, 5),
        # every rollout is used for two updates
        (21, {"num_train_epochs": 1, "num_iterations": 2}, 10, 4, 16, 1),
        # one prompt a step
        (5, {"num_train_epochs": 1, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}, 5, 1, 4, 0),
        (5, {"num_train_epochs": 1, "gradient_accumulation_steps": 1}, 2, 2, 8, 1),
    ],
)
def test_a_run_does_what_was_planned(model, tmp_path, monkeypatch, rows, grpo, steps, prompts, completions, unused):
    monkeypatch.chdir(tmp_path)
    Path("data.jsonl").write_text("".join(json.dumps({"prompt": f"What is {i}+{i}?"}) + "\n" for i in range(rows)))
    Path("rewards").mkdir()
    Path("rewards/distinct.py").write_text(
        '"""Varies."""\n\n\ndef distinct(completion):\n    return len(set(completion))\n'
    )
    settings = {
        "num_generations": 4, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2,
        "max_completion_length": 6, "save_strategy": "no", **grpo,
    }  # fmt: skip
    recipe = {"model": str(model), "dataset": {"path": "data.jsonl"}, "rewards": {"distinct": 1.0}, "grpo": settings}
    Path("r.yaml").write_text(json.dumps(recipe))
    prepared = prepare(load_recipe(Path("r.yaml")))
    plan = prepared.plan
    assert (plan.steps, plan.prompts_per_step, plan.completions_per_step, plan.unused_rows_per_epoch) == (
        steps, prompts, completions, unused,
    )  # fmt: skip
    summary = train(prepared)
    assert summary["steps"] == plan.steps
    samples = [json.loads(line) for line in Path("runs/r/samples.jsonl").read_text().splitlines()]
    assert len(samples) == len({s["step"] for s in samples}) * plan.completions_per_rollout
    if plan.epochs == 1:
        assert len({s["row"] for s in samples}) == rows - plan.unused_rows_per_epoch
