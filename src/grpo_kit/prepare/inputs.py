"""Recipe -> `Inputs`: rewards, rows, tokenizer and trainer arguments, all checked before any weights are opened.

It goes from cheap to dear, so that a typo is reported in a second and not behind the import of torch.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_kit.data.chat import Chat, end_of_turn_warning, load_chat
from grpo_kit.data.data import Data, load_data
from grpo_kit.data.filters import drop_overlong, keep_pass_rates, unseen, unusable_note
from grpo_kit.data.sources import find_file, is_local
from grpo_kit.device import Device, find_device
from grpo_kit.errors import RecipeError
from grpo_kit.hub import use_cache_if_unreachable
from grpo_kit.model.generate import check_own_sampler
from grpo_kit.model.model import ModelSize, find_model, lora_config, measure_model
from grpo_kit.prepare.gold_scan import GoldScan, scan_gold
from grpo_kit.prepare.trl_args import Settings, build_args, check_settings, check_words
from grpo_kit.prepare.vllm_rules import check_lengths
from grpo_kit.processes import spread_by
from grpo_kit.recipe.recipe import DatasetSection, Recipe
from grpo_kit.rewards.checks import check_rewards
from grpo_kit.rewards.rewards import Reward, load_rewards

if TYPE_CHECKING:
    from peft import LoraConfig
    from trl import GRPOConfig


@dataclass(frozen=True)
class Inputs:
    """What a recipe's model is asked and judged with, be it trained or only measured.

    `prompt_tokens` are the lengths of the training prompts that were counted.
    """

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
    size: ModelSize
    prompt_tokens: list[int]
    notes: tuple[str, ...]

    @property
    def goal(self) -> Reward:
        """The reward whose full marks mean that a completion is right."""
        return goal_of(self.recipe, self.rewards)


def load_inputs(recipe: Recipe, run_folder: Path) -> Inputs:
    """Load and check all but the model's weights. Raises RecipeError for the first thing found wrong."""
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
    check_own_sampler(recipe, model_path)
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
    data = keep_pass_rates(recipe, data, notes)
    data, lengths = drop_overlong(recipe, chat, data, limit, size.max_positions, notes)
    check_lengths(recipe, args, chat, data.rows, size.max_positions)
    if eval_data is not None:
        if recipe.evaluation.max_completion_length is not None:
            limit = ("evaluation.max_completion_length", recipe.evaluation.max_completion_length)
        eval_data, _ = drop_overlong(recipe, chat, eval_data, limit, size.max_positions, notes)
        eval_data = unseen(recipe, data, eval_data, notes)
    return Inputs(
        recipe, rewards, data, eval_data, gold, settings, args, device, model_path, lora, chat, size, lengths,
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
