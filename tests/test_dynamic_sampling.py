"""Flat groups are replaced by fresh prompts, whole groups at a time, and every prompt and token is accounted for."""

import json
from pathlib import Path

import pytest
import torch
from whole_run import lines, run, same_weights, summary

from grpo_kit.trainer.dynamic_sampling import DynamicSamplingTrainer, _replaced

ROWS = 24
PLANNED = '''"""Flat where the row says so, else spread over the completions' texts."""

import hashlib


def planned(completion: str, useless: bool) -> float:
    return 0.0 if useless else hashlib.sha256(completion.encode()).digest()[0] / 255
'''
RECIPE = """
model: builtin:tiny
dataset: {path: rows.jsonl, prompt: '{question}'}
rewards: {planned: 1.0}
dynamic_sampling: {max_rounds: 3}
grpo:
  max_steps: 4
  warmup_steps: 0
  learning_rate: 1e-4
  num_generations: 4
  per_device_train_batch_size: 8
  gradient_accumulation_steps: 2
  max_completion_length: 16
  save_steps: 2
"""
GROUP, PROMPTS = 4, 4


def data(useless_of_ten: int, rows: int = ROWS) -> None:
    numbers = [{"question": f"What is {7 * n}+3?", "useless": n % 10 < useless_of_ten} for n in range(rows)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in numbers))


@pytest.fixture(autouse=True)
def project(own_folder):
    Path("rewards").mkdir()
    Path("rewards/planned.py").write_text(PLANNED)
    Path("mine.yaml").write_text(RECIPE)
    data(6)


@pytest.fixture
def updates(monkeypatch) -> list[dict]:
    """The batches that the loss is computed on, one for each micro-batch."""
    seen: list[dict] = []
    plain = DynamicSamplingTrainer._compute_loss

    def noted(self, model, inputs):
        seen.append({key: value.clone() for key, value in inputs.items() if isinstance(value, torch.Tensor)})
        return plain(self, model, inputs)

    monkeypatch.setattr(DynamicSamplingTrainer, "_compute_loss", noted)
    return seen


@pytest.mark.slow
@pytest.mark.parametrize("fast", ["true", "false"])
def test_the_update_sees_whole_fresh_groups_in_the_place_of_flat_ones(updates, fast):
    assert run("mine.yaml", f"fast={fast}") == 0
    for step, metrics in enumerate(lines("mine", "metrics.jsonl"), 1):
        samples = [sample for sample in lines("mine", "samples.jsonl") if sample["step"] == step]
        by_round = [[s for s in samples if s.get("round", 0) == number] for number in range(4)]
        flat = [sum(s["advantage"] == 0 for s in one) // GROUP for one in by_round]
        # each round samples as many prompts as are still flat: those of the round before that did not vary
        expected = [PROMPTS, *(flat[number] for number in range(3))]
        assert [len(one) // GROUP for one in by_round] == expected
        assert metrics["kit/sampling/prompts"] == sum(expected)
        assert metrics["kit/sampling/flat_left_share"] == flat[3] / PROMPTS
        assert metrics["kit/flat_group_share"] == metrics["frac_reward_zero_std"] == flat[0] / PROMPTS
        assert metrics["reward"] == pytest.approx(sum(s["rewards"]["planned"] for s in by_round[0]) / 16)
        rows = [sample["row"] for sample in samples]
        assert all(rows.count(row) == GROUP for row in rows)  # no prompt twice in a step

        batch = updates[2 * step - 2 : 2 * step]
        advantages = torch.cat([one["advantages"] for one in batch]).tolist()
        assert sum(a == 0 for a in advantages) == flat[3] * GROUP
        varied = sorted(s["advantage"] for s in samples if s["advantage"])
        assert sorted(a for a in advantages if a) == pytest.approx(varied)
        tokens = sum(int(one["completion_mask"].sum()) for one in batch)
        assert {int(one["num_items_in_batch"]) for one in batch} == {tokens}
    totals = [metrics["num_tokens"] for metrics in lines("mine", "metrics.jsonl")]
    written = sum(sample["tokens"] for sample in lines("mine", "samples.jsonl"))
    assert totals[-1] > written > 0  # of the prompts too


@pytest.mark.slow
def test_each_row_keeps_its_own_prompt_completion_and_advantage(updates):
    """Found again among the samples by the tokens of the completion and by its advantage."""
    from transformers import AutoTokenizer

    from grpo_kit.shipped import tiny_model

    assert run("mine.yaml", "grpo.max_steps=1") == 0
    tokenizer = AutoTokenizer.from_pretrained(tiny_model())
    known = {(s["prompt"], s["completion"], round(s["advantage"], 5)) for s in lines("mine", "samples.jsonl")}
    for batch in updates:
        for row in range(len(batch["advantages"])):
            text = tokenizer.decode(batch["completion_ids"][row][batch["completion_mask"][row].bool()])
            prompt = tokenizer.decode(batch["prompt_ids"][row][batch["prompt_mask"][row].bool()])
            question = prompt.split("user\n")[1].split("<|im_end|>")[0]
            text = text.removesuffix("<|im_end|>")
            assert (question, text, round(float(batch["advantages"][row]), 5)) in known


@pytest.mark.slow
def test_a_resumed_run_draws_the_same_prompts():
    assert run("mine.yaml", "name=whole") == 0
    assert run("mine.yaml", "name=half", "grpo.max_steps=2") == 0
    Path("runs/half/summary.json").unlink()
    assert run("mine.yaml", "name=half", "--resume") == 0
    for file in ("metrics.jsonl", "samples.jsonl"):
        one, other = (
            [{k: v for k, v in line.items() if "seconds" not in k and k != "step_time"} for line in lines(name, file)]
            for name in ("whole", "half")
        )
        assert one == other
    assert same_weights("whole", "half")


@pytest.mark.slow
def test_where_nothing_varies_the_rounds_end_and_the_run_says_so():
    data(10)
    assert run("mine.yaml") == 1
    for metrics in lines("mine", "metrics.jsonl"):
        assert metrics["kit/sampling/prompts"] == 4 * PROMPTS
        assert metrics["kit/sampling/flat_left_share"] == 1
    assert "flat" in summary("mine")["reason"]


@pytest.mark.slow
def test_data_without_a_fresh_prompt():
    data(2, rows=PROMPTS)
    assert run("mine.yaml", "grpo.max_steps=1", "name=none-left") == 0
    assert lines("none-left", "metrics.jsonl")[0]["kit/sampling/prompts"] == PROMPTS


@pytest.mark.slow
def test_steps_that_share_a_rollout_and_a_reference_model(updates):
    more = ["grpo.num_iterations=2", "grpo.beta=0.05", "grpo.gradient_accumulation_steps=1"]
    assert run("mine.yaml", *more, "grpo.steps_per_generation=2") == 0
    for batch in updates:
        shape = batch["completion_mask"].shape
        assert batch["old_per_token_logps"].shape == batch["ref_per_token_logps"].shape == shape
        at_completions = batch["completion_mask"].bool()
        assert (batch["old_per_token_logps"][at_completions] < 0).all()


@pytest.mark.parametrize(
    ("key", "side"), [("prompt_ids", "left"), ("completion_ids", "right"), ("completion_mask", "right")]
)
def test_a_longer_row_pads_the_others_on_their_side(key, side):
    """Rows [1 2] and [3 4], the second replaced by [5 6 7]; the padding is 9 for ids and 0 for masks."""
    value, pad = torch.tensor([[1, 2], [3, 4]]), 0 if key.endswith("mask") else 9
    first = [pad, 1, 2] if side == "left" else [1, 2, pad]
    assert _replaced(key, value, {1: {key: torch.tensor([5, 6, 7])}}, 9).tolist() == [first, [5, 6, 7]]


def test_a_shorter_row_is_padded():
    replaced = _replaced("completion_ids", torch.tensor([[1, 2, 3]]), {0: {"completion_ids": torch.tensor([8])}}, 9)
    assert replaced.tolist() == [[8]]
    replaced = _replaced("advantages", torch.tensor([1.0, 0.0]), {1: {"advantages": torch.tensor(0.5)}}, 9)
    assert replaced.tolist() == [1.0, 0.5]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["grpo.scale_rewards=batch"], "mine.yaml: grpo.scale_rewards: batch measures advantages by the whole batch"),
        (["grpo.multi_objective_aggregation=normalize_then_sum"], "grpo.multi_objective_aggregation"),
        (["dynamic_sampling={max_rounds: 0}"], "dynamic_sampling.max_rounds"),
        (["dynamic_sampling={max_rounds: 100}"], "dynamic_sampling.max_rounds"),
        (["dynamic_sampling={rounds: 2}"], "dynamic_sampling.rounds"),
        (["dynamic_sampling=true"], "dynamic_sampling"),
    ],
)
def test_what_cannot_be(settings, said, capsys):
    assert run("mine.yaml", *settings) == 2
    assert said in capsys.readouterr().err
