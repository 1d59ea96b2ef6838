"""One optimizer step on given completions, in as many processes as were started: what was scored and its gradients.

torchrun --standalone --nproc_per_node 2 tests/one_step.py MODEL OUT
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig

from grpo_kit.processes import count, gather, is_main, leave, rank
from grpo_kit.trainer.fast_trainer import FastTrainer

GROUP = 4
PROMPTS = ["a", "some more", "seventeen letters"]
MICRO_BATCH = 3
END = 258

_random = torch.Generator().manual_seed(0)
COMPLETIONS = [
    [*torch.randint(0, 250, (length,), generator=_random).tolist(), END]
    for length in torch.randint(0, 11, (len(PROMPTS) * GROUP,), generator=_random).tolist()
]
"""Ragged. Of two processes the first has rows 0 to 5, so that the group of rows 4 to 7 spans both."""

REWARDS = [1.0, 0.0, 0.5, 2.0, 0.0, 3.0, 1.0, 0.25, 1.0, 1.0, 1.0, 1.0]
"""The last group is flat: 4 of the second process's 6 rows, so the fast one of its 2 micro-batches has no others."""

CASES = [(fast, lora) for fast in (True, False) for lora in (True, False)]


class Given(FastTrainer):
    """Samples what is given, and keeps what came of it."""

    def _generate_single_turn(self, prompt_ids: list[list[int]], *_: Any) -> Any:
        first = rank() * len(prompt_ids)
        return COMPLETIONS[first : first + len(prompt_ids)], None

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        output = super()._generate_and_score_completions(inputs)
        self.rewards = self._rewards_per_func
        self.advantages = [one for own in gather(output["advantages"].tolist()) for one in own]
        return output


class Gradients(TrainerCallback):
    """The gradients of the step, averaged over the processes."""

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        self.found = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.requires_grad}


def reward(completion_ids: list[list[int]], **_: Any) -> list[float]:
    return [REWARDS[COMPLETIONS.index(ids)] for ids in completion_ids]


def step(folder: Path, fast: bool, lora: bool) -> dict[str, Any]:
    accumulation = len(COMPLETIONS) // MICRO_BATCH // count()
    gradients = Gradients()
    torch.manual_seed(0)
    trainer = Given(
        model=AutoModelForCausalLM.from_pretrained(folder),
        args=GRPOConfig(
            output_dir=str(folder / "out"), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[],
            per_device_train_batch_size=MICRO_BATCH, gradient_accumulation_steps=accumulation, num_generations=GROUP,
            max_completion_length=12, max_steps=1, max_grad_norm=0.0, save_strategy="no", disable_tqdm=True,
        ),
        reward_funcs=[reward],
        train_dataset=Dataset.from_dict({"prompt": PROMPTS}),
        processing_class=AutoTokenizer.from_pretrained(folder, padding_side="left"),
        peft_config=LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM") if lora else None,
        callbacks=[gradients],
        fast=fast,
    )  # fmt: skip
    trainer.shuffle_dataset = False
    if lora:  # PEFT starts with B at 0, where A has no gradient
        generator = torch.Generator().manual_seed(1)
        for name, weight in trainer.model.named_parameters():
            if "lora_" in name:
                weight.data.normal_(0, 0.1, generator=generator)
    without = 0

    def zero(model: Any, inner: Any = trainer._zero) -> Any:
        nonlocal without
        without += 1
        return inner(model)

    trainer._zero = zero
    trainer.train()
    return {
        "rewards": trainer.rewards.flatten().tolist(),
        "advantages": trainer.advantages,
        "gradients": gradients.found,
        "micro-batches without work": gather(without),
    }


if __name__ == "__main__":
    found = [step(Path(sys.argv[1]), *case) for case in CASES]
    if is_main():
        torch.save(found, sys.argv[2])
    leave()  # as a run does
    sys.stdout.flush()
    os._exit(0)  # a thread of the group may still abort the interpreter's end, which is not what is tested
