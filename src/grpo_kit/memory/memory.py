"""Predicted peak memory of a run, by term, and the largest micro-batch that fits. `trace` does the counting."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from grpo_kit.device import Device
from grpo_kit.model.model import ModelSize

if TYPE_CHECKING:
    from peft import LoraConfig
    from trl import GRPOConfig

    from grpo_kit.memory.live_bytes import Peak
    from grpo_kit.memory.trace import Shapes
    from grpo_kit.prepare.inputs import Inputs

BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}

CUDA_CONTEXT_GB = 0.5
"""Assumed, not measured: CUDA's context and the libraries' workspaces on a card."""

CUDA_SPARE = 0.05
"""Assumed, not measured: what PyTorch's allocator holds beyond what is used, as a share of all but the weights."""

HEAP_SPARE = 1.0
"""Measured on Linux: what the heap holds and does not use, as a share of the activations in blocks that are in it."""

ERROR = 0.15
"""How far a measured peak may be from the predicted one."""

TERMS = (
    "process", "weights", "gradients", "optimizer", "reference", "activations", "vocabulary", "kv_cache", "allocator",
)  # fmt: skip


@dataclass(frozen=True)
class Memory:
    """GB (1e9 bytes) by term at the peak, and the phase it falls in: load, rollout or update.

    `process` is the libraries, or a card's context; `vocabulary` the logits; `allocator` what is held and not used.
    `activations` is None where the others are too much already, or the model's code could not be traced. `checkpoint`
    is the size on disk of one resumable checkpoint.
    """

    phase: str
    checkpoint: float
    process: float = 0.0
    weights: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    reference: float = 0.0
    activations: float | None = 0.0
    vocabulary: float = 0.0
    kv_cache: float = 0.0
    allocator: float = 0.0

    @property
    def total(self) -> float:
        return sum(getattr(self, term) or 0.0 for term in TERMS)

    def describe(self) -> str:
        named = [(term.replace("_", " ").replace("kv", "KV"), getattr(self, term) or 0.0) for term in TERMS]
        parts = " + ".join(f"{term} {value:.1f}" for term, value in named if value >= 0.05)
        total = f"{parts} = {self.total:.1f} GB" if parts else "under 0.1 GB"
        if self.activations is None:
            return f"{total}, and activations on top"
        return f"{total} at its peak, in the {self.phase}"


@dataclass(frozen=True)
class Run:
    """What decides how much memory a run needs, but for its micro-batch. `prompt_tokens` is the longest prompt's."""

    model_path: str
    lora: "LoraConfig | None"
    init_kwargs: dict[str, Any]
    args: "GRPOConfig"
    device: Device
    size: ModelSize
    fast: bool
    prompt_tokens: int

    @property
    def base(self) -> str:
        """Dtype of the weights that are loaded."""
        return self.device.lora_base() if self.lora is not None else self.device.weights

    @property
    def completions(self) -> int:
        """Completions of one optimizer step in this process."""
        return self.args.per_device_train_batch_size * self.args.gradient_accumulation_steps


def run_of(inputs: "Inputs", device: Device) -> Run:
    """What a checked recipe needs memory for, on a device that may be another than the one that is here."""
    init_kwargs = inputs.settings.from_recipe.get("model_init_kwargs") or {}
    longest = max(inputs.prompt_tokens)
    fast = inputs.recipe.fast
    return Run(inputs.model_path, inputs.lora, init_kwargs, inputs.args, device, inputs.size, fast, longest)


def predict(run: Run, rows: int, phase: str | None = None) -> Memory:
    """The peak of a run whose micro-batches have `rows` completions, with as many micro-batches as it then needs.

    With `phase` the peak of that phase.
    """
    lasting = _lasting(run)
    if lasting.total > run.device.memory_gb:
        return lasting
    try:
        peaks = _peaks(run, rows)
    except Exception:  # of whatever type: code of a model that does not run without memory; the run itself may well
        return lasting
    cuda = run.device.kind == "cuda"
    known = Memory(phase="update", checkpoint=lasting.checkpoint)
    asked = [peak for peak in peaks if phase in (None, peak.phase)] or peaks
    found = [replace(known, phase=peak.phase, process=_process_gb(cuda), **_terms(peak, cuda)) for peak in asked]
    return max(found, key=lambda memory: memory.total)


def largest_fitting(at: Callable[[int], Memory], sizes: list[int], limit_gb: float) -> tuple[int, Memory] | None:
    """The largest of the micro-batch `sizes`, in rising order, whose memory is within the limit, by bisection."""
    best = None
    while sizes:
        middle = len(sizes) // 2
        memory = at(sizes[middle])
        if memory.total <= limit_gb:
            best, sizes = (sizes[middle], memory), sizes[middle + 1 :]
        else:
            sizes = sizes[:middle]
    return best


def micro_batches(completions: int) -> list[int]:
    """The micro-batch sizes that make up a step of so many completions."""
    return [rows for rows in range(1, completions + 1) if completions % rows == 0]


def micro_batch(run: Run, rows: int) -> str:
    """What to write for micro-batches of `rows`, so that a step and a rollout have as many completions as before."""
    text = f"grpo.per_device_train_batch_size={rows} grpo.gradient_accumulation_steps={run.completions // rows}"
    per_rollout = (run.args.steps_per_generation or 1) * run.args.per_device_train_batch_size
    if per_rollout != run.completions and per_rollout % rows == 0:
        text += f" grpo.steps_per_generation={per_rollout // rows}"
    return text


def advice(run: Run, at: Callable[[int], Memory], limit_gb: float) -> str:
    """What to write where a run needs more than there is."""
    rows = run.args.per_device_train_batch_size
    fits = largest_fitting(at, [size for size in micro_batches(run.completions) if size < rows], limit_gb)
    if fits is not None:
        return f"write {micro_batch(run, fits[0])}, which needs {fits[1].total:.1f} GB"
    least = at(1)
    phase = "load" if least.activations is None else least.phase
    if phase == "rollout":
        return "sample less at once with a smaller grpo.steps_per_generation, or lower grpo.max_completion_length"
    others = ["use lora:"] if run.lora is None else []
    if phase == "update" and not _checkpointed(run.args):
        others.append("set grpo.activation_checkpointing=true")
    others.append("lower grpo.max_completion_length" if phase == "update" else "take a smaller model")
    return f"no micro-batch fits: {', or '.join(others)}"


def near_limit(memory: Memory, device: Device) -> str | None:
    """A note where the prediction's own error decides whether the run fits."""
    if memory.activations is not None and memory.total * (1 + ERROR) <= device.memory_gb:
        return None
    known = f"{memory.total:.1f} GB predicted" if memory.activations is not None else "activations are not known"
    return (
        f"memory: {known}, of {device.memory_gb:.3g} GB; a prediction may be {ERROR:.0%} off, so if the run ends for "
        "lack of memory, lower grpo.per_device_train_batch_size"
    )


def _lasting(run: Run) -> Memory:
    """What arithmetic knows: all that lasts from step to step, float32 for each value that is trained."""
    loaded, trainable = run.size.parameters * BYTES[run.base] / 1e9, run.size.trainable / 1e9
    full = run.lora is None
    return Memory(
        phase="update",
        checkpoint=12 * trainable,
        weights=loaded + (0.0 if full else 4 * trainable),
        gradients=4 * trainable,
        optimizer=8 * trainable,
        reference=loaded if run.args.beta and full else 0.0,
        activations=None,
    )


def _process_gb(cuda: bool) -> float:
    """What a run takes before it has any tensor."""
    if cuda:
        return CUDA_CONTEXT_GB
    import psutil

    return psutil.Process().memory_info().rss / 1e9


def _terms(peak: "Peak", cuda: bool) -> dict[str, float]:
    """GB by term, with what the allocator holds on top."""
    lasting = sum(peak.terms.get(term, 0) for term in ("weights", "optimizer", "reference"))
    spare = CUDA_SPARE * (peak.total - lasting) if cuda else HEAP_SPARE * peak.small * (sys.platform == "linux")
    return {term: size / 1e9 for term, size in {**peak.terms, "allocator": spare}.items()}


def _checkpointed(args: "GRPOConfig") -> bool:
    return bool(args.activation_checkpointing or args.gradient_checkpointing)


_TRACED: dict[Any, "list[Peak]"] = {}
"""Peaks by all that they depend on: a check asks for several micro-batches, tests for many alike."""


def _peaks(run: Run, rows: int) -> "list[Peak]":
    from transformers import AutoConfig

    from grpo_kit.memory.live_bytes import Peak
    from grpo_kit.memory.trace import Precision, peaks_of

    config = AutoConfig.from_pretrained(run.model_path, trust_remote_code=False)
    shapes = _shapes(run, rows, config)
    precision = Precision(run.base, run.device.autocast, run.device.kind == "cuda")
    key = (str(config), str(run.lora), str(run.init_kwargs), _relevant(run.args), shapes, precision)
    if key not in _TRACED:
        _TRACED[key] = peaks_of(config, run.lora, run.init_kwargs, run.args, shapes, precision, run.size)
    peaks = list(_TRACED[key])
    if run.device.kind == "cpu":
        dtype = str(config.dtype or "float32").removeprefix("torch.")
        mapped = run.size.parameters * BYTES.get(dtype, 4) if dtype != run.base else 0
        loaded = run.size.parameters * BYTES[run.base]  # the file stays mapped until all of it is converted
        peaks.append(Peak("load", False, {"weights": loaded + mapped}))
    return peaks


def _relevant(args: "GRPOConfig") -> str:
    """The settings that a trace reads, as text."""
    sampler = (args.temperature, args.top_p, args.top_k, args.min_p, args.repetition_penalty, args.use_vllm)
    return str((bool(args.beta), str(args.optim), args.optim_args, args.activation_checkpointing_kwargs, sampler))


def _shapes(run: Run, rows: int, config: Any) -> "Shapes":
    """The largest batches. Rows of one prompt are put into one micro-batch, as far as none is needed for KL."""
    from grpo_kit.memory.trace import Shapes
    from grpo_kit.model.logps import why_not_shared

    args = run.args
    group = args.num_generations or 1
    generation = (args.generation_batch_size or 1) // args.world_size
    generation_prompts = max(generation // group, 1)
    sorted_by_prompt = args.beta == 0.0 and args.loss_type != "bnpo"
    prompts = -(-rows // group) if sorted_by_prompt else min(rows, generation_prompts)
    fast = run.fast and why_not_shared(config) is None
    return Shapes(
        rows=rows,
        prompts=prompts,
        generation_rows=generation,
        generation_prompts=generation_prompts,
        prompt_tokens=-(-run.prompt_tokens // 16) * 16,  # so that runs that are alike share a trace
        completion_tokens=args.max_completion_length or 1,
        fast=fast,
        shared=fast and not _checkpointed(args) and prompts < rows,
        accumulates=run.completions > rows,
        checkpointed=_checkpointed(args),
    )
