"""Sampling completions of data rows outside of the trainer, with the sampling parameters of training."""

import copy
import json
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_kit.data.chat import Chat
from grpo_kit.device import Device
from grpo_kit.errors import shorten
from grpo_kit.model.model import autocast
from grpo_kit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from transformers import GenerationConfig
    from trl import GRPOConfig


@dataclass(frozen=True)
class Sampled:
    """Completions of one row: tokens up to and including the one that ended them, and whether any did."""

    row: int
    completion_ids: list[list[int]]
    truncated: list[bool]


def sampling_config(args: "GRPOConfig", chat: Chat, max_tokens: int) -> "GenerationConfig":
    """The sampler of training as a GenerationConfig, up to `max_tokens`. A test holds it to the trainer's own."""
    from transformers import GenerationConfig

    generation_kwargs: Any = args.generation_kwargs or {}
    values: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "do_sample": True,
        "pad_token_id": chat.tokenizer.pad_token_id,
        "bos_token_id": chat.tokenizer.bos_token_id,
        "eos_token_id": sorted(chat.end_ids),
        "temperature": args.temperature,
        "top_p": args.top_p,
        "top_k": args.top_k,
        "min_p": args.min_p,
        "repetition_penalty": args.repetition_penalty,
        "cache_implementation": args.cache_implementation,
        "disable_compile": True,
    }
    return GenerationConfig(**{**values, **generation_kwargs})


NO_SAMPLER = re.compile(
    r"_.*|max_length|max_new_tokens|use_cache|output_.*|return_.*|.*token_ids?|do_sample|temperature|top_p|top_k|min_p"
    r"|repetition_penalty|renormalize_logits|cache_implementation|cache_config|disable_compile|compile_config"
    r"|transformers_version"
)
"""What a `generation_config.json` may set: `sampling_config` sets it too, or it does not decide what is sampled."""


def check_own_sampler(recipe: Recipe, model_path: str) -> None:
    """The model's own settings are filled in where the recipe has none: completions would be drawn by another sampler
    than the one they are scored with. Raises RecipeError that names them."""
    from transformers import GenerationConfig
    from transformers.utils import cached_file

    try:
        file = cached_file(model_path, "generation_config.json", _raise_exceptions_for_missing_entries=False)
        own = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    except (OSError, ValueError):  # the model comes without
        return
    known, neutral = GenerationConfig().to_dict(), GenerationConfig._get_default_generation_params()
    for key, value in own.items() if isinstance(own, dict) else ():
        decides = key in known and not NO_SAMPLER.fullmatch(key)  # an unknown key is heeded by nobody
        if decides and value and value != neutral.get(key):
            raise recipe.error(
                "model",
                f"its generation_config.json sets {key[:60]}: {shorten(value)}, by which completions would be "
                "sampled but not scored; remove it there (in a folder of your own)",
            )


def most_likely(config: "GenerationConfig") -> "GenerationConfig":
    """The same, but the most likely token each time."""
    config = copy.deepcopy(config)
    config.do_sample, config.temperature, config.top_p, config.top_k, config.min_p = False, None, None, None, None
    return config


def prompt_batches(chat: Chat, rows: Sequence[dict[str, Any]], size: int) -> list[list[int]]:
    """The indices of the rows in batches of at most `size`, short prompts first."""
    lengths = [len(chat.encode(row["prompt"])) for row in rows]
    order = sorted(range(len(rows)), key=lambda index: lengths[index])
    return [order[start : start + size] for start in range(0, len(order), size)]


def batch_seed(seed: int, number: int) -> int:
    """Of a batch of prompts by its number, so that whoever samples it samples the same."""
    return seed + 15_485_863 * number


def sample_batch(
    model: Any,
    chat: Chat,
    device: Device,
    rows: Sequence[dict[str, Any]],
    batch: list[int],
    config: "GenerationConfig",
    *,
    samples: int,
    seed: int,
    fast: bool = True,
) -> list[Sampled]:
    """`samples` completions of each row of a batch of indices, at once.

    The random stream is its own, started from `seed`: the global one is as before afterwards.
    """
    import torch

    from grpo_kit.model.decode import less_work

    ids = [chat.encode(rows[index]["prompt"]) for index in batch]
    padded = chat.tokenizer.pad({"input_ids": ids}, padding_side="left", return_tensors="pt")
    prompts = {name: tensor.to(model.device) for name, tensor in padded.items()}  # (P, T)
    was_training = model.training
    model.eval()
    generator_state = _random_state()
    torch.manual_seed(seed)
    try:
        with torch.no_grad(), autocast(device), less_work(model) if fast else nullcontext():
            output = model.generate(**prompts, generation_config=config, num_return_sequences=samples)
    finally:
        _restore_random_state(generator_state)
        model.train(was_training)
    completions = [_cut(ids, chat.end_ids) for ids in output[:, prompts["input_ids"].shape[1] :].tolist()]
    return [
        Sampled(index, own, [chat.is_truncated(ids) for ids in own])
        for position, index in enumerate(batch)
        for own in [completions[position * samples : (position + 1) * samples]]
    ]


def _cut(completion_ids: list[int], end_ids: frozenset[int]) -> list[int]:
    """Up to and including the first token that ends a completion."""
    for position, token in enumerate(completion_ids):
        if token in end_ids:
            return completion_ids[: position + 1]
    return completion_ids


def _random_state() -> tuple[Any, Any]:
    import torch

    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None


def _restore_random_state(state: tuple[Any, Any]) -> None:
    import torch

    torch.set_rng_state(state[0])
    if state[1] is not None:
        torch.cuda.set_rng_state_all(state[1])
