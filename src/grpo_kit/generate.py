"""Sampling completions of data rows outside of the trainer, with the sampling parameters of training."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from grpo_kit.chat import Chat
from grpo_kit.device import Device
from grpo_kit.model import autocast

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


def sample(
    model: Any,
    chat: Chat,
    device: Device,
    rows: list[dict[str, Any]],
    config: "GenerationConfig",
    *,
    samples: int,
    seed: int,
    sequences_at_once: int,
    fast: bool = True,
    go_on: Callable[[], bool] = lambda: True,
) -> Iterator[Sampled]:
    """Yield `samples` completions of every row, short prompts first; stops early when `go_on()` turns false.

    The random stream is its own, started from `seed`: the global one is as before afterwards.
    """
    import torch

    from grpo_kit.prefill import shared_prefill

    prompts = [chat.encode(row["prompt"]) for row in rows]
    order = sorted(range(len(rows)), key=lambda index: len(prompts[index]))
    at_once = max(sequences_at_once // samples, 1)
    was_training = model.training
    model.eval()
    generator_state = _random_state()
    torch.manual_seed(seed)
    try:
        for start in range(0, len(order), at_once):
            if not go_on():
                return
            chosen = order[start : start + at_once]
            padded = chat.tokenizer.pad(
                {"input_ids": [prompts[i] for i in chosen]}, padding_side="left", return_tensors="pt"
            )
            batch = {name: tensor.to(model.device) for name, tensor in padded.items()}  # (P, T)
            with torch.no_grad(), autocast(device), shared_prefill(model) if fast else nullcontext():
                output = model.generate(**batch, generation_config=config, num_return_sequences=samples)
            completions = output[:, batch["input_ids"].shape[1] :].tolist()  # P * samples rows
            for position, index in enumerate(chosen):
                ids = [_cut(c, chat.end_ids) for c in completions[position * samples : (position + 1) * samples]]
                yield Sampled(index, ids, [chat.is_truncated(c) for c in ids])
    finally:
        _restore_random_state(generator_state)
        model.train(was_training)


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
