"""Model weights: where they are, how they are loaded, and the adapter on top of them."""

import contextlib
import copy
import dataclasses
import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_kit.data.chat import not_loadable
from grpo_kit.data.sources import find_file
from grpo_kit.device import Device
from grpo_kit.errors import NotFiniteError, RecipeError, first_line, is_out_of_memory, shorten
from grpo_kit.model.not_finite import lost_weights
from grpo_kit.recipe.file import is_file
from grpo_kit.recipe.recipe import Recipe, validated
from grpo_kit.shipped import tiny_model

if TYPE_CHECKING:
    import torch
    from peft import LoraConfig
    from transformers import PreTrainedConfig, PreTrainedModel

LORA_DEFAULTS: dict[str, Any] = {
    "r": 32,
    "lora_alpha": 32,
    "lora_dropout": 0.0,  # it would be active while completions are sampled and scored
    "target_modules": "all-linear",  # PEFT's own default adapts the query and value projections only
    "task_type": "CAUSAL_LM",
}

HUB_ID = re.compile(r"\w[\w.-]{0,95}(/\w[\w.-]{0,95})?")

POSITIONS = ("max_position_embeddings", "n_positions", "max_sequence_length")


@dataclass(frozen=True)
class ModelSize:
    """What can be known of a model without its weights. `max_positions` is None where the config names no limit."""

    parameters: int
    trainable: int
    max_positions: int | None
    kv_values_per_token: int
    vocabulary: int


def find_model(recipe: Recipe) -> str:
    """The folder or hub id to load from. Raises RecipeError for a built-in model that does not exist."""
    if recipe.model.startswith("builtin:"):
        if recipe.model != "builtin:tiny":
            raise recipe.error("model", f"found {recipe.model!r}; the only built-in model is builtin:tiny")
        return str(tiny_model())
    if "://" in recipe.model:
        raise recipe.error("model", f"found {recipe.model!r}; write the hub id alone, such as Qwen/Qwen3-0.6B")
    folder = find_file(recipe.model, recipe.source.parent)
    if folder is not None:
        if not is_file(folder / "config.json"):
            raise recipe.error("model", f"{folder} has no config.json, so it is no checkpoint folder")
        if not any(folder.glob("*.safetensors")):
            raise recipe.error("model", f"{folder} has no weights (*.safetensors)")
        if is_file(folder / "adapter_config.json"):
            raise recipe.error("model", f"{folder} has an adapter beside its weights, which would be loaded too")
        return str(folder)
    if not HUB_ID.fullmatch(recipe.model):
        raise recipe.error("model", f"no such folder: {shorten(recipe.model)}")
    return recipe.model


def lora_config(recipe: Recipe) -> "LoraConfig | None":
    """The adapter's configuration, or None for full fine-tuning. Raises RecipeError for a key that PEFT lacks."""
    if recipe.lora is None:
        return None
    import typing

    from peft import LoraConfig, PeftConfig

    filled_in = {field.name for field in dataclasses.fields(PeftConfig)}  # the kind of adapter and where it was
    for key in filled_in & recipe.lora.keys():
        raise recipe.error(f"lora.{key}", "not set here: the kit fills it in")
    hints = {key: hint for key, hint in typing.get_type_hints(LoraConfig).items() if key not in filled_in}
    given = validated(recipe, "lora", recipe.lora, hints)
    if given.get("lora_dropout"):
        raise recipe.error("lora.lora_dropout", "dropout would be active while completions are sampled; leave it at 0")
    try:
        return LoraConfig(**{**LORA_DEFAULTS, **given})
    except Exception as error:  # of whatever type: PEFT refuses the configuration
        raise recipe.error("lora", first_line(error)) from None


def measure_model(recipe: Recipe, model_path: str, lora: "LoraConfig | None", init_kwargs: dict[str, Any]) -> ModelSize:
    """Build the model without memory for its weights, and count. Raises RecipeError where that already fails."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(model_path, trust_remote_code=False)
    except Exception as error:  # transformers raises many types for a damaged folder: all are the user's to mend
        raise not_loadable(recipe, "config", error) from None
    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False, **init_kwargs)
    except Exception as error:
        if init_kwargs:
            raise recipe.error("grpo.model_init_kwargs", first_line(error)) from None
        raise not_loadable(recipe, "config", error) from None
    parameters = trainable = sum(p.numel() for p in model.parameters())
    if lora is not None:
        trainable = _adapter_size(recipe, model, lora)
    return _size(config, parameters, trainable)


def load_model(recipe: Recipe, model_path: str, device: Device, init_kwargs: dict[str, Any]) -> "PreTrainedModel":
    """The base model in the dtype that training needs: float32, or the device's half precision under an adapter.

    Code from a hub is never executed, and only safetensors are loaded. Raises RecipeError.
    """
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()  # the console has its own
    dtype = device.lora_base() if recipe.lora is not None else device.weights
    try:
        model = AutoModelForCausalLM.from_pretrained(
            model_path, dtype=dtype, use_safetensors=True, trust_remote_code=False, **init_kwargs
        )
    except Exception as error:  # of whatever type: a damaged or unsupported checkpoint
        if is_out_of_memory(error):
            raise
        raise not_loadable(recipe, "weights", error) from None
    if (lost := lost_weights(model)) is not None:
        raise recipe.error("model", f"{recipe.model} holds what is no number: {lost.what}; take another checkpoint")
    return model


def without_dropout(model: "torch.nn.Module") -> None:
    """Also that which is no module of its own but a number in an attention layer: TRL's `disable_dropout` misses it."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and ("dropout" in name or "drop" in name.split("_") or "layerdrop" in name):
                setattr(module, name, 0.0)


def load_trained(folder: str, base: str, dtype: "torch.dtype | str" = "auto") -> Any:
    """A trained model from a folder or the hub: all weights, or an adapter on its base model; as it is for sampling."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import cached_file, logging

    logging.disable_progress_bar()

    if is_adapter(folder):
        from peft import PeftModel
        from peft.utils import SAFETENSORS_WEIGHTS_NAME as WEIGHTS

        if cached_file(folder, WEIGHTS, _raise_exceptions_for_missing_entries=False) is None:
            raise RecipeError(f"{folder}: has no {WEIGHTS}; weights in other files are not loaded: they may hold code")
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype, use_safetensors=True, trust_remote_code=False)
        return PeftModel.from_pretrained(model, folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, use_safetensors=True, trust_remote_code=False)


def is_adapter(folder: str) -> bool:
    """Whether a folder or hub id holds an adapter instead of all weights."""
    from transformers.utils.peft_utils import find_adapter_config_file

    return find_adapter_config_file(folder) is not None


def save_model(model: Any, folder: Path, dtype: "torch.dtype") -> None:
    """Write the model to use: the adapter, or all weights in the given dtype. The model itself stays as it is.

    Raises NotFiniteError, and nothing is written, where a weight is not finite.
    """
    if (lost := lost_weights(model)) is not None:
        raise NotFiniteError(f"{folder.name}/ is not written: {lost.describe()}", weights_lost=True)
    if hasattr(model, "peft_config"):
        model.save_pretrained(folder)
        return
    cast: dict[int, torch.Tensor] = {}  # by place in memory, so that tied weights stay one tensor
    state = {name: cast.setdefault(w.data_ptr(), w.detach().to(dtype)) for name, w in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=state)
    config = folder / "config.json"
    written = json.loads(config.read_text(encoding="utf-8"))
    written |= {"dtype": str(dtype).removeprefix("torch."), "use_cache": True}  # the trainer switches it off
    config.write_text(json.dumps(written, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def weights_fingerprint(model: "torch.nn.Module") -> list[tuple[float, float]]:
    """Sum and sum of squares of every trainable tensor: two equal lists mean that no weight moved."""
    import torch

    with torch.no_grad():
        tensors = [p.detach() for p in model.parameters() if p.requires_grad]
        return [(t.sum(dtype=torch.float64).item(), (t.double() ** 2).sum().item()) for t in tensors]


@contextlib.contextmanager
def autocast(device: Device) -> Iterator[None]:
    """The forward precision of training, for sampling outside of the trainer."""
    import torch

    if device.autocast is None:
        yield
    else:
        with torch.autocast(device.kind, dtype=getattr(torch, device.autocast)):
            yield


def _adapter_size(recipe: Recipe, model: "PreTrainedModel", lora: "LoraConfig") -> int:
    from peft import get_peft_model
    from peft.tuners.tuners_utils import BaseTunerLayer

    lora = copy.copy(lora)
    lora.init_lora_weights = True  # others compute with the weights, which are not there
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `train` will show them
            adapted = get_peft_model(model, lora)
    except Exception as error:  # of whatever type: the adapter does not fit the model
        raise recipe.error("lora", first_line(error)) from None
    if isinstance(adapted.get_output_embeddings(), BaseTunerLayer):
        raise recipe.error("lora.target_modules", "names the output layer, which TRL would not train; leave it out")
    return sum(p.numel() for p in adapted.parameters() if p.requires_grad)


def _size(config: "PreTrainedConfig", parameters: int, trainable: int) -> ModelSize:
    text = config.get_text_config()
    positions = next((getattr(text, name) for name in POSITIONS if getattr(text, name, None)), None)
    heads = getattr(text, "num_attention_heads", None) or 1  # a model without attention keeps no more than one has
    per_layer = (getattr(text, "num_key_value_heads", None) or heads) * (
        getattr(text, "head_dim", None) or text.hidden_size // heads
    )
    return ModelSize(parameters, trainable, positions, 2 * text.num_hidden_layers * per_layer, text.vocab_size)
