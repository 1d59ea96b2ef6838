"""Log-probs of completions, with each distinct prompt computed once and nothing computed for padding.

TRL runs prompt and completion of every row through the model and, on a CPU, projects every position onto the
vocabulary. Here the distinct prompts of a batch go through the backbone once, their keys and values are handed to the
rows that share them (differentiably), and only completion positions reach the head, which stays TRL's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from peft import PeftModel
from torch import Tensor
from transformers.modeling_outputs import BaseModelOutputWithPast

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary embeddings in which only the distance of two positions counts, so that padding on the left can be cut off."""

NORM_AFTER_ROPE = "hunyuan"
"""Models that weigh queries and keys after their rotation, where the position itself counts."""


@dataclass(frozen=True)
class SharedPrompts:
    """R rows as D distinct prompts and R completions, all padding trimmed.

    `prompt_ids`, `prompt_mask`: (D, P), padded on the left; `prompt_of`: (R,), the prompt of each row;
    `completion_ids`, `completion_mask`: (R, C), padded on the right.
    """

    prompt_ids: Tensor
    prompt_mask: Tensor
    prompt_of: Tensor
    completion_ids: Tensor
    completion_mask: Tensor

    @property
    def are_shared(self) -> bool:
        return self.prompt_ids.size(0) < self.prompt_of.size(0)


def share_prompts(input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, share: bool = True) -> SharedPrompts:
    """Split rows of (B, P + C) ids and mask, whose last C = `logits_to_keep` positions are completions.

    Without `share` each row keeps a prompt of its own.
    """
    prompt_ids, completion_ids = input_ids[:, :-logits_to_keep], input_ids[:, -logits_to_keep:]
    prompt_mask, completion_mask = attention_mask[:, :-logits_to_keep], attention_mask[:, -logits_to_keep:]
    longest_prompt = max(int(prompt_mask.sum(1).max()), 1)
    longest_completion = max(int(completion_mask.sum(1).max()), 1)
    prompt_ids, prompt_mask = prompt_ids[:, -longest_prompt:], prompt_mask[:, -longest_prompt:]
    own = torch.arange(len(prompt_ids), device=prompt_ids.device)
    first, prompt_of = distinct_prompts(prompt_ids, prompt_mask) if share else (own, own)
    return SharedPrompts(
        prompt_ids=prompt_ids[first],
        prompt_mask=prompt_mask[first],
        prompt_of=prompt_of,
        completion_ids=completion_ids[:, :longest_completion],
        completion_mask=completion_mask[:, :longest_completion],
    )


def distinct_prompts(prompt_ids: Tensor, prompt_mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of B rows: the first row of each of the D distinct prompts (D,), and the number of each row's prompt (B,)."""
    _, prompt_of = torch.unique(prompt_ids.masked_fill(prompt_mask == 0, -1), dim=0, return_inverse=True)
    rows = torch.arange(len(prompt_of), device=prompt_of.device)
    first = torch.full((int(prompt_of.max()) + 1,), len(rows), device=prompt_of.device)
    return first.scatter_reduce(0, prompt_of, rows, "amin"), prompt_of


def causal_model(model: Any) -> Any:
    """The model under PEFT's wrapper, if there is one."""
    return model.get_base_model() if isinstance(model, PeftModel) else model


def why_not_shared(config: Any) -> str | None:
    """Why the keys and values of a prompt cannot stand for those of each row that has it, or None."""
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = set(getattr(config, "layer_types", None) or ())
    normed_after = str(config.model_type).startswith(NORM_AFTER_ROPE)
    if rope.get("rope_type") in ROPE_TYPES and kinds <= {"full_attention"} and not normed_after:
        return None
    return f"the attention of {config.model_type} is none that prompts can be shared in"


def completion_logps(model: Any, backbone: torch.nn.Module, rows: SharedPrompts, entropy: bool) -> tuple[Tensor, Any]:
    """Log-probs (R, C) of the completions' tokens, and their entropies (R, C) if asked for.

    `model` is the causal model as the trainer calls it, with TRL's fused head; `backbone` is the module inside of it
    that turns tokens into hidden states.
    """
    labels = rows.completion_ids.masked_fill(rows.completion_mask == 0, -100)
    with _hidden_states_of_completions(backbone, rows):
        outputs = model(
            input_ids=rows.completion_ids,
            attention_mask=rows.completion_mask,
            shift_labels=labels,
            fused_lm_head=True,
        )
    return outputs.log_probs, outputs.entropy if entropy else None


@contextmanager
def _hidden_states_of_completions(backbone: torch.nn.Module, rows: SharedPrompts) -> Iterator[None]:
    """While this lasts the backbone, asked for the completions, gives the states from which they are predicted."""
    forward = backbone.forward

    def shared(*_: Any, input_ids: Tensor, attention_mask: Tensor, **__: Any) -> BaseModelOutputWithPast:
        return BaseModelOutputWithPast(last_hidden_state=_hidden_states(forward, rows))

    backbone.forward = shared
    try:
        yield
    finally:
        backbone.forward = forward


def _hidden_states(forward: Any, rows: SharedPrompts) -> Tensor:
    """(R, C, H): the state before each completion token, the prompt's last one first."""
    mask = torch.cat([rows.prompt_mask[rows.prompt_of], rows.completion_mask[:, :-1]], dim=1)  # (R, P + C - 1)
    if not rows.are_shared:
        ids = torch.cat([rows.prompt_ids[rows.prompt_of], rows.completion_ids[:, :-1]], dim=1)
        states = forward(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
        return states[:, rows.prompt_ids.size(1) - 1 :]
    prompts = forward(input_ids=rows.prompt_ids, attention_mask=rows.prompt_mask, use_cache=True)
    last = prompts.last_hidden_state[rows.prompt_of, -1:]  # (R, 1, H)
    if rows.completion_ids.size(1) == 1:
        return last
    cache = prompts.cache
    cache.batch_select_indices(rows.prompt_of)
    completions = forward(input_ids=rows.completion_ids[:, :-1], attention_mask=mask, cache=cache, use_cache=True)
    return torch.cat([last, completions.last_hidden_state], dim=1)
