"""GRPOTrainer with the same gradients for less work. Each override says what it replaces; tests hold it to that.

What GRPO does not need and TRL computes: rows whose advantage is 0 (every group that is flat), a shared prompt once for
each of its completions, the vocabulary at prompt positions, and padding.
"""

import math
from typing import Any

import torch
from torch import Tensor
from trl import GRPOTrainer

from grpo_kit.model.decode import less_work
from grpo_kit.model.logps import causal_model, completion_logps, share_prompts, why_not_shared
from grpo_kit.stats import is_flat

ORDER_MATTERS = ("bnpo",)
"""Loss types that average over the tokens of a micro-batch: which rows share one is a part of their gradient."""


class FastTrainer(GRPOTrainer):
    """`fast=False` is TRL's own trainer. `slow_because` says which work is not saved and why, if so."""

    def __init__(self, *, fast: bool = True, **kwargs: Any):
        super().__init__(**kwargs)
        nothing = "images go their own way" if fast and self._is_vlm else None
        not_shared = self._shares_nothing() if fast and not nothing else None
        self.slow_because = "; ".join(filter(None, [nothing, not_shared, self._skips_nothing() if fast else None]))
        self._fast = fast and not nothing
        self._understood = why_not_shared(self._causal_model(self.model).config) is None
        self._share = self._fast and not not_shared
        self._policy: Any = self.model
        self._needed: Tensor | None = None
        self._old: Tensor | None = None

    def _shares_nothing(self) -> str | None:
        if self.args.activation_checkpointing or self.args.gradient_checkpointing:
            return "gradient checkpointing keeps no keys and values, so prompts are not shared"
        return why_not_shared(self._causal_model(self.model).config)

    def _skips_nothing(self) -> str | None:
        """Why a row whose advantage is 0 adds something to the loss: a KL term, or a term of the entropy."""
        if self.beta != 0.0:
            return "with beta above 0 the rows of flat groups are computed for their KL term"
        entropy = self.top_entropy_quantile != 1.0 or self._entropy_bonus_enabled
        return "the entropy of all rows is a part of the loss" if entropy or self.aux_loss_enabled else None

    def _causal_model(self, model: Any) -> Any:
        return causal_model(self.accelerator.unwrap_model(model))

    @property
    def _may_skip(self) -> bool:
        return self._fast and self._policy.training and self._skips_nothing() is None

    def _generate_single_turn(self, *args: Any, **kwargs: Any) -> Any:
        """TRL's, with each distinct prompt computed once; vLLM and continuous batching do that themselves."""
        if not self._fast or self.use_vllm or self.use_transformers_continuous_batching:
            return super()._generate_single_turn(*args, **kwargs)
        with less_work(self.accelerator.unwrap_model(self.model)):
            return super()._generate_single_turn(*args, **kwargs)

    def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
        self._rewards_per_func: Tensor = super()._calculate_rewards(*args, **kwargs)  # (B, R), of all processes
        return self._rewards_per_func

    def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
        """TRL's, but a group whose rewards differ by rounding has advantages of exactly 0, and counts as flat.

        There its standard deviation is about 1e-7, and rounding is scaled up by 1 / (std + 1e-4).
        """
        output = super()._generate_and_score_completions(inputs)
        if self._fast and self.multi_objective_aggregation == "sum_then_normalize":
            weighted = self._rewards_per_func * self.reward_weights.to(self._rewards_per_func.device)
            unscored = self._rewards_per_func.isnan().all(dim=1).tolist()
            totals = [None if no else x for no, x in zip(unscored, weighted.nansum(dim=1).tolist(), strict=True)]
            size = (self.num_generations if self._policy.training else self.num_generations_eval) or 1
            flat = [is_flat(totals[start : start + size]) for start in range(0, len(totals), size)]
            own = torch.tensor(flat, device=self.accelerator.device).repeat_interleave(size)  # (B,)
            first = self.accelerator.process_index * len(inputs)
            output["advantages"] = output["advantages"].masked_fill(own[first : first + len(inputs)], 0.0)
            mode = "train" if self._policy.training else "eval"
            self._metrics[mode]["frac_reward_zero_std"][-1] = sum(flat) / len(flat)
        return output

    def _prepare_inputs(self, generation_batch: Any) -> Any:
        """TRL's, but within an optimizer step rows of one prompt, and of one length, are in one micro-batch.

        The gradients of a step are summed, so which of its micro-batches a row is in changes nothing.
        """
        before = self._buffered_inputs
        inputs = super()._prepare_inputs(generation_batch)
        if not self._may_skip or self._buffered_inputs is before or self.loss_type in ORDER_MATTERS:
            return inputs
        # micro-batches of one optimizer step, however often a rollout begins in the middle of one
        window = math.gcd(self.args.gradient_accumulation_steps, self.args.steps_per_generation)
        batches = self._buffered_inputs
        self._buffered_inputs = [
            batch for start in range(0, len(batches), window) for batch in sorted_rows(batches[start : start + window])
        ]
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
        """TRL's, on log-probs of which those of rows with advantage 0 were not computed.

        So `entropy`, the mean over all completions, has another name: it is that of the completions learned from.
        """
        if not self._may_skip:
            return super()._compute_loss(model, inputs)
        self._needed = (inputs["advantages"] != 0) & inputs["completion_mask"].any(dim=1)  # (B,)
        self._old = inputs.get("old_per_token_logps")
        try:
            loss = super()._compute_loss(model, inputs)
        finally:
            self._needed = self._old = None
        metrics = self._metrics["train"]
        metrics["kit/entropy"].append(metrics["entropy"].pop())
        return loss

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, logits_to_keep: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """TRL's, with shared prompts and without padding; rows that are not needed have a ratio of 1."""
        fields = {name for name, value in kwargs.items() if value is not None}
        if not self._fast or args or kwargs.get("compute_aux_loss") or not fields <= OWN_FIELDS:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, *args, **kwargs
            )
        rows = input_ids.size(0)
        chosen = torch.arange(rows, device=input_ids.device)
        if self._needed is not None:
            chosen = chosen[self._needed]
        shape = (rows, logits_to_keep)
        logps = torch.zeros(shape, device=input_ids.device) if self._old is None else self._old.clone()
        entropies = torch.full(shape, torch.nan, device=input_ids.device) if kwargs.get("compute_entropy") else None
        if self._needed is not None and not len(chosen):
            return logps + self._zero(model), entropies, None
        backbone = self._causal_model(model).base_model
        for some in chosen.split(kwargs.get("batch_size") or rows):
            if self._understood:
                shared = share_prompts(input_ids[some], attention_mask[some], logits_to_keep, self._share)
                with self.accelerator.autocast():
                    own, entropy = completion_logps(model, backbone, shared, entropies is not None)
            else:
                own, entropy, _ = super()._get_per_token_logps_and_entropies(
                    model, input_ids[some], attention_mask[some], logits_to_keep, compute_entropy=entropies is not None
                )
            length = own.size(1)
            padded = torch.nn.functional.pad(own, (0, logits_to_keep - length))
            logps = logps.to(own.dtype).index_copy(0, some, padded)
            if entropies is not None and entropy is not None:
                entropy = entropy if self._entropy_bonus_enabled else entropy.detach()  # only a bonus has gradients
                padded = torch.nn.functional.pad(entropy.to(entropies.dtype), (0, logits_to_keep - length))
                entropies = entropies.index_copy(0, some, padded)
        if entropies is not None:  # those of rows that were left out: the mean of the others, which changes no mean
            mask = attention_mask[chosen, -logits_to_keep:].bool()
            mean = entropies.detach()[chosen][mask].mean()
            entropies = entropies.masked_fill(entropies.isnan(), float(mean))
        return logps, entropies, None

    def _zero(self, model: Any) -> Tensor:
        """A differentiable 0 of all trained weights, so that the optimizer steps as it does with gradients of 0.

        It is what the forward returns: of several processes each averages gradients after a forward only.
        """
        module = self.accelerator.unwrap_model(model)
        trained = [weight for weight in module.parameters() if weight.requires_grad]
        forward = module.forward
        module.forward = lambda: torch.stack([weight.reshape(-1)[:1].sum() * 0.0 for weight in trained]).sum()
        try:
            return model()
        finally:
            module.forward = forward


OWN_FIELDS = {"batch_size", "compute_entropy", "compute_aux_loss"}
"""What a call for plain text may name; everything else belongs to images."""


def sorted_rows(batches: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of some micro-batches in an order that leaves little to do: those with advantage 0 last, the others by
    prompt and by length. Values without a row dimension stay as they are."""
    sizes = [len(batch["advantages"]) for batch in batches]
    together = {
        key: torch.cat([batch[key] for batch in batches]) if _has_rows(value) else value
        for key, value in batches[0].items()
    }
    prompts = [tuple(ids) for ids in (together["prompt_ids"] * together["prompt_mask"]).tolist()]
    lengths = together["completion_mask"].sum(dim=1).tolist()
    longest: dict[tuple[int, ...], int] = {}
    for prompt, length in zip(prompts, lengths, strict=True):
        longest[prompt] = max(longest.get(prompt, 0), length)
    unneeded = (together["advantages"] == 0).tolist()
    order = sorted(range(len(prompts)), key=lambda i: (unneeded[i], -longest[prompts[i]], prompts[i], -lengths[i]))
    index = torch.tensor(order, device=together["advantages"].device)
    arranged = {key: value[index] if _has_rows(value) else value for key, value in together.items()}
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    return [
        {key: value[start : start + size] if _has_rows(value) else value for key, value in arranged.items()}
        for start, size in zip(starts, sizes, strict=True)
    ]


def _has_rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() > 0
