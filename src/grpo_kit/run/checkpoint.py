"""The checkpoints of a run: which there are, and which of them can be gone on from."""

import re
from pathlib import Path

from safetensors import SafetensorError, safe_open

from grpo_kit.errors import RecipeError
from grpo_kit.files.durable import SUMS, changed_since_written
from grpo_kit.processes import count
from grpo_kit.recipe.file import is_file
from grpo_kit.run.run_dir import RunDir

NEEDED = ("trainer_state.json", "optimizer.pt", "scheduler.pt")
"""What a run goes on from, beside the weights and the random streams of each process."""

NUMBERED = re.compile(r"checkpoint-([0-9]+)")

BEST, MEASURED = "best", "measured.json"
"""The folder of a run's best model, and the file in it with the measurement that it is the best of."""


def checkpoints_of(run: RunDir) -> list[Path]:
    """Every `checkpoint-N` of a run, the oldest first."""
    numbered = [path for path in run.checkpoints.glob("checkpoint-*") if NUMBERED.fullmatch(path.name)]
    return sorted(numbered, key=step_of)


def checkpoint_before(run: RunDir, step: int) -> Path | None:
    """The newest checkpoint of a step before one; None where there is none."""
    earlier = [path for path in checkpoints_of(run) if step_of(path) < step]
    return next((path for path in reversed(earlier) if (path / "trainer_state.json").is_file()), None)


def newest_checkpoint(run: RunDir) -> tuple[Path | None, list[str]]:
    """The newest checkpoint that is complete and readable, and a line for each newer one that is not.

    Raises RecipeError where there are checkpoints but none can be read.
    """
    damaged: list[str] = []
    for path in reversed(checkpoints_of(run)):
        reason = unreadable(path)
        if reason is None:
            return path, damaged
        damaged.append(f"{path.name} is damaged ({reason}) and passed over")
    if damaged:
        raise RecipeError(f"{run.path}: no checkpoint can be read: {'; '.join(damaged)}; leave out --resume")
    return None, []


def unreadable(checkpoint: Path) -> str | None:
    """Why a checkpoint cannot be gone on from, or None: all that is needed is there, each file as it was written."""
    streams = ["rng_state.pth"] if count() == 1 else [f"rng_state_{rank}.pth" for rank in range(count())]
    needed = [*NEEDED, *streams]
    missing = [name for name in (*needed, SUMS) if not (checkpoint / name).is_file()]
    if missing:
        return f"no {', '.join(missing)}"
    weights = [path.name for path in checkpoint.glob("*.safetensors")]
    if not weights:
        return "no weights"
    changed = changed_since_written(checkpoint, [*needed, *weights])
    if changed:
        return changed
    step = (RunDir(checkpoint).read("trainer_state.json") or {}).get("global_step")
    return None if step == step_of(checkpoint) else f"its trainer_state.json is of step {step}"


def damaged_weights(folder: Path) -> str | None:
    """Why the weights in a folder cannot be loaded, or None. Others than safetensors are none: they may hold code."""
    name = "adapter_model" if is_file(folder / "adapter_config.json") else "model*"
    weights = list(folder.glob(f"{name}.safetensors"))
    for file in weights:
        try:
            with safe_open(file, framework="numpy"):
                pass
        except (SafetensorError, OSError):
            return f"{file.name} is cut off"
    return None if weights else f"no {name}.safetensors"


def step_of(checkpoint: Path) -> int:
    """The step after which `checkpoint-N` was written."""
    return int(checkpoint.name.rsplit("-", 1)[1])
