"""Whether the disk has room for what a run will write."""

import shutil
from pathlib import Path

from grpo_kit.errors import RecipeError
from grpo_kit.prepare.prepare import Plan
from grpo_kit.run.run_dir import RUNS, RunDir


def check_disk(plan: Plan, run: RunDir | None = None) -> None:
    """Raises RecipeError where the checkpoints and the final model of a run do not fit where runs are written.

    Those that `run`, which is gone on with, has by now are part of what it takes.
    """
    place = run.path if run is not None else RUNS if RUNS.is_dir() else Path.cwd()
    there = sum(path.stat().st_size for path in run.checkpoints.rglob("*") if path.is_file()) if run is not None else 0
    free, needed = shutil.disk_usage(place).free, plan.disk_gb * 1e9 - there
    if needed > free:
        raise RecipeError(
            f"{place.absolute()}: {free / 1e6:.0f} MB free, but the run's checkpoints need {needed / 1e6:.0f} MB"
            f"{' more' if there else ''}; free some, or lower grpo.save_total_limit"
        )
