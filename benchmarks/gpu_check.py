r"""Does the kit keep its promises on one CUDA card? Under 5 minutes, no download; exit code 1 where it does not.

    python benchmarks/gpu_check.py [--json FILE]
    python benchmarks/gpu_check.py --device cpu --tiny      # tries the script itself, in about a minute

1. Gradients: those of `fast: true` beside those of TRL's own update on the same ragged rollout, half of it flat. In
   float32 they differ by no more than 1e-5 of the largest. In bfloat16 both are off from float32 by rounding, and the
   kit must be off by no more than 1.5 times what TRL is.
2. The shapes of recipes/math.yaml (Qwen2.5-0.5B's dimensions with random weights, prompts of 256 tokens, every
   completion at full length) fit into 24 GB, which is all that the card gives to the process.
3. Step time, tokens/s and peak memory (taken from the card) of both, the first step left out, and the memory that the
   recipe's plan names, CUDA's context included.
"""

import argparse
import json
import os
import tempfile
import warnings
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from models import PAD, QWEN_HALF_B, SMALL, Shape, question, save_random_model
from pairs import Ended, Measured, machine, measure_apart

if TYPE_CHECKING:
    from torch import Tensor

CARD_GB = 24.0
"""1e9 bytes for tensors: 24 GiB are 25.8, of which CUDA itself and a screen take the rest."""

FLOAT32_BOUND = 1e-5
BFLOAT16_BOUND = 1.5
PROMPTS, GROUP, ACCUMULATION = (40, 64, 17, 33), 4, 4
LENGTH = 24


def rollout(shape: Shape, device: str) -> dict[str, "Tensor"]:
    """16 rows of 4 prompts, ragged, as `_generate_and_score_completions` returns them; 2 of the 4 groups are flat."""
    import torch

    draw = torch.Generator().manual_seed(0)
    rows = len(PROMPTS) * GROUP
    lengths = torch.randint(1, LENGTH + 1, (rows, 1), generator=draw)
    prompt_lengths = torch.tensor(PROMPTS).repeat_interleave(GROUP).unsqueeze(1)
    prompt_mask = (torch.arange(max(PROMPTS)) >= max(PROMPTS) - prompt_lengths).long()  # (B, P), padded on the left
    completion_mask = (torch.arange(LENGTH) < lengths).long()  # (B, C), padded on the right
    prompts = torch.randint(0, PAD, (len(PROMPTS), max(PROMPTS)), generator=draw).repeat_interleave(GROUP, 0)
    completions = torch.randint(0, shape.vocabulary, completion_mask.shape, generator=draw)
    advantages = torch.randn(rows, generator=draw)
    advantages[: rows // 2] = 0.0
    batch = {
        "prompt_ids": prompts.masked_fill(prompt_mask == 0, PAD),
        "prompt_mask": prompt_mask,
        "completion_ids": completions.masked_fill(completion_mask == 0, PAD),
        "completion_mask": completion_mask,
        "advantages": advantages,
        "num_items_in_batch": completion_mask.sum(),
    }
    return {key: value.to(device) for key, value in batch.items()}


def gradients(model_folder: Path, shape: Shape, fast: bool, bf16: bool, cpu: bool) -> list["Tensor"]:
    """Of one optimizer step of full fine-tuning, on the CPU in float32, through the trainer's own methods."""
    import torch
    from datasets import Dataset
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from trl import GRPOConfig

    from grpo_kit.trainer.fast_trainer import FastTrainer

    args = GRPOConfig(
        output_dir=str(model_folder / "out"),
        use_cpu=cpu,
        bf16=bf16,
        gradient_checkpointing=False,
        per_device_train_batch_size=len(PROMPTS) * GROUP // ACCUMULATION,
        gradient_accumulation_steps=ACCUMULATION,
        num_generations=GROUP,
        max_completion_length=LENGTH,
        report_to=[],
    )
    trainer: Any = FastTrainer(
        model=AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32),
        args=args,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        train_dataset=Dataset.from_dict({"prompt": ["a"] * 8}),
        processing_class=AutoTokenizer.from_pretrained(model_folder, padding_side="left"),
        fast=fast,
    )
    trainer.current_gradient_accumulation_steps = ACCUMULATION
    trainer.model.train()
    batch = rollout(shape, str(trainer.accelerator.device))
    trainer._generate_and_score_completions = lambda inputs: batch
    torch.manual_seed(0)  # both shuffle the rows in the same way
    for step in range(ACCUMULATION):
        trainer._step = step
        inputs = trainer._prepare_inputs([{}])
        with trainer.accelerator.autocast():
            loss = trainer.compute_loss(trainer.model, inputs)
        loss.backward()
    return [weight.grad.float().cpu() for weight in trainer.model.parameters() if weight.requires_grad]


def check_gradients(folder: Path, tiny: bool, cpu: bool) -> dict[str, float]:
    """What both are off by: of the largest gradient in float32; of the gradients' norm in bfloat16."""
    shape = SMALL if tiny else replace(QWEN_HALF_B, layers=4)
    model = save_random_model(folder / "four-layers", shape)
    grads = {(fast, bf16): gradients(model, shape, fast, bf16, cpu) for fast in (True, False) for bf16 in (False, True)}
    exact = grads[False, False]
    largest = max(float(grad.abs().max()) for grad in exact)
    norm = sum(float(grad.square().sum()) for grad in exact) ** 0.5

    def off(grads: list["Tensor"]) -> float:
        return sum(float((a - b).square().sum()) for a, b in zip(grads, exact, strict=True)) ** 0.5 / norm

    return {
        "float32": max(float((a - b).abs().max()) for a, b in zip(grads[True, False], exact, strict=True)) / largest,
        "bfloat16_kit": off(grads[True, True]),
        "bfloat16_bare": off(grads[False, True]),
    }


def math_recipe(folder: Path, tiny: bool) -> Path:
    """recipes/math.yaml with a random model and made-up questions; `tiny` makes model, batch and lengths small."""
    prompt = 32 if tiny else 256
    save_random_model(folder / "model", SMALL if tiny else QWEN_HALF_B)
    lines = [json.dumps({"question": question(row, prompt)}) for row in range(64)]
    (folder / "rows.jsonl").write_text("\n".join(lines) + "\n")
    small = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "max_completion_length": 16}
    tree: dict[str, Any] = {
        "model": str(folder / "model"),
        "dataset": {"path": str(folder / "rows.jsonl"), "prompt": "{question}"},
        "rewards": {"planned": {"weight": 1.0, "file": str(Path(__file__).parent / "rewards" / "planned.py")}},
        "grpo": small if tiny else {},  # math.yaml has the kit's own settings
    }
    recipe = folder / "math.yaml"
    recipe.write_text(json.dumps(tree))
    return recipe


def measured(recipe: Path, steps: int) -> Measured | None:
    """Both within the memory of a 24 GB card; None where the kit does not fit. Where only TRL does not, it is said."""
    try:
        kit = measure_apart(recipe, [], steps, ["kit"], CARD_GB)
    except Ended as ended:
        print(f"memory     NO FIT for the kit in {CARD_GB:.0f} GB: {ended}")
        return None
    try:
        bare = measure_apart(recipe, [], steps, ["bare"], CARD_GB)
    except Ended as ended:
        print(f"memory     no fit for bare TRL in {CARD_GB:.0f} GB, so the kit is alone: {ended}")
        return kit
    return Measured(kit.kit, bare.bare, kit.memory | bare.memory, kit.built | bare.built)


def report(found: Measured) -> None:
    for name, steps in (("kit", found.kit), ("bare", found.bare)):
        if not steps:
            continue
        step_s = median(step["wall_s"] for step in steps)
        speed = median(step["tokens_per_s"] for step in steps)
        peak, plan = found.memory[name]["peak_gb"], found.built[name]["predicted_gb"]
        print(f"{name:<10} {step_s:.2f} s a step, {speed:.0f} tokens/s, peak {peak:.1f} GB (plan: {plan:.1f})")
    if found.kit and found.bare:
        for part in ("step", "generation", "update"):
            print(f"{part:<10} bare / kit {median(found.ratios(f'kit/seconds/{part}')):.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--tiny", action="store_true", help="a small model and short completions")
    parser.add_argument("--steps", type=int, default=1, help="steps of each after one of warm-up (default 1)")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    given = parser.parse_args()
    if given.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch is imported, here and in the children
    import torch

    warnings.filterwarnings("ignore", category=FutureWarning)  # of the libraries, about each other
    if given.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("no CUDA device found; --device cpu --tiny tries the script itself")
    facts = machine() | {"device": torch.cuda.get_device_name(0) if given.device == "cuda" else "CPU"}
    print("\n".join(f"{key:<16} {value}" for key, value in facts.items()))
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        off = check_gradients(folder, given.tiny, given.device == "cpu")
        good = off["float32"] <= FLOAT32_BOUND and off["bfloat16_kit"] <= BFLOAT16_BOUND * off["bfloat16_bare"]
        print(f"gradients  float32: differ by {off['float32']:.1e} of the largest (at most {FLOAT32_BOUND:.0e})")
        print(f"gradients  bfloat16: off from float32 by {off['bfloat16_kit']:.2e}, TRL by {off['bfloat16_bare']:.2e}")
        print(f"gradients  {'the same' if good else 'NOT THE SAME'}", flush=True)
        torch.cuda.empty_cache()
        found = measured(math_recipe(folder, given.tiny), given.steps)
    if found is not None:
        report(found)
    print(f"verdict    {'all good' if good and found else 'FAILED'}")
    if given.json:
        records = {**facts, "gradients": off, "math": asdict(found) if found else None}
        given.json.write_text(json.dumps(records, indent=1) + "\n")
    raise SystemExit(0 if good and found else 1)


if __name__ == "__main__":
    main()
