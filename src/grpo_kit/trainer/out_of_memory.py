"""A run that ran out of memory: where, what it asked for, what was there, and the smallest change that fits."""

import copy
import re
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from grpo_kit.device import Device
from grpo_kit.errors import RunError
from grpo_kit.memory.memory import (
    CUDA_CONTEXT_GB,
    TERMS,
    Memory,
    Run,
    advice,
    largest_fitting,
    micro_batch,
    micro_batches,
    predict,
    run_of,
)
from grpo_kit.prepare.vllm_rules import with_vllm
from grpo_kit.processes import card

if TYPE_CHECKING:
    from trl import GRPOConfig

    from grpo_kit.prepare.prepare import Prepared

PLACES = {
    "build_trainer": "load",
    "sample_batch": "sampling",
    "_generate_and_score_completions": "rollout",
    "training_step": "update",
}
"""Functions that are a phase of a run; of those that were going on the innermost says which one it was. Sampling is
that of held-out rows, or of a preflight."""

UNFINISHED = ("rollout", "update")
"""Phases that end before the optimizer's step, so that the weights are still those of the step before."""

ASKED = re.compile(r"allocate ([\d.]+) (bytes|[KMGT]iB)")
"""The block that could not be had, as torch says it of a card and of a CPU, and numpy of an array."""

UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}

LEAST_GB = 0.05
"""What is smaller is not told."""


def phase_of(error: BaseException) -> str | None:
    """Where in a run an exception was raised; None for its other places, such as the optimizer's step."""
    names = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    return next((PLACES[name] for name in reversed(names) if name in PLACES), None)


def asked_gb(error: BaseException) -> float | None:
    """The size of the block that could not be had, where it is said."""
    match = ASKED.search(str(error))
    return float(match[1]) * UNITS[match[2]] / 1e9 if match else None


def out_of_memory(
    prepared: "Prepared", error: BaseException, step: int | None, save: Callable[[], Path | None]
) -> RunError:
    """What to tell of it. `step` is the one that was being made, if any; `save` gives the checkpoint to go on from."""
    phase, asked = phase_of(error), asked_gb(error)
    traceback.clear_frames(error.__traceback__)  # they hold tensors, which are in the way of what comes now
    saved = save()
    there, others = memory_there(prepared.device)
    run = run_of(prepared, prepared.device)

    def at(rows: int, run: Run = run) -> Memory:
        memory = with_vllm(predict(run, rows, "rollout" if phase == "sampling" else phase), run.args, run.device)
        return replace(memory, process=prepared.plan.memory.process)  # that of now has the run's own tensors in it

    failed = at(run.args.per_device_train_batch_size)
    limit = min(there, failed.total - (asked or 0.0))
    change, same_run = smallest_change(run, at, limit)
    wanted = f", asked for {_gb(asked)} more" if asked else ""
    room = f"{_gb(there)} of {prepared.device.name}"
    held = f"; other processes hold {_gb(others)}" if others >= LEAST_GB else ""
    parts = [
        f"{'' if step is None else f'step {step}: '}out of memory in the {phase or 'update'}{wanted}",
        f"predicted there: {largest_first(failed)}, of {room}{held}",
        change,
    ]
    if saved:
        parts.append(f"the last checkpoint is {saved}" + (": go on with --resume and this change" if same_run else ""))
    return RunError("; ".join(parts))


def smallest_change(run: Run, at: Callable[..., Memory], limit_gb: float) -> tuple[str, bool]:
    """What to write so that a run fits, and whether a run that was started without it may go on with it."""
    rows = run.args.per_device_train_batch_size
    smaller = [size for size in micro_batches(run.completions) if size < rows]
    if smaller and at(rows).activations is None:  # what they take is not known, but that it is less with fewer rows
        return f"write {micro_batch(run, smaller[-1])}, or less", True
    fits = largest_fitting(at, smaller, limit_gb)
    if fits is not None:
        return f"write {micro_batch(run, fits[0])}, which needs {_gb(fits[1].total)}", True
    found = []
    for text, other in alternatives(run):
        memory = at(other.args.per_device_train_batch_size, other)
        if memory.activations is not None and memory.total <= limit_gb:
            found.append(f"{text} ({_gb(memory.total)})")
    return (f"write {', or '.join(found)}" if found else advice(run, at, limit_gb)), False


def alternatives(run: Run) -> Iterator[tuple[str, Run]]:
    """Other runs that may need less, with what to write, the one that changes least first.

    Half as many completions sampled at once, for as many steps; smaller groups of as many prompts; shorter completions;
    checkpointing.
    """
    args = run.args
    rows, steps, per_rollout = args.per_device_train_batch_size, args.gradient_accumulation_steps, _per_rollout(args)
    group, length = args.num_generations or 1, args.max_completion_length or 1
    at_once = Shape(rows, steps, per_rollout / 2, group) if per_rollout > 1 else Shape(rows / 2, steps * 2, 1, group)
    fewer = Shape(rows / 2, steps, per_rollout, group / 2)
    if steps % 2 == per_rollout % 2 == 0:
        fewer = Shape(rows, steps / 2, per_rollout / 2, group / 2)
    for shape in (at_once, fewer):
        yield from _shaped(run, shape)
    for shorter in filter(None, (length // 2, length // 4)):
        yield f"grpo.max_completion_length={shorter}", _with(run, max_completion_length=shorter)
    if not (args.activation_checkpointing or args.gradient_checkpointing):
        yield "grpo.activation_checkpointing=true", _with(run, activation_checkpointing=True)


@dataclass(frozen=True)
class Shape:
    """How completions are divided: into micro-batches of `rows`, of which a step and a rollout have some; groups."""

    rows: float
    steps: float
    per_rollout: float
    group: float


def _shaped(run: Run, shape: Shape) -> Iterator[tuple[str, Run]]:
    """The run with other batches, where they are whole numbers, and whole groups of more than one."""
    old = run.args
    generation = shape.rows * shape.per_rollout * old.world_size
    whole = all(float(number).is_integer() for number in vars(shape).values())
    if not whole or shape.group < 2 or generation % shape.group:
        return
    values = {
        "per_device_train_batch_size": int(shape.rows),
        "gradient_accumulation_steps": int(shape.steps),
        "num_generations": int(shape.group),
        "steps_per_generation": int(shape.per_rollout),
    }
    said = {key: value for key, value in values.items() if value != getattr(old, key)}
    if shape.per_rollout != shape.steps:  # else it is what a recipe without it has
        said["steps_per_generation"] = int(shape.per_rollout)
    elif _per_rollout(old) == old.gradient_accumulation_steps:
        said.pop("steps_per_generation", None)
    text = " ".join(f"grpo.{key}={value}" for key, value in said.items())
    yield text, _with(run, generation_batch_size=int(generation), **values)


def _per_rollout(args: "GRPOConfig") -> int:
    return args.steps_per_generation or args.gradient_accumulation_steps


def _with(run: Run, **values: Any) -> Run:
    args = copy.copy(run.args)
    for name, value in values.items():
        setattr(args, name, value)
    return replace(run, args=args)


def memory_there(device: Device) -> tuple[float, float]:
    """GB that this process can have of a device, and GB that others hold of it, as far as that can be known."""
    if device.kind == "cuda":
        import torch

        free, total = (size / 1e9 for size in torch.cuda.mem_get_info(card()))
        others = max(total - free - torch.cuda.memory_reserved(card()) / 1e9 - CUDA_CONTEXT_GB, 0.0)
        return total - others, others
    import resource

    import psutil

    there = psutil.virtual_memory()
    own = psutil.Process().memory_info().rss
    others = max(there.total - there.available - own, 0) / 1e9
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    least = min(there.total / 1e9 - others, allowed / 1e9 if allowed != resource.RLIM_INFINITY else float("inf"))
    return least, others


def largest_first(memory: Memory) -> str:
    """The terms of a prediction in GB, and their sum."""
    terms = {term.replace("_", " ").replace("kv", "KV"): getattr(memory, term) or 0.0 for term in TERMS}
    told = sorted(((size, term) for term, size in terms.items() if size >= LEAST_GB), reverse=True)
    more = ", and activations on top" if memory.activations is None else ""
    return " + ".join([f"{term} {size:.1f}" for size, term in told]) + f" = {_gb(memory.total)}{more}"


def _gb(size: float) -> str:
    return f"{size:.1f} GB" if size >= LEAST_GB else f"{size * 1000:.2g} MB"
