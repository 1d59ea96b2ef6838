"""Recipe -> `Prepared`: everything that can be known about a run before any weights are opened.

`grpo-kit check` is this function and a print of its result; `grpo-kit run` calls it first. It goes from cheap to
dear, so that a typo is reported in a second and not behind the import of torch.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_kit.chat import Chat, end_of_turn_warning, load_chat
from grpo_kit.data import Data, load_data
from grpo_kit.device import Device, a_card, find_device
from grpo_kit.errors import RecipeError
from grpo_kit.gold_scan import GoldScan, scan_gold
from grpo_kit.hub import use_cache_if_unreachable
from grpo_kit.memory import Memory, Run, advice, largest_fitting, micro_batch, micro_batches, near_limit, predict
from grpo_kit.model import find_model, lora_config, measure_model
from grpo_kit.processes import spread_by
from grpo_kit.recipe import DatasetSection, Recipe
from grpo_kit.reward_checks import check_rewards
from grpo_kit.rewards import Reward, load_rewards
from grpo_kit.row_filters import drop_overlong, unseen, unusable_note
from grpo_kit.sources import find_file, is_local
from grpo_kit.trl_args import Settings, build_args, check_settings, check_words
from grpo_kit.vllm_rules import check_lengths, with_vllm

if TYPE_CHECKING:
    from peft import LoraConfig
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
class Prepared:
    """A checked recipe with all that `train` needs: data, rewards, trainer arguments, plan."""

    recipe: Recipe
    rewards: list[Reward]
    data: Data
    eval_data: Data | None
    gold: GoldScan | None
    settings: Settings
    args: "GRPOConfig"
    device: Device
    model_path: str
    lora: "LoraConfig | None"
    chat: Chat
    plan: Plan
    notes: tuple[str, ...]

    @property
    def goal(self) -> Reward:
        """The reward whose full marks mean that a completion is right."""
        return goal_of(self.recipe, self.rewards)


def prepare(recipe: Recipe, run_folder: Path = Path("runs"), card_gb: float | None = None) -> Prepared:
    """Check a recipe as far as that goes without weights. Raises RecipeError for the first thing found wrong.

    With `card_gb` the memory is that of a card of this size, whatever there is here.
    """
    rewards = load_rewards(recipe)
    model_path = find_model(recipe)
    check_words(recipe)
    offline = _needs_hub(recipe, model_path) and not use_cache_if_unreachable()
    first = all(is_local(recipe, section) for section in _sections(recipe).values())
    if first:  # local files answer in a second; a hub and TRL's configuration take longer
        loaded = _load_all(recipe, rewards)
    settings = check_settings(recipe)
    if not first:
        loaded = _load_all(recipe, rewards)
    data, eval_data, gold, gold_notes = loaded

    device = find_device()
    args = build_args(recipe, settings, device, run_folder)
    _check_processes(args)
    lora = lora_config(recipe)
    chat = load_chat(recipe, model_path)
    init_kwargs = settings.from_recipe.get("model_init_kwargs") or {}
    size = measure_model(recipe, model_path, lora, init_kwargs)
    if len(chat.tokenizer) > size.vocabulary:
        raise recipe.error(
            "model", f"its tokenizer has {len(chat.tokenizer)} tokens, but the model knows only {size.vocabulary}"
        )
    completion = args.max_completion_length or 0  # never None: checked with the settings
    _check_length_options(recipe, rewards, completion)

    notes: list[str | None] = ["the hub did not answer, so what is cached is used"] if offline else []
    notes += [
        *settings.warnings,
        *unusable_note(data),
        *unusable_note(eval_data),
        *gold_notes,
        end_of_turn_warning(chat),
    ]
    limit = ("grpo.max_completion_length", completion)
    data, lengths = drop_overlong(recipe, chat, data, limit, size.max_positions, notes)
    check_lengths(recipe, args, chat, data.rows, size.max_positions)
    if eval_data is not None:
        if recipe.evaluation.max_completion_length is not None:
            limit = ("evaluation.max_completion_length", recipe.evaluation.max_completion_length)
        eval_data, _ = drop_overlong(recipe, chat, eval_data, limit, size.max_positions, notes)
        eval_data = unseen(recipe, data, eval_data, notes)
    notes.append(_long_warmup(args))
    card = device if card_gb is None else a_card(card_gb)
    run = Run(model_path, lora, init_kwargs, args, card, size, recipe.fast, max(lengths))
    plan = _plan(recipe, args, data, lengths, run, asked=card_gb is not None)
    notes.append(near_limit(plan.memory, card))
    return Prepared(
        recipe, rewards, data, eval_data, gold, settings, args, device, model_path, lora, chat, plan,
        tuple(note for note in notes if note),
    )  # fmt: skip


def goal_of(recipe: Recipe, rewards: list[Reward]) -> Reward:
    return next(reward for reward in rewards if reward.label == recipe.goal_label)


def _sections(recipe: Recipe) -> dict[str, DatasetSection]:
    sections = {"dataset": recipe.dataset}
    return sections if recipe.eval_dataset is None else {**sections, "eval_dataset": recipe.eval_dataset}


def _needs_hub(recipe: Recipe, model_path: str) -> bool:
    here = recipe.source.parent
    elsewhere = (s for s in _sections(recipe).values() if not is_local(recipe, s) and find_file(s.path, here) is None)
    return not Path(model_path).is_dir() or any(elsewhere)


def _load_all(recipe: Recipe, rewards: list[Reward]) -> tuple[Data, Data | None, GoldScan | None, list[str | None]]:
    """Training and held-out rows that the rewards can be computed from and earned on, and what was found of them."""
    if recipe.eval_dataset == recipe.dataset:
        raise recipe.error("eval_dataset", "is the training data itself; name another split or file")
    sections = _sections(recipe)
    loaded = {key: load_data(recipe, section, key) for key, section in sections.items()}
    for data in loaded.values():
        check_rewards(recipe, rewards, data.columns, data.rows[0] if data.rows else None)
    goal = goal_of(recipe, rewards)
    scanned = {key: scan_gold(recipe, rewards, goal, data, sections[key], key) for key, data in loaded.items()}
    gold = scanned["dataset"][1]
    notes = [found.left_out for _, found in scanned.values() if found]
    held_out = scanned["eval_dataset"][0] if "eval_dataset" in scanned else None
    return scanned["dataset"][0], held_out, gold, [*notes, gold.form_pays if gold else None]


def _check_processes(args: "GRPOConfig") -> None:
    """One process a card, each with whole weights."""
    if args.n_gpu > 1:
        raise RecipeError(
            f"{args.n_gpu} cards are visible, but one process uses one: set CUDA_VISIBLE_DEVICES=0, or start one for "
            f"each: accelerate launch --multi_gpu --num_processes {args.n_gpu} -m grpo_kit run ..."
        )
    if spread_by():
        raise RecipeError(
            f"{spread_by()} spreads the weights over the processes, but held-out sampling and saving need whole ones "
            "in each: use DeepSpeed's zero_stage 2, or accelerate launch --multi_gpu"
        )


def _check_length_options(recipe: Recipe, rewards: list[Reward], limit: int) -> None:
    """A length budget above what the sampler may write would never be felt."""
    for reward in rewards:
        most = reward.parameter("max_tokens")
        if reward.path.stem == "length" and most is not None and most > limit:
            raise recipe.error(
                f"rewards.{reward.label}",
                f"max_tokens is {most}, above grpo.max_completion_length {limit}, so no completion could reach it; "
                f"write max_tokens: {limit} and a smaller target_tokens",
            )


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
    if rows < prompts:
        raise recipe.error(
            "dataset",
            f"has {rows} row{'' if rows == 1 else 's'}, but one generation batch needs {prompts} "
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
    _check_disk(plan)
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


def _check_disk(plan: Plan) -> None:
    free_gb = shutil.disk_usage(Path.cwd()).free / 1e9
    if plan.disk_gb > free_gb:
        raise RecipeError(
            f"{Path.cwd()}: {free_gb * 1000:.0f} MB free, but the run's checkpoints need {plan.disk_gb * 1000:.0f} MB; "
            "free some, or lower grpo.save_total_limit"
        )
