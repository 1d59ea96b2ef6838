"""What a hand, another tool or a disk has done to the files of a run that is about to be gone on with."""

import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

from grpo_kit.errors import RecipeError
from grpo_kit.run.checkpoint import BEST, MEASURED
from grpo_kit.run.run_dir import RunDir
from grpo_kit.run.shapes import LOGS, is_whole

FILES, FOLDERS = (*LOGS, "summary.json", "provenance.json"), ("checkpoints", "final", BEST, "evals", "rewards")
"""What a run that goes on reads, or writes to."""


def damage_of(run: RunDir) -> list[str]:
    """A line for each file of which something cannot be read, and is done without.

    Raises RecipeError for what a run cannot go on with: a folder in the place of a file, a file in that of a folder.
    """
    refuse_links(run)
    for names, wanted, is_one in ((FILES, "file", Path.is_file), (FOLDERS, "folder", Path.is_dir)):
        for path in (run.path / name for name in names):
            if os.path.lexists(path) and not is_one(path):
                raise RecipeError(
                    f"{path}: should be a {wanted}, and is none; move it away, or leave out --resume to start a new run"
                )
    said = [f"{file}: {_lines_that(lost)} left out" for file in LOGS if (lost := _lost(run, file))]
    if (run.path / BEST / MEASURED).exists() and run.read_whole(f"{BEST}/{MEASURED}") is None:
        said.append(f"{BEST}/{MEASURED}: cannot be read, so nothing says of which step {BEST}/ is")
    return said


def refuse_links(run: RunDir, names: Iterable[str] = (*FILES, *FOLDERS)) -> None:
    """Raises RecipeError where a file or folder of a run, which is written to, is a link to somewhere else."""
    named = [run.path / name for name in names]
    below = (path for folder in named if folder.name == "rewards" for path in folder.rglob("*"))
    for path in chain(named, below):
        if path.is_symlink():
            raise RecipeError(
                f"{path}: is a link, and a run is written to within its own directory only; put what it leads to "
                "in its place"
            )


def lost_steps(run: RunDir, done: int) -> list[str]:
    """A line where the metrics end before the step that is gone on from."""
    last = max((record["step"] for record in run.records("metrics.jsonl") if record["step"] <= done), default=0)
    return [f"metrics.jsonl: ends with step {last}, so it lacks what came up to step {done}"] if last < done else []


def _lines_that(lost: int) -> str:
    return "1 line cannot be read and is" if lost == 1 else f"{lost} lines cannot be read and are"


def _lost(run: RunDir, file: str) -> int:
    """Lines that hold no record, but for a last one that a crash cut off: it has no end. Raises RecipeError."""
    try:
        return sum(
            line.endswith("\n") and not line.isspace() and not is_whole(file, record)
            for line, record in run.each_line(file)
        )
    except OSError as error:
        raise RecipeError(f"{run.path / file}: cannot be read ({error.strerror})") from None
