"""What goes wrong in GRPO runs by the book, through the command line: each leads to a finding or a refusal that names
what to change. The rows are those of the usual troubleshooting table."""

import json
import math
from pathlib import Path

import pytest
import torch
from histories import overfitted
from whole_run import RECIPE, lines, summary

from grpo_kit.cli import main
from grpo_kit.run.run_dir import RunDir
from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)


def command(capsys, *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error of `grpo-kit ...`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return (int(ended.value.code or 0), *capsys.readouterr())


def reward(name: str, body: str) -> None:
    Path("rewards").mkdir(exist_ok=True)
    Path(f"rewards/{name}.py").write_text(f'"""A reward."""\n\n\ndef {name}(completion):\n    return {body}\n')


def found(name: str) -> dict:
    """The finding of this name as the run wrote it when it was made."""
    made = [event for event in lines("sums", "events.jsonl") if event["event"] == "finding"]
    assert name in [event["name"] for event in made]
    return next(event for event in made if event["name"] == name)


def test_advantages_that_are_all_0_for_a_reward_that_does_not_tell(capsys):
    reward("nice", "0.5")
    code, out, _ = command(capsys, "run", "sums.yaml", "rewards={nice: 1.0}", "eval_dataset=null")
    assert code == 1
    finding = found("no-gradient")
    assert finding["since"] == 1
    assert "nice is always 0.5" in finding["cause"]
    assert "rewards test" in finding["change"]
    assert "finding      no-gradient, since step 1" in out


def test_advantages_that_are_all_0_because_sampling_is_cold(capsys):
    cold = ("grpo.temperature=0.05", "eval_dataset=null", "grpo.learning_rate=1e-6")
    assert command(capsys, "run", "sums.yaml", *cold)[0] == 1
    finding = found("no-gradient")
    assert "all completions of a prompt are the same text" in finding["cause"]
    assert finding["override"] == "grpo.temperature=1.0"


def test_a_batch_that_is_no_whole_groups_is_refused_with_one_that_is(capsys):
    code, out, error = command(capsys, "run", "sums.yaml", "grpo.num_generations=5")
    assert (code, out) == (2, "")
    # 8 x 2 = 16 completions are no whole groups of 5; 10 x 2 are
    assert "per_device_train_batch_size 8 x gradient_accumulation_steps 2 = 16 completions" in error
    assert "write per_device_train_batch_size: 10, for example" in error
    better = ("grpo.num_generations=5", "grpo.per_device_train_batch_size=10")
    assert command(capsys, "check", "sums.yaml", *better)[0] == 0


def test_kl_that_shoots_up(capsys):
    fast = ("grpo.beta=0.04", "grpo.learning_rate=3e-3", "grpo.max_steps=12", "eval_dataset=null", "dataset.limit=null")
    code, out, _ = command(capsys, "run", "sums.yaml", *fast, "grpo.save_strategy='no'")
    assert code in (0, 1)
    finding = found("kl")
    assert "KL to the reference model" in finding["evidence"]
    assert finding["override"].startswith(("grpo.learning_rate=", "grpo.beta="))
    assert f"  override   {finding['override']}" in out


def test_ever_longer_answers(capsys):
    reward("longer", "min(len(completion), 100) / 100")
    longer = (
        "rewards={accuracy: 0.05, longer: 1.0}", "goal=accuracy", "grpo.learning_rate=1e-3", "grpo.max_steps=40",
        "grpo.max_completion_length=48", "eval_dataset=null", "dataset.limit=null", "grpo.save_strategy='no'",
    )  # fmt: skip
    command(capsys, "run", "sums.yaml", *longer)
    finding = found("length-growth")
    assert "and accuracy has not risen" in finding["evidence"]
    assert "longer has risen with them" in finding["cause"]
    assert finding["override"].startswith("rewards.longer.weight=")


def test_memory_that_is_not_there_is_known_before_the_weights_load(capsys):
    large = ("grpo.per_device_train_batch_size=256", "grpo.gradient_accumulation_steps=1", "fast=false")
    longest = ("grpo.max_completion_length=400", "dataset.limit=null")
    code, out, error = command(capsys, "check", "sums.yaml", *large, *longest, "--gpu-memory", "2")
    assert (code, out) == (2, "")
    assert "but a card has 2 GB; write grpo.per_device_train_batch_size=" in error


def test_memory_that_runs_out_all_the_same_is_told_with_what_fits(capsys, monkeypatch):
    def no_memory(self, *_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has ...")

    monkeypatch.setattr(DynamicSamplingTrainer, "_compute_loss", no_memory)
    code, _, error = command(capsys, "run", "sums.yaml", "eval_dataset=null")
    assert code == 1
    assert error.startswith("error: step 1: out of memory in the update, asked for 21 MB more; predicted there: ")
    assert error.count("\n") == 1
    assert summary("sums")["reason"].startswith("RunError: step 1: out of memory")


def test_nan_though_the_rewards_are_there(capsys, monkeypatch):
    plain = DynamicSamplingTrainer._generate_and_score_completions

    def spoilt(self, inputs):
        output = plain(self, inputs)
        output["old_per_token_logps"][0, 0] = -math.inf  # a token that the sampler took for impossible
        output["advantages"][0] = 1.0
        return output

    monkeypatch.setattr(DynamicSamplingTrainer, "_generate_and_score_completions", spoilt)
    code, _, error = command(capsys, "run", "sums.yaml", "grpo.num_iterations=2", "eval_dataset=null")
    assert code == 1
    assert error.startswith("error: step 1: not finite: old_per_token_logps of micro-batch ")
    assert "lower grpo.learning_rate" in error
    code, out, _ = command(capsys, "doctor", "sums", "--fail-on", "not-finite")
    assert code == 1
    assert "not-finite, since step 1" in out


def test_training_rises_and_held_out_does_not(capsys):
    made = overfitted(seed=0, onset=60, loss=0.3)
    folder = Path("runs/sums")
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "grpo_config.json").write_text(json.dumps({"max_completion_length": 200}))
    RunDir(folder).append("metrics.jsonl", *made.steps)
    RunDir(folder).append("eval.jsonl", *made.evaluations)
    code, out, _ = command(capsys, "doctor", "sums", "--fail-on", "overfitting")
    assert code == 1
    assert "overfitting, since step " in out
    assert "  change     " in out.split("overfitting, since")[1]
