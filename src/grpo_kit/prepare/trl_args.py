"""The only module that knows `trl.GRPOConfig`: its derived schema, the kit's opinions on it, and building it.

No field and no default of TRL's is typed again here: the schema comes from GRPOConfig's own type hints.
"""

import ast
import dataclasses
import functools
import importlib.util
import typing
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from grpo_kit.device import Device
from grpo_kit.errors import RecipeError, first_line
from grpo_kit.prepare.trl_rules import LEGAL, set_elsewhere, wrong_value
from grpo_kit.prepare.vllm_rules import check_package, check_vllm, notes
from grpo_kit.processes import count
from grpo_kit.recipe.recipe import Recipe, unknown_key, validated

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
    "per_device_train_batch_size": Opinion(8, 8, "completions per micro-batch that fit a 24 GB card"),
    "gradient_accumulation_steps": Opinion(
        16, 16, "128 completions, 16 prompts of 8, per step; TRL's own is one prompt"
    ),
    "gradient_checkpointing": Opinion(False, False, "a 0.5B model fits without it, and recomputing costs a third"),
    "disable_dropout": Opinion(True, True, "dropout would be active while completions are sampled and scored"),
    "logging_steps": Opinion(1, 1, "GRPO is read step by step"),
    "save_steps": Opinion(50, 50, "an evening's run loses minutes, not hours"),
    "save_total_limit": Opinion(2, 2, "TRL keeps every checkpoint, 6 GB each"),
}


SOURCES = (
    ("trl", "trainer/grpo_config.py"),
    ("trl", "trainer/base_config.py"),
    ("transformers", "training_args.py"),
)
"""Where GRPOConfig and the classes it inherits from are written."""


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


def check_words(recipe: Recipe) -> None:
    """What can be said of the `grpo:` section without TRL, which takes seconds to import. Raises RecipeError."""
    fields = sorted(name for name in written_fields() if not set_elsewhere(name))
    for key, value in recipe.grpo.items():
        advice = set_elsewhere(key)
        if advice:
            raise recipe.error(f"grpo.{key}", f"not set here: {advice}")
        if fields and key not in fields:
            raise recipe.error(f"grpo.{key}", unknown_key(key, "grpo", fields))
        if key in LEGAL and value not in LEGAL[key]:
            quote = "; in quotes, where YAML would read on or off" if isinstance(value, bool) else ""
            raise recipe.error(f"grpo.{key}", f"found {value!r}; write one of {', '.join(LEGAL[key])}{quote}")


@functools.cache
def written_fields() -> set[str]:
    """GRPOConfig's fields as its source spells them, without importing it; empty if its source is not where it was."""
    found: set[str] = set()
    for package, file in SOURCES:
        spec = importlib.util.find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            path = Path(folder) / file
            if not path.is_file():
                return set()
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and node.name.endswith(("Config", "TrainingArguments")):
                    found |= {ast.unparse(part.target) for part in node.body if isinstance(part, ast.AnnAssign)}
    return found


def check_settings(recipe: Recipe) -> Settings:
    """Check the recipe's `grpo:` section against GRPOConfig and against what is known to go wrong later.

    Raises RecipeError with the key, what was found and what to write.
    """
    check_words(recipe)
    fields = schema()
    given = validated(recipe, "grpo", recipe.grpo, fields)
    for key, value in given.items():
        wrong = wrong_value(key, value, trl_default(key), fields)
        if wrong:
            raise recipe.error(f"grpo.{key}", f"found {value!r}; {wrong}")
    if given.get("use_vllm"):
        check_package(recipe)
    _check_together(recipe, given)
    defaults = {key: o.lora if recipe.lora is not None else o.full for key, o in DEFAULTS.items()}
    kit = {key: value for key, value in defaults.items() if key not in given}
    if "activation_checkpointing" in given:
        kit.pop("gradient_checkpointing", None)
    return Settings(given, kit, (*_warnings(given), *notes(given)))


def schema() -> dict[str, Any]:
    """GRPOConfig's fields that a recipe may set, with their types."""
    from trl import GRPOConfig

    return {key: hint for key, hint in typing.get_type_hints(GRPOConfig).items() if not set_elsewhere(key)}


def trl_default(key: str) -> Any:
    """The default of a GRPOConfig field."""
    from trl import GRPOConfig

    return next(f.default for f in dataclasses.fields(GRPOConfig) if f.name == key)


def _check_together(recipe: Recipe, given: dict[str, Any]) -> None:
    """Settings that need another one."""
    if given.get("loss_type") == "cispo" and given.get("epsilon_high") is None:
        raise recipe.error(
            "grpo.loss_type", "cispo also needs epsilon_high (an absolute cap on the ratio, such as 5.0)"
        )
    over_a_batch = {"scale_rewards": "batch", "multi_objective_aggregation": "normalize_then_sum"}
    for key, value in over_a_batch.items() if recipe.dynamic_sampling else ():
        if given.get(key) == value:
            raise recipe.error(
                f"grpo.{key}",
                f"{value} measures advantages by the whole batch, of which dynamic_sampling replaces a part",
            )


def _warnings(given: dict[str, Any]) -> list[str]:
    neutral = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
    changed = [f"{key}={given[key]}" for key, value in neutral.items() if given.get(key, value) not in (value, None)]
    found = []
    if changed:
        found.append(
            f"grpo.{', grpo.'.join(changed)}: completions are then sampled from another distribution than the loss uses"
        )
    if given.get("loss_type") == "luspo" and given.get("importance_sampling_level") != "sequence":
        found.append("grpo.loss_type=luspo is meant to go with grpo.importance_sampling_level=sequence")
    return found


def build_args(recipe: Recipe, settings: Settings, device: Device, output_dir: Path) -> "GRPOConfig":
    """The GRPOConfig of a run. Raises RecipeError where GRPOConfig refuses the combination."""
    import warnings

    from trl import GRPOConfig

    values = {**settings.from_kit, **settings.from_recipe}
    _check_batch(recipe, values)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # TRL itself still sets gradient_checkpointing
            args = GRPOConfig(
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
    except Exception as error:  # GRPOConfig raises many types for a wrong combination: all are the user's to mend
        raise _of_a_key(recipe, settings.from_recipe, error) from None
    if args.use_vllm:
        check_vllm(recipe, args, device)
    _try_parts(recipe, args)
    return args


def _of_a_key(recipe: Recipe, given: dict[str, Any], error: Exception) -> RecipeError:
    """An exception of a library's as an error at the longest of the recipe's keys that its text names."""
    named = max((key for key in given if key in str(error)), key=len, default="")
    return recipe.error(f"grpo.{named}" if named else "grpo", first_line(error))


def _try_parts(recipe: Recipe, args: "GRPOConfig") -> None:
    """Make what the trainer will make of the settings, to see a wrong name or a missing package before weights load."""
    import torch
    from transformers import GenerationConfig, Trainer, get_scheduler
    from transformers.generation.configuration_utils import GenerationMode
    from transformers.integrations import get_reporting_integration_callbacks

    of_schedule: Any = args.lr_scheduler_kwargs
    of_sampler: Any = args.generation_kwargs or {}

    def schedule() -> Any:
        optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)])
        return get_scheduler(args.lr_scheduler_type, optimizer, 0, 100, of_schedule)

    parts: dict[str, Callable[[], Any]] = {
        "optim": lambda: args.optim_target_modules or Trainer.get_optimizer_cls_and_kwargs(args),
        "lr_scheduler_type": schedule,
        "report_to": lambda: [callback() for callback in get_reporting_integration_callbacks(args.report_to)],
        "cache_implementation": lambda: GenerationConfig(cache_implementation=args.cache_implementation),
    }
    for key, make in parts.items():
        try:
            make()
        except Exception as error:  # of whatever type: the setting does not work here
            raise recipe.error(f"grpo.{key}", first_line(error)) from None
    unknown = of_sampler.keys() - GenerationConfig().to_dict().keys()
    if unknown:
        raise recipe.error("grpo.generation_kwargs", f"transformers.GenerationConfig has no {', '.join(unknown)}")
    try:
        mode = GenerationConfig(do_sample=True, **of_sampler).get_generation_mode()
    except Exception as error:  # of whatever type: values that it refuses
        raise recipe.error("grpo.generation_kwargs", first_line(error)) from None
    if mode != GenerationMode.SAMPLE:
        raise recipe.error("grpo.generation_kwargs", f"asks for {mode.value}, but GRPO needs plain sampling")


def _check_batch(recipe: Recipe, values: dict[str, Any]) -> None:
    """The completions of a generation batch must be whole groups."""

    def resolved(key: str) -> Any:
        return values.get(key, trl_default(key))

    batch, group, size = map(resolved, ("per_device_train_batch_size", "num_generations", "generation_batch_size"))
    if size is not None and size % group:
        raise recipe.error(
            "grpo.generation_batch_size",
            f"found {size} completions, which are no whole groups of grpo.num_generations {group}; "
            f"write a multiple of both {batch} (grpo.per_device_train_batch_size) and {group}",
        )
    multiple = "steps_per_generation" if resolved("steps_per_generation") else "gradient_accumulation_steps"
    size = size or batch * count() * resolved(multiple)
    if size % group:
        key = "per_device_train_batch_size"
        each = f" x {count()} processes" if count() > 1 else ""
        raise recipe.error(
            f"grpo.{key}",
            f"found {key} {batch}{each} x {multiple} {resolved(multiple)} = {size} completions, which are no whole "
            f"groups of grpo.num_generations {group}; write {key}: {group * max(1, round(batch / group))}, for example",
        )
