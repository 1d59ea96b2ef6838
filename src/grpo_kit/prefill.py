"""Sampling with less work: a prompt computed once for all of its completions, and nothing for those that have ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from grpo_kit.decode import can_decode, decode_unfinished
from grpo_kit.logps import causal_model, distinct_prompts, why_not_shared


@contextmanager
def shared_prefill(model: Any) -> Iterator[None]:
    """While this lasts `model.generate` runs each distinct prompt of its batch through the model once, and drops the
    rows that have ended.

    The same tokens are sampled from the same random stream: the keys and values of a prompt are those that each of
    its rows would have computed. Where they cannot be shared, nothing is changed.
    """
    model = causal_model(model)
    if why_not_shared(model.config):
        yield
        return
    generate = model.generate

    def shared(
        input_ids: Tensor, attention_mask: Tensor, num_return_sequences: int = 1, **given: Any
    ) -> Tensor:  # both (B, P), padded on the left
        input_ids = input_ids.repeat_interleave(num_return_sequences, dim=0)
        attention_mask = attention_mask.repeat_interleave(num_return_sequences, dim=0)
        cache = _prefilled(model, input_ids, attention_mask)
        if cache is not None:
            given["cache"] = cache
        if can_decode(given.get("generation_config")):
            given["custom_generate"] = decode_unfinished
        return generate(input_ids=input_ids, attention_mask=attention_mask, **given)

    model.generate = shared
    try:
        yield
    finally:
        del model.generate


@torch.no_grad()
def _prefilled(model: Any, input_ids: Tensor, attention_mask: Tensor) -> Any:
    """The cache of all prompts without their last token, from which `generate` goes on; None where none is shared."""
    first, prompt_of = distinct_prompts(input_ids, attention_mask)
    if len(first) == len(prompt_of) or input_ids.size(1) < 2:
        return None
    ids, mask = input_ids[first, :-1], attention_mask[first, :-1]
    # as `generate` counts: from the first token that is no padding; a bare forward would count from the left edge
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    cache = model.base_model(input_ids=ids, attention_mask=mask, position_ids=positions, use_cache=True).cache
    cache.batch_select_indices(prompt_of)
    return cache
