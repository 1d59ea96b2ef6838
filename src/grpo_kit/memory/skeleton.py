"""A model with its adapter, as large as it will be and without memory."""

import copy
import warnings
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from grpo_kit.model.model import ModelSize

if TYPE_CHECKING:
    from trl import GRPOConfig


def skeleton(config: Any, layers: int, lora: Any, init_kwargs: dict[str, Any], dtype: str) -> Any:
    """The model with so many of its layers, and its adapter, on the meta device."""
    from peft import get_peft_model
    from transformers import AutoModelForCausalLM

    config = copy.deepcopy(config)
    text = config.get_text_config()
    text.num_hidden_layers = layers
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:layers]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), trust_remote_code=False, **init_kwargs
        )
    if lora is None:
        return model
    lora = copy.copy(lora)
    lora.init_lora_weights = True  # others compute with the weights, which are not there
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return get_peft_model(model, lora)


def go_on_as_a_line(models: list[Any], depth: int, size: ModelSize) -> bool:
    """Whether the parameters of two and of three layers tell those of all."""
    adapter = 0 if size.trainable == size.parameters else size.trainable
    for whole, trained in ((size.trainable, True), (size.parameters + adapter, False)):
        two, three = (sum(p.numel() for p in m.parameters() if p.requires_grad or not trained) for m in models)
        if two + (three - two) * (depth - 2) != whole:
            return False
    return True


def materialise(model: nn.Module) -> None:
    """Weights and buffers on a CPU that has them in name only; tied weights stay one."""
    made: dict[int, tuple[Tensor, Tensor]] = {}  # the old one is kept, so that its id stays its own
    for module in model.modules():
        for tensors in (module._parameters, module._buffers):
            for name, old in list(tensors.items()):
                if old is None:
                    continue
                if id(old) not in made:
                    new = torch.empty(old.shape, dtype=old.dtype, device="cpu")
                    is_weight = isinstance(old, nn.Parameter)
                    made[id(old)] = (nn.Parameter(new, old.requires_grad) if is_weight else new), old
                tensors[name] = made[id(old)][0]  # type: ignore[assignment]


def checkpoint(model: Any, adapted: bool, args: "GRPOConfig") -> None:
    """As the trainer switches it on."""
    if adapted:
        model.enable_input_require_grads()
    given: Any = args.activation_checkpointing_kwargs or {}
    options = dict(given)
    every, offload = options.pop("every_n_layers", 1), options.pop("offload", False)
    model.activation_checkpointing_enable(
        activation_checkpointing_kwargs=options or None, every_n_layers=every, offload=offload
    )
