"""The fast update beside TRL's own on the same rollouts: every parameter's gradient over a whole optimizer step.

Prompts and completions are ragged, rows arrive shuffled as TRL shuffles them, half of the groups may be flat. Each
mutant must fail the comparison.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from random_model import save_random_model
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import GRPOConfig, GRPOTrainer

from grpo_kit.model import logps
from grpo_kit.reference_loss import LossType
from grpo_kit.trainer.fast_trainer import FastTrainer

# Measured: at most 2e-6 of the largest gradient; the mildest mutant is off by more than 1e-3 of it.
TOLERANCE = 1e-5
FAR = 1e-3
GROUP = 4
PROMPTS = (3, 9, 17, 6)  # tokens
PAD = 256
MAX_LENGTH = 12


def reward(completions: list[Any], **_: Any) -> list[float]:
    return [0.0] * len(completions)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_random_model(tmp_path_factory.mktemp("fast") / "model")


def trainer_of(
    kind: type, folder: Path, lora: bool, loss_type: str, accumulation: int, beta: float, **more: Any
) -> Any:
    args = GRPOConfig(
        output_dir=str(folder / "out"),
        use_cpu=True,
        bf16=False,
        **{"gradient_checkpointing": False, **more},
        per_device_train_batch_size=16 // accumulation,
        gradient_accumulation_steps=accumulation,
        num_generations=GROUP,
        max_completion_length=MAX_LENGTH,
        temperature=0.9,
        loss_type=loss_type,
        epsilon_high=0.3,
        report_to=[],
    )
    config = LoraConfig(r=4, target_modules="all-linear", lora_dropout=0.0, task_type="CAUSAL_LM") if lora else None
    trainer = kind(
        model=AutoModelForCausalLM.from_pretrained(folder),
        args=args,
        reward_funcs=[reward],
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 8}),
        processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
        peft_config=config,
    )
    trainer.beta = beta  # set after construction, so that no reference model is loaded
    trainer.current_gradient_accumulation_steps = accumulation
    trainer.model.train()
    if lora:  # PEFT starts with B at 0, where A has no gradient
        generator = torch.Generator().manual_seed(1)
        for name, weight in trainer.model.named_parameters():
            if "lora_" in name:
                weight.data.normal_(0, 0.1, generator=generator)
    return trainer


def rollout(flat_groups: int, old: bool, beta: float) -> dict[str, Tensor]:
    """16 rows in 4 groups, shuffled; the first `flat_groups` of them have advantage 0."""
    generator = torch.Generator().manual_seed(0)
    rows = len(PROMPTS) * GROUP
    lengths = torch.randint(1, MAX_LENGTH + 1, (rows, 1), generator=generator)
    prompt_lengths = torch.tensor(PROMPTS).repeat_interleave(GROUP).unsqueeze(1)
    prompt_mask = (torch.arange(max(PROMPTS)) >= max(PROMPTS) - prompt_lengths).long()
    completion_mask = (torch.arange(MAX_LENGTH) < lengths).long()
    prompts = torch.randint(0, 250, (len(PROMPTS), max(PROMPTS)), generator=generator).repeat_interleave(GROUP, 0)
    completions = torch.randint(0, 250, completion_mask.shape, generator=generator)
    advantages = torch.randn(rows, generator=generator)
    advantages[: flat_groups * GROUP] = 0.0
    shape = completion_mask.shape
    batch = {
        "prompt_ids": prompts.masked_fill(prompt_mask == 0, PAD),
        "prompt_mask": prompt_mask,
        "completion_ids": completions.masked_fill(completion_mask == 0, PAD),
        "completion_mask": completion_mask,
        "advantages": advantages,
    }
    if old:  # far from the policy's, as where steps share a rollout; -200 would overflow a ratio that is not 1
        batch["old_per_token_logps"] = torch.randn(shape, generator=generator) * 0.3 - 5.5
        batch["old_per_token_logps"][0] = -200.0 if flat_groups else -5.5
    if beta:
        batch["ref_per_token_logps"] = torch.randn(shape, generator=generator) * 0.3 - 5.5
    shuffle = torch.randperm(rows, generator=generator)
    batch = {key: value[shuffle] for key, value in batch.items()}
    return {**batch, "num_items_in_batch": completion_mask.sum()}


def gradients(trainer: Any, whole: dict[str, Tensor], accumulation: int) -> list[Tensor]:
    """Of one optimizer step: all micro-batches, through the trainer's own `_prepare_inputs` and `compute_loss`."""
    trainer.model.zero_grad(set_to_none=True)
    size = 16 // accumulation
    split = [
        {key: value[at * size : (at + 1) * size] if value.dim() else value for key, value in whole.items()}
        for at in range(accumulation)
    ]
    trainer._step, trainer._buffered_inputs = 0, None
    trainer._generate_and_score_completions = lambda inputs: whole  # injected
    import trl.trainer.grpo_trainer as module

    shuffled, divided = module.shuffle_sequence_dict, module.split_tensor_dict
    module.shuffle_sequence_dict, module.split_tensor_dict = (lambda batch: batch), (lambda batch, count: split)
    try:
        for step in range(accumulation):
            trainer._step = step
            trainer.compute_loss(trainer.model, trainer._prepare_inputs([{}])).backward()
    finally:
        module.shuffle_sequence_dict, module.split_tensor_dict = shuffled, divided
    return [p.grad for p in trainer.model.parameters() if p.requires_grad]


def deviation(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """The largest difference, relative to the largest gradient."""
    assert all(grad is not None for grad in ours)
    scale = max(float(grad.abs().max()) for grad in theirs)
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True)) / scale


@pytest.mark.parametrize("flat_groups", [0, 2])
@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
@pytest.mark.parametrize("loss_type", [*get_args(LossType), "sapo", "cispo", "vespo"])
def test_gradients_are_trls(folder, loss_type: LossType, lora, beta, accumulation, flat_groups):
    for old in (False, True):
        whole = rollout(flat_groups, old and not flat_groups, beta)
        both = [
            gradients(trainer_of(kind, folder, lora, loss_type, accumulation, beta), whole, accumulation)
            for kind in (FastTrainer, GRPOTrainer)
        ]
        assert deviation(*both) < TOLERANCE


@pytest.mark.parametrize("more", [{}, {"top_entropy_quantile": 0.5}], ids=["all tokens", "top entropy"])
def test_an_entropy_bonus_has_its_gradient_too(folder, more):
    whole = rollout(2, False, 0.0)
    ours, theirs = (
        gradients(trainer_of(kind, folder, False, "dapo", 4, 0.0, entropy_coef=0.1, **more), whole, 4)
        for kind in (FastTrainer, GRPOTrainer)
    )
    assert deviation(ours, theirs) < TOLERANCE
    without = gradients(trainer_of(FastTrainer, folder, False, "dapo", 4, 0.0, **more), whole, 4)
    assert deviation(without, theirs) > FAR


@pytest.mark.parametrize("flat_groups", [0, 2])
@pytest.mark.parametrize("kind", ["sliding", "checkpointing"])
def test_where_prompts_cannot_be_shared_rows_are_still_left_out(folder, tmp_path, kind, flat_groups):
    """Keys and values of a window of 8 tokens, of 21 there can be, are none to share; nor those of checkpointing."""
    if kind == "sliding":
        config = AutoConfig.from_pretrained(folder)
        config.use_sliding_window, config.sliding_window, config.max_window_layers = True, 8, 0
        config.layer_types = ["sliding_attention", "full_attention"]
        shutil.copytree(folder, tmp_path / "model", ignore=shutil.ignore_patterns("out"))
        config.save_pretrained(tmp_path / "model")
        folder = tmp_path / "model"
    more = {"gradient_checkpointing": True} if kind == "checkpointing" else {}
    whole = rollout(flat_groups, False, 0.0)
    fast, bare = (trainer_of(which, folder, False, "dapo", 4, 0.0, **more) for which in (FastTrainer, GRPOTrainer))
    assert fast.slow_because
    seen = []
    fast.model.base_model.register_forward_pre_hook(
        lambda _, args, given: seen.append(len(given["input_ids"])), with_kwargs=True
    )
    assert deviation(gradients(fast, whole, 4), gradients(bare, whole, 4)) < TOLERANCE
    assert sum(seen) == 16 - flat_groups * GROUP


def test_rows_left_out_cannot_overflow(folder):
    whole = rollout(2, old=True, beta=0.0)
    ours = gradients(trainer_of(FastTrainer, folder, False, "dapo", 4, 0.0), whole, 4)
    assert all(torch.isfinite(grad).all() for grad in ours)


@pytest.mark.parametrize("lora", [False, True])
def test_gradients_are_zeros_and_not_none_where_all_is_flat(folder, lora):
    ours = gradients(trainer_of(FastTrainer, folder, lora, "dapo", 4, 0.0), rollout(4, False, 0.0), 4)
    assert all(grad is not None and not grad.any() for grad in ours)


def wrong_positions(rows_forward):
    def states(forward: Any, rows: Any) -> Tensor:
        def moved(**given: Any) -> Any:
            seen = given["cache"].get_seq_length() + 3 if "cache" in given else 0
            return forward(**given, position_ids=torch.arange(given["input_ids"].size(1)).unsqueeze(0) + seen)

        return rows_forward(moved, rows)

    return states


def no_padding_mask(rows_forward):
    return lambda forward, rows: rows_forward(lambda **given: forward(**{**given, "attention_mask": None}), rows)


def one_rows_prompt_swapped(rows_forward):
    def states(forward: Any, rows: Any) -> Tensor:
        wrong = rows.prompt_of.clone()
        wrong[0] = (wrong[0] + 1) % rows.prompt_ids.size(0)
        return rows_forward(forward, replace(rows, prompt_of=wrong))

    return states


@pytest.mark.parametrize("mutant", [wrong_positions, no_padding_mask, one_rows_prompt_swapped])
def test_a_mutant_of_the_states_is_far_off(folder, monkeypatch, mutant):
    whole = rollout(0, False, 0.0)
    theirs = gradients(trainer_of(GRPOTrainer, folder, False, "grpo", 1, 0.0), whole, 1)
    fast = trainer_of(FastTrainer, folder, False, "grpo", 1, 0.0)
    assert deviation(gradients(fast, whole, 1), theirs) < TOLERANCE
    monkeypatch.setattr(logps, "_hidden_states", mutant(logps._hidden_states))
    assert deviation(gradients(fast, whole, 1), theirs) > FAR


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "bnpo"])
def test_a_denominator_without_the_flat_rows_is_far_off(folder, loss_type):
    """As if the rows that are left out were not there: 8 rows instead of 16 are averaged over."""
    whole = rollout(2, False, 0.0)
    theirs = gradients(trainer_of(GRPOTrainer, folder, False, loss_type, 1, 0.0), whole, 1)
    kept = whole["advantages"] != 0
    fewer = {key: value[kept] if value.dim() else value for key, value in whole.items()}
    ours = gradients(trainer_of(FastTrainer, folder, False, loss_type, 1, 0.0), fewer, 1)
    assert deviation(ours, theirs) > FAR
