"""Values that are not finite: the earliest thing that has them, of all that a step is made of.

Looked for only once one has shown itself, or where weights are read or written: it is a pass over every tensor.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

SLOWER = "lower grpo.learning_rate"

OF_THE_ROLLOUT = {
    "advantages": "samples.jsonl has the rewards that they are made of",
    "sampling_per_token_logps": "the sampler gave a token no probability: leave out grpo.top_p, top_k and min_p",
    "importance_sampling_ratio": f"the sampler and the model disagree beyond what a float can hold: {SLOWER}",
    "old_per_token_logps": f"the model gives a token of its own completions no probability: {SLOWER}",
    "ref_per_token_logps": "the reference gives a token no probability: set grpo.beta=0, or take another model",
}
"""What TRL's batch holds before the update, in the order in which it is made, and what to change for each."""

LOSS, GRADIENT = len(OF_THE_ROLLOUT) + 1, len(OF_THE_ROLLOUT) + 2
"""Places in the order of a step, after the weights and what OF_THE_ROLLOUT lists."""


@dataclass(frozen=True)
class Cause:
    """What is not finite, and what to change. `order`: how early in a step it is made, 0 for the weights themselves."""

    what: str
    change: str
    order: int

    @property
    def weights_lost(self) -> bool:
        return self.order == 0

    def describe(self) -> str:
        return f"not finite: {self.what}; {self.change}"


def first_not_finite(tensors: "Iterable[tuple[str, Tensor]]") -> str | None:
    """The name of the first tensor that holds a nan or an infinity, and how many; None where all are finite."""
    for name, tensor in tensors:
        finite = tensor.isfinite()
        if not bool(finite.all()):
            kind = "nan" if bool(tensor.isnan().any()) else "inf"
            return f"{name} ({kind} in {tensor.numel() - int(finite.sum())} of {tensor.numel()} values)"
    return None


def lost_weights(model: "nn.Module") -> Cause | None:
    """Whether any weight of the model, trained or not, is not finite."""
    found = first_not_finite(model.named_parameters())
    return Cause(f"weight {found}", f"the model is lost: {SLOWER} and start again", 0) if found else None


def cause_of(model: "nn.Module", batches: "Sequence[dict[str, Any]]", losses: "Sequence[Tensor]") -> Cause:
    """Why the norm of a gradient is not finite: `batches` are those of the rollout, `losses` those of the step.

    What comes later is made of what comes before: weights, rollout, loss, gradient.
    """
    if (lost := lost_weights(model)) is not None:
        return lost
    for order, (key, change) in enumerate(OF_THE_ROLLOUT.items(), 1):
        parts = [
            (_part(key, at, batches), batch[key]) for at, batch in enumerate(batches) if batch.get(key) is not None
        ]
        if found := first_not_finite(parts):
            return Cause(found, change, order)
    if found := first_not_finite((_part("the loss", at, losses), loss) for at, loss in enumerate(losses)):
        return Cause(found.split(" (")[0], f"the forward pass leaves what a float can hold: {SLOWER}", LOSS)
    gradients = ((f"the gradient of {name}", w.grad) for name, w in model.named_parameters() if w.grad is not None)
    found = first_not_finite(gradients) or "the norm of the gradient"
    return Cause(found, f"all before it is finite, so it is the backward pass: {SLOWER}", GRADIENT)


def _part(what: str, at: int, parts: Sequence[Any]) -> str:
    return f"{what} of micro-batch {at + 1} of {len(parts)}" if len(parts) > 1 else what
