"""The only module that knows `trl.GRPOConfig`: its derived schema, the kit's opinions on it, and building it.

No field and no default of TRL's is typed again here: the schema comes from GRPOConfig's own type hints.
"""

import typing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import BaseModel

from grpo_kit.device import Device
from grpo_kit.recipe import Recipe, strict_model, validated

if TYPE_CHECKING:
    from trl import GRPOConfig


class Opinion(NamedTuple):
    """A default of the kit's where TRL's own is different, with the reason for it."""

    full: Any
    lora: Any
    reason: str


DEFAULTS: dict[str, Opinion] = {
    "learning_rate": Opinion(2e-6, 2e-5, "an adapter needs about ten times more than full fine-tuning"),
    "lr_scheduler_type": Opinion(
        "constant_with_warmup", "constant_with_warmup", "a resumed or extended run stays the same run"
    ),
    "warmup_steps": Opinion(10, 10, "Adam's first steps are its least certain"),
    "per_device_train_batch_size": Opinion(8, 16, "completions per micro-batch that fit a 24 GB card"),
    "gradient_accumulation_steps": Opinion(
        16, 8, "128 completions, 16 prompts of 8, per step; TRL's own is one prompt"
    ),
    "gradient_checkpointing": Opinion(False, False, "a 0.5B model fits without it, and recomputing costs a third"),
    "disable_dropout": Opinion(True, True, "dropout would be active while completions are sampled and scored"),
    "logging_steps": Opinion(1, 1, "GRPO is read step by step"),
    "save_steps": Opinion(50, 50, "an evening's run loses minutes, not hours"),
    "save_total_limit": Opinion(2, 2, "TRL keeps every checkpoint, 6 GB each"),
}

LEGAL: dict[str, tuple[str, ...]] = {
    "loss_type": ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo"),
    "scale_rewards": ("group", "batch", "none"),
    "importance_sampling_level": ("token", "sequence"),
    "multi_objective_aggregation": ("sum_then_normalize", "normalize_then_sum"),
}
"""Plain strings in GRPOConfig, which TRL compares only after the first rollout."""

RENAMED: dict[str, str] = {
    "warmup_ratio": "write warmup_steps; a value below 1 is a share of all steps",
    "max_prompt_length": "TRL no longer cuts prompts; the kit drops rows that are too long and says how many",
    "evaluation_strategy": "write eval_every at the top level of the recipe",
    "torch_dtype": "the kit chooses the precision by device (`grpo-kit env`)",
    "use_liger_loss": "removed from TRL; leave it out",
    "vllm_max_model_len": "write vllm_max_model_length",
    "overwrite_output_dir": "leave it out: a run directory is never overwritten",
    "logging_dir": "leave it out: logs go to the run directory",
    "save_safetensors": "leave it out: checkpoints are always safetensors",
    "no_cuda": "leave it out: the device is found by itself; CUDA_VISIBLE_DEVICES= hides a card",
    "group_by_length": "leave it out: it does not apply to GRPO",
    "wandb_log_unique_prompts": "write log_unique_prompts",
    "vllm_guided_decoding_regex": "write vllm_structured_outputs_regex",
}
"""Keys of older TRL or transformers releases: what to write today."""

REFUSED: dict[str, str] = {
    "output_dir": "the run directory is ./runs/NAME; write name: at the top level",
    "run_name": "write name: at the top level",
    "seed": "write seed: at the top level",
    "data_seed": "write seed: at the top level",
    "reward_weights": "write the weight at each reward, such as rewards: {accuracy: 1.0}",
    "use_cpu": "the device is found by itself; CUDA_VISIBLE_DEVICES= hides a card",
    "bf16": "the kit chooses the precision by device (`grpo-kit env`)",
    "fp16": "the kit chooses the precision by device (`grpo-kit env`)",
    "bf16_full_eval": "the kit chooses the precision by device (`grpo-kit env`)",
    "fp16_full_eval": "the kit chooses the precision by device (`grpo-kit env`)",
    "chat_template_kwargs": "write thinking: on or off at the top level",
    "push_to_hub": "upload the run's final/ folder yourself",
    "trust_remote_code": "code from a hub is never executed",
    "resume_from_checkpoint": "use `grpo-kit run RECIPE --resume`",
    "remove_unused_columns": "rewards need the columns",
    "auto_find_batch_size": "TRL cannot use it with GRPO; set per_device_train_batch_size",
    "num_generations_eval": "write evaluation: {samples: N} at the top level",
    "metric_for_best_model": "checkpoints are judged by held-out accuracy only",
    "greater_is_better": "checkpoints are judged by held-out accuracy only",
    "disable_tqdm": "progress is shown on a terminal only",
}
REFUSED_PREFIXES: dict[str, str] = {
    "eval_": "write eval_dataset:, eval_every: and evaluation: at the top level",
    "do_": "leave it out: `run` trains and evaluates",
    "load_best_": "checkpoints are judged by held-out accuracy, never by loss",
    "per_device_eval_": "evaluation uses the same number of completions at once as training",
    "hub_": "upload the run's final/ folder yourself",
}

MIN_TEMPERATURE = 0.05


@dataclass(frozen=True)
class Settings:
    """The checked `grpo:` section: what the recipe says, and what the kit adds where it says nothing."""

    from_recipe: dict[str, Any]
    from_kit: dict[str, Any]
    warnings: tuple[str, ...]

    def origin(self, key: str) -> str:
        if key in self.from_recipe:
            return "recipe"
        return f"kit: {DEFAULTS[key].reason}" if key in self.from_kit and key in DEFAULTS else "TRL"


def check_settings(recipe: Recipe) -> Settings:
    """Check the recipe's `grpo:` section against GRPOConfig and against what is known to go wrong later.

    Raises RecipeError with the key, what was found and what to write. Importing TRL's config takes some seconds.
    """
    for key in recipe.grpo:
        _refuse(recipe, key)
    given = validated(recipe, "grpo", recipe.grpo, schema())
    defaults = {key: o.lora if recipe.lora is not None else o.full for key, o in DEFAULTS.items()}
    kit = {key: value for key, value in defaults.items() if key not in given}
    if {"activation_checkpointing"} & given.keys():
        kit.pop("gradient_checkpointing", None)
    _check_values(recipe, given)
    return Settings(given, kit, tuple(_warnings(given)))


def schema() -> type[BaseModel]:
    """A pydantic model with exactly GRPOConfig's fields and types, all optional and nothing else allowed."""
    from trl import GRPOConfig

    return strict_model("grpo", typing.get_type_hints(GRPOConfig))


def _refuse(recipe: Recipe, key: str) -> None:
    advice = RENAMED.get(key) or REFUSED.get(key)
    advice = advice or next((text for prefix, text in REFUSED_PREFIXES.items() if key.startswith(prefix)), None)
    if advice:
        raise recipe.error(f"grpo.{key}", f"not set here: {advice}")


def _check_values(recipe: Recipe, given: dict[str, Any]) -> None:
    """What TRL would notice only after the first rollout, or never."""

    def refuse(key: str, message: str) -> None:
        raise recipe.error(f"grpo.{key}", f"found {given[key]!r}; {message}")

    for key, legal in LEGAL.items():
        if key in given and given[key] not in legal:
            refuse(key, f"write one of {', '.join(legal)}")
    for key in ("beta", "learning_rate", "epsilon", "epsilon_high", "weight_decay"):
        if (given.get(key) or 0) < 0:
            refuse(key, "write a number that is not negative")
    if given.get("temperature", 1.0) < MIN_TEMPERATURE:
        refuse("temperature", f"below {MIN_TEMPERATURE} all completions of a group are the same and nothing is learned")
    if (given.get("num_generations", 2) or 0) < 2:
        refuse("num_generations", "a group needs at least 2 completions to compare")
    for key in ("max_completion_length", "per_device_train_batch_size", "gradient_accumulation_steps"):
        if (given.get(key, 1) or 0) < 1:
            refuse(key, "write a whole number of at least 1")
    if given.get("max_steps") == 0:
        refuse("max_steps", "a run of 0 steps learns nothing")
    if given.get("loss_type") == "cispo" and given.get("epsilon_high") is None:
        refuse("loss_type", "cispo also needs epsilon_high (an absolute cap on the ratio, such as 5.0)")
    if given.get("generation_kwargs") and "temperature" in given["generation_kwargs"]:
        refuse("generation_kwargs", "write grpo.temperature, so that loss and sampler agree")


def _warnings(given: dict[str, Any]) -> list[str]:
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    changed = [f"{key}={given[key]}" for key, value in neutral.items() if given.get(key, value) not in (value, None)]
    if not changed:
        return []
    return [
        f"grpo.{', grpo.'.join(changed)}: completions are then sampled from another distribution than the loss uses"
    ]


def build_args(recipe: Recipe, settings: Settings, device: Device, output_dir: Path) -> "GRPOConfig":
    """The GRPOConfig of a run. Raises RecipeError where GRPOConfig refuses the combination."""
    import warnings

    from trl import GRPOConfig

    values = {**settings.from_kit, **settings.from_recipe}
    _check_batch(recipe, values)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TRL itself still sets gradient_checkpointing
            return GRPOConfig(
                **values,
                output_dir=str(output_dir),
                seed=recipe.seed,
                reward_weights=[reward.weight for reward in recipe.rewards.values()],
                chat_template_kwargs={} if recipe.thinking is None else {"enable_thinking": recipe.thinking},
                use_cpu=device.kind == "cpu",
                bf16=device.autocast == "bfloat16",
                fp16=device.autocast == "float16",
                disable_tqdm=True,
            )
    except (ValueError, ImportError, NotImplementedError) as error:
        raise recipe.error("grpo", str(error).splitlines()[0]) from None


def _check_batch(recipe: Recipe, values: dict[str, Any]) -> None:
    """The completions of a generation batch must be whole groups."""
    from trl import GRPOConfig

    def resolved(key: str) -> Any:
        return values.get(key, next(f.default for f in GRPOConfig.__dataclass_fields__.values() if f.name == key))

    batch, group = resolved("per_device_train_batch_size"), resolved("num_generations")
    steps = resolved("steps_per_generation") or resolved("gradient_accumulation_steps")
    size = resolved("generation_batch_size") or batch * steps
    if size % group:
        key = "per_device_train_batch_size"
        multiple = "steps_per_generation" if resolved("steps_per_generation") else "gradient_accumulation_steps"
        raise recipe.error(
            f"grpo.{key}",
            f"found {key} {batch} x {multiple} {steps} = {size} completions, which are no whole groups of "
            f"grpo.num_generations {group}; write {key}: {group * max(1, round(batch / group))}, for example",
        )
