"""Memory and disk that a run needs, as far as arithmetic knows them: everything but activations."""

from dataclasses import dataclass

from grpo_kit.device import Device
from grpo_kit.model import ModelSize

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Memory:
    """GB (1e9 bytes) by term; `checkpoint` is the size on disk of one resumable checkpoint."""

    weights: float
    gradients: float
    optimizer: float
    reference: float
    kv_cache: float
    checkpoint: float

    @property
    def total(self) -> float:
        return self.weights + self.gradients + self.optimizer + self.reference + self.kv_cache

    def describe(self) -> str:
        terms = ("weights", "gradients", "optimizer", "reference", "kv_cache")
        named = [(term.replace("_", " "), getattr(self, term)) for term in terms]
        parts = " + ".join(f"{term} {value:.1f}" for term, value in named if value >= 0.05)
        total = f"{parts} = {self.total:.1f} GB" if parts else "under 0.1 GB"
        return f"{total}, and activations on top"


def estimate(
    size: ModelSize, device: Device, lora: bool, beta: float, sequences: int, tokens_per_sequence: int
) -> Memory:
    """Count the bytes of a run.

    Weights are float32 under full fine-tuning and the device's base dtype under an adapter; gradients and Adam's two
    moments are float32, one value per trainable parameter each. A reference model is held only for full fine-tuning
    with beta > 0. The KV cache is that of one rollout at its full length: values in the dtype of the forward, keys in
    that of the weights.
    """
    base = BYTES[device.lora_base() if lora else device.weights]
    weights = size.parameters * base + (size.trainable * 4 if lora else 0)
    forward = BYTES[device.autocast or device.weights]
    kv_value = (base + forward) / 2
    return Memory(
        weights=weights / 1e9,
        gradients=size.trainable * 4 / 1e9,
        optimizer=size.trainable * 8 / 1e9,
        reference=size.parameters * base / 1e9 if beta and not lora else 0.0,
        kv_cache=sequences * tokens_per_sequence * size.kv_values_per_token * kv_value / 1e9,
        checkpoint=size.trainable * 12 / 1e9,
    )
