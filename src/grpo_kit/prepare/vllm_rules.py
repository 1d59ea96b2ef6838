"""vLLM as the sampler of rollouts: what must be so before weights load. TRL finds it out after that, or never."""

from collections.abc import Iterable
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from grpo_kit.data.chat import Chat, token_count
from grpo_kit.data.sources import Row
from grpo_kit.device import Device
from grpo_kit.memory.memory import Memory
from grpo_kit.recipe.recipe import Recipe

if TYPE_CHECKING:
    from trl import GRPOConfig

INSTALL = 'pip install "grpo-kit[vllm]", or write use_vllm: false'

OF_MODE: dict[str, tuple[str, ...]] = {
    "colocate": (
        "vllm_gpu_memory_utilization", "vllm_max_model_length", "vllm_tensor_parallel_size",
        "vllm_enable_sleep_mode", "vllm_model_impl",
    ),
    "server": (
        "vllm_server_base_url", "vllm_server_host", "vllm_server_port", "vllm_server_timeout", "vllm_group_port",
    ),
}  # fmt: skip
"""The keys that TRL reads in one mode only."""


def installed() -> str | None:
    """The version of vLLM here, or None."""
    try:
        return metadata.version("vllm")
    except metadata.PackageNotFoundError:
        return None


def supported() -> SpecifierSet:
    """The versions of vLLM that TRL names in its own `vllm` extra."""
    requirements = map(Requirement, metadata.requires("trl") or ())
    return next((found.specifier for found in requirements if found.name == "vllm"), SpecifierSet())


def check_package(recipe: Recipe) -> None:
    """Raises RecipeError where vLLM is not installed, or in a version that TRL does not work with."""
    version = installed()
    if version is None:
        raise recipe.error(
            "grpo.use_vllm", f"found True; needs a CUDA card and vLLM, which is not installed: {INSTALL}"
        )
    if Version(Version(version).base_version) not in supported():
        raise recipe.error(
            "grpo.use_vllm",
            f"found True; vLLM {version} is installed, but trl {metadata.version('trl')} works with {supported()}: "
            + INSTALL,
        )


def check_vllm(recipe: Recipe, args: "GRPOConfig", device: Device) -> None:
    """Raises RecipeError for what cannot work with vLLM here."""
    if device.kind != "cuda":
        raise recipe.error("grpo.use_vllm", "found True; needs a CUDA card, and none is found; write use_vllm: false")
    if recipe.lora is not None and device.lora_base() == "bfloat16":
        raise recipe.error(
            "grpo.use_vllm",
            "found True with lora: for each rollout TRL adds the adapter to the bfloat16 base and takes it out again, "
            "and the rounding stays in the base; remove lora:, or write use_vllm: false",
        )
    if args.generation_kwargs:
        raise recipe.error(
            "grpo.generation_kwargs",
            f"found {args.generation_kwargs!r}; vLLM would get them and held-out sampling would not; leave them out",
        )
    if args.cache_implementation is not None:
        raise recipe.error(
            "grpo.cache_implementation", f"found {args.cache_implementation!r}; vLLM has its own cache; leave it out"
        )
    corrected = args.vllm_importance_sampling_correction
    if args.loss_type == "vespo" and corrected and not args.vllm_importance_sampling_mode.startswith("token_"):
        raise recipe.error(
            "grpo.vllm_importance_sampling_mode",
            f"found {args.vllm_importance_sampling_mode!r}; write token_truncate or token_mask for loss_type: vespo",
        )
    if args.vllm_mode == "server":
        _check_server(recipe, args)
    elif args.world_size % args.vllm_tensor_parallel_size:
        raise recipe.error(
            "grpo.vllm_tensor_parallel_size",
            f"found {args.vllm_tensor_parallel_size}, which does not divide the run's processes, {args.world_size}; "
            "write 1, or start more of them with accelerate launch",
        )


def _check_server(recipe: Recipe, args: "GRPOConfig") -> None:
    url, example = args.vllm_server_base_url, "such as http://localhost:8000"
    if url is None and not {"vllm_server_host", "vllm_server_port"} & recipe.grpo.keys():
        raise recipe.error("grpo.vllm_mode", f"found 'server'; also write vllm_server_base_url, {example}")
    if url is not None and not url.startswith(("http://", "https://")):
        raise recipe.error("grpo.vllm_server_base_url", f"found {url!r}; write an address {example}")


def check_lengths(recipe: Recipe, args: "GRPOConfig", chat: Chat, rows: Iterable[Row], positions: int | None) -> None:
    """Raises RecipeError where vLLM's sequences would be shorter than prompt and completion, or than none can be."""
    length, completion = args.vllm_max_model_length, args.max_completion_length or 0
    if not args.use_vllm or args.vllm_mode != "colocate" or length is None:
        return
    if length > (positions or length):
        raise recipe.error(
            "grpo.vllm_max_model_length", f"found {length}, but the model has {positions} positions; write no more"
        )
    longest = max(token_count(recipe, chat, row["prompt"]) for row in rows)
    if longest + completion > length:
        raise recipe.error(
            "grpo.vllm_max_model_length",
            f"found {length}, but the longest prompt has {longest} tokens and a completion up to {completion}; "
            f"write at least {longest + completion}",
        )


def with_vllm(memory: Memory, args: "GRPOConfig", device: Device) -> Memory:
    """The memory of a run whose card a colocated vLLM shares. Asleep it leaves its part to held-out sampling."""
    if not args.use_vllm or args.vllm_mode != "colocate":
        return memory
    share = args.vllm_gpu_memory_utilization * device.memory_gb
    both = max(memory.kv_cache, share) if args.vllm_enable_sleep_mode else memory.kv_cache + share
    return replace(memory, kv_cache=both)


def notes(given: dict[str, Any]) -> list[str]:
    """What is to be said of the `grpo:` section's keys for vLLM, as the recipe gives them."""
    if not given.get("use_vllm"):
        unused, reason = [key for key in given if key.startswith("vllm_")], "without use_vllm: true"
    else:
        mode = given.get("vllm_mode", "colocate")
        unused = [key for key in given for other in OF_MODE if other != mode and key in OF_MODE[other]]
        reason = f"with vllm_mode: {mode}"
    found = [f"grpo.{', grpo.'.join(unused)}: not used {reason}"] if unused else []
    if given.get("use_vllm") and given.get("vllm_structured_outputs_regex"):
        found.append("grpo.vllm_structured_outputs_regex: held-out completions are sampled without it")
    return found
