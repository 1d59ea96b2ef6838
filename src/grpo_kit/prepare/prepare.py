"""Recipe -> `Prepared`: everything that can be known about a run before any weights are opened.

`grpo-kit check` is this function and a print of its result; `grpo-kit run` calls it first.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_kit.data.data import Data
from grpo_kit.device import a_card
from grpo_kit.memory.memory import (
    Memory,
    Run,
    advice,
    largest_fitting,
    micro_batch,
    micro_batches,
    near_limit,
    predict,
    run_of,
)
from grpo_kit.prepare.inputs import Inputs, load_inputs
from grpo_kit.prepare.vllm_rules import with_vllm
from grpo_kit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from trl import GRPOConfig


@dataclass(frozen=True)
class Plan:
    """What the run will do, step by step; a *step* is an optimizer step.

    `memory_gb` is what there is; `largest` the largest micro-batch that fits a card that was asked about.
    """

    steps: int
    epochs: float
    steps_per_epoch: int
    num_generations: int
    max_completion_length: int
    completions_per_rollout: int
    prompts_per_step: float
    completions_per_step: int
    rows: int
    unused_rows_per_epoch: int
    prompt_tokens_median: int
    prompt_tokens_max: int
    memory: Memory
    memory_gb: float
    largest: str | None
    disk_gb: float


@dataclass(frozen=True)
class Prepared(Inputs):
    """A checked recipe with all that `train` needs: its inputs and the plan."""

    plan: Plan


def prepare(recipe: Recipe, run_folder: Path = Path("runs"), card_gb: float | None = None) -> Prepared:
    """Check a recipe as far as that goes without weights. Raises RecipeError for the first thing found wrong.

    With `card_gb` the memory is that of a card of this size, whatever there is here.
    """
    inputs = load_inputs(recipe, run_folder)
    card = inputs.device if card_gb is None else a_card(card_gb)
    run = run_of(inputs, card)
    plan = _plan(recipe, inputs.args, inputs.data, inputs.prompt_tokens, run, asked=card_gb is not None)
    more = (_long_warmup(inputs.args), near_limit(plan.memory, card))
    notes = (*inputs.notes, *(note for note in more if note))
    return Prepared(**{**vars(inputs), "notes": notes}, plan=plan)


def _long_warmup(args: "GRPOConfig") -> str | None:
    if 0 < args.max_steps < 2 * args.warmup_steps:
        return (
            f"the learning rate rises over the first {args.warmup_steps:g} of {args.max_steps} steps, most of the run; "
            "lower grpo.warmup_steps"
        )
    return None


def _plan(recipe: Recipe, args: "GRPOConfig", data: Data, lengths: list[int], run: Run, asked: bool) -> Plan:
    """The arithmetic of TRL's sampler: whole generation batches only, each used `num_iterations` times."""
    generation, group = args.generation_batch_size or 0, args.num_generations or 1
    completion = args.max_completion_length or 0
    prompts = generation // group
    rows = len(data.rows)
    chosen = " of the wanted pass rates in its pass_rate_file" if recipe.dataset.pass_rate else ""
    if rows < prompts:
        raise recipe.error(
            "dataset",
            f"has {rows} row{'' if rows == 1 else 's'}{chosen}, but one generation batch needs {prompts} "
            f"({generation} completions in groups of {group}); give more rows, or lower "
            "grpo.gradient_accumulation_steps or grpo.per_device_train_batch_size",
        )
    batches = rows // prompts * (args.steps_per_generation or 1) * args.num_iterations
    per_epoch = max(-(-batches // args.gradient_accumulation_steps), 1)
    steps = args.max_steps if args.max_steps > 0 else int(-(-args.num_train_epochs * per_epoch // 1))
    completions = args.per_device_train_batch_size * args.world_size * args.gradient_accumulation_steps

    def memory_at(micro_batch_size: int) -> Memory:
        return with_vllm(predict(run, micro_batch_size), args, run.device)

    sharers = args.world_size if run.device.kind == "cpu" else 1
    memory = memory_at(args.per_device_train_batch_size)
    _check_memory(recipe, run, memory, memory_at, sharers)
    largest = largest_fitting(memory_at, micro_batches(run.completions), run.device.memory_gb) if asked else None
    copies = (args.save_total_limit or _saves(args, steps, per_epoch)) + 1
    plan = Plan(
        steps=steps,
        epochs=steps / per_epoch,
        steps_per_epoch=per_epoch,
        num_generations=group,
        max_completion_length=completion,
        completions_per_rollout=generation,
        prompts_per_step=completions / group,
        completions_per_step=completions,
        rows=rows,
        unused_rows_per_epoch=rows % prompts,
        prompt_tokens_median=sorted(lengths)[len(lengths) // 2],
        prompt_tokens_max=max(lengths),
        memory=memory,
        memory_gb=run.device.memory_gb,
        largest=f"{micro_batch(run, largest[0])}: {largest[1].total:.1f} GB" if largest else None,
        disk_gb=copies * memory.checkpoint + run.size.trainable * 4 / 1e9,
    )
    return plan


def _saves(args: "GRPOConfig", steps: int, per_epoch: int) -> int:
    """How many checkpoints a run of so many steps writes; `save_steps` below 1 is a share of them."""
    by_steps = args.save_steps if args.save_steps >= 1 else max(args.save_steps * steps, 1)
    every = {"no": steps, "epoch": per_epoch}.get(args.save_strategy, by_steps)
    return max(int(steps / every), 1)


def _check_memory(recipe: Recipe, run: Run, memory: Memory, memory_at: Callable[[int], Memory], sharers: int) -> None:
    """Does the device, which so many processes share, hold what is predicted?"""
    limit_gb = run.device.memory_gb / sharers
    if memory.total > limit_gb:
        needs = f"needs {f'{sharers} times ' if sharers > 1 else ''}{memory.describe()}"
        room = f"{run.device.name} has {run.device.memory_gb:.3g} GB; {advice(run, memory_at, limit_gb)}"
        if memory.activations is None:
            raise recipe.error("model", f"{needs}, but {room}")
        rows = run.args.per_device_train_batch_size
        raise recipe.error("grpo.per_device_train_batch_size", f"found {rows}, which {needs}, but {room}")
