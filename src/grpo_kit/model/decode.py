"""Sampling with less work: a prompt computed once for all of its completions, and nothing for those that have ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, GenerationConfig
from transformers.generation.configuration_utils import GenerationMode

from grpo_kit.model.logps import causal_model, distinct_prompts, why_not_shared

PLAIN = (GenerationMode.SAMPLE, GenerationMode.GREEDY_SEARCH)


@contextmanager
def less_work(model: Any) -> Iterator[None]:
    """While this lasts `model.generate` goes through `decode_unfinished`; where it cannot, nothing is changed."""
    model = causal_model(model)
    if why_not_shared(model.config):
        yield
        return
    generate = model.generate

    def shorter(**given: Any) -> Tensor:
        own = {"custom_generate": decode_unfinished} if can_decode(given.get("generation_config")) else {}
        return generate(**given, **own)

    model.generate = shorter
    try:
        yield
    finally:
        del model.generate


def can_decode(config: GenerationConfig | None) -> bool:
    """Whether rows may leave the batch: plain sampling with a cache that rows can be taken out of."""
    if config is None:
        return False
    plain = config.get_generation_mode() in PLAIN and not config.return_dict_in_generate
    without = config.guidance_scale is None and config.pad_token_id is not None
    return plain and without and config.cache_implementation in (None, "dynamic")


def decode_unfinished(
    model: Any,
    input_ids: Tensor,
    logits_processor: Any,
    stopping_criteria: Any,
    generation_config: GenerationConfig,
    **model_kwargs: Any,
) -> Tensor:
    """Sequences (B, P + C) of B prompts (B, P): what `generate` calls as its `custom_generate`.

    The tokens are those of its own loop, from the same random stream: the keys and values of a prompt are those that
    each of its rows would have computed, and noise is drawn for all B rows, ended or not. A model with NaN in its
    probabilities raises RuntimeError, as `torch.multinomial` does.
    """
    rows, length = input_ids.shape
    needs_all = any(has_rows(value, rows) for processor in logits_processor for value in vars(processor).values())
    if needs_all or not isinstance(model_kwargs.get("cache"), DynamicCache):
        return model._sample(input_ids, logits_processor, stopping_criteria, generation_config, **model_kwargs)
    sequences = input_ids.new_full((rows, stopping_criteria.max_length), generation_config.pad_token_id)
    sequences[:, :length] = input_ids
    live = torch.arange(rows, device=input_ids.device)  # (L,), the rows that go on
    outputs = prefill(model, input_ids, generation_config, model_kwargs)
    with model._optimize_model_for_decode():
        while True:
            model_kwargs = model._update_model_kwargs_for_generation(outputs, model_kwargs)
            logits = outputs.logits[:, -1].to(copy=True, dtype=torch.float32)
            del outputs  # the logits of a whole prompt may hang on it
            scores = logits_processor(input_ids, logits)  # (L, V)
            tokens = drawn(scores.softmax(-1), live, rows) if generation_config.do_sample else scores.argmax(-1)
            sequences[live, length] = tokens
            length += 1
            input_ids = torch.cat([input_ids, tokens[:, None]], dim=1)
            going = ~stopping_criteria(input_ids, None)
            if not going.any():
                return sequences[:, :length]
            if not going.all():
                live, input_ids = live[going], input_ids[going]
                keep_rows(model_kwargs, going)
            step = model.prepare_inputs_for_generation(input_ids, next_sequence_length=1, **model_kwargs)
            outputs = model(**step, return_dict=True)


def prefill(model: Any, input_ids: Tensor, generation_config: GenerationConfig, model_kwargs: dict[str, Any]) -> Any:
    """Cache and next logits of B prompts, of which each distinct one goes through the model once.

    A cache that already holds the start of each row is gone on from.
    """
    if model_kwargs["cache"].get_seq_length():
        return model._prefill(input_ids, generation_config, model_kwargs)
    mask = model_kwargs.get("attention_mask")
    first, prompt_of = distinct_prompts(input_ids, torch.ones_like(input_ids) if mask is None else mask)
    rows = len(input_ids)
    distinct = {name: value[first] if has_rows(value, rows) else value for name, value in model_kwargs.items()}
    outputs = model._prefill(input_ids[first], generation_config, distinct)
    outputs.cache.batch_select_indices(prompt_of)
    outputs.logits = outputs.logits[prompt_of, -1:]
    return outputs


def drawn(probs: Tensor, live: Tensor, rows: int) -> Tensor:
    """One token of each live row (L,), from their probabilities (L, V): `torch.multinomial` of all `rows`, of which
    only the live ones are looked at. It divides by Exp(1) noise and takes the largest."""
    if not bool(torch.isfinite(probs).all()):
        raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
    noise = torch.empty(rows, probs.size(1), device=probs.device, dtype=probs.dtype).exponential_()
    return (probs / (noise if len(live) == rows else noise[live])).argmax(-1)


def keep_rows(model_kwargs: dict[str, Any], going: Tensor) -> None:
    """Take the rows that have ended (`going` false) out of the cache and of every tensor with one row each."""
    model_kwargs["cache"].batch_select_indices(going.nonzero().squeeze(1))
    for name, value in model_kwargs.items():
        if has_rows(value, len(going)):
            model_kwargs[name] = value[going]


def has_rows(value: Any, rows: int) -> bool:
    """A tensor with one entry for each row; a processor that holds one needs all rows to the end."""
    return isinstance(value, Tensor) and value.dim() > 0 and value.size(0) == rows
