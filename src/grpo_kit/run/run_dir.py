"""The files of a run: names, writing, reading, and finding a run by its name."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from grpo_kit.errors import RecipeError, shorten
from grpo_kit.evaluation.evaluate import Evaluation
from grpo_kit.files.durable import sync_one
from grpo_kit.recipe.file import is_file, read_tree
from grpo_kit.recipe.plain_values import plain
from grpo_kit.run.shapes import LOGS, SHAPES, is_whole

RUNS = Path("runs")

OF_A_START = (
    "grpo_config.json",
    "provenance.json",
    "data_fingerprint.json",
    "events.jsonl",
    "preflight.json",
    "rewards",
)
"""What is written before `recipe.yaml`, with which a run has begun."""

MEASURED_STEP = "measured_step"
"""In an event of a held-out measurement: it is done again with a measurement that was not completed."""

SHOWN = 8
"""Of the runs that there are, so many are named in a message."""


@dataclass(frozen=True)
class RunDir:
    """The directory of one run; `docs/run_directory.md` says what each file holds."""

    path: Path
    on_unwritable: Callable[[str, Exception], None] | None = None
    "Told of a file that could not be written, which the run then goes on without; None: that is an error."

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def final(self) -> Path:
        return self.path / "final"

    def append(self, file: str, *records: dict[str, Any]) -> None:
        """Add a line for each record to a .jsonl file, all at once; where the process dies the last may be cut off."""
        text = "".join(json.dumps(record, ensure_ascii=False, default=str) + "\n" for record in records)
        before = self.size(file)
        with self.without(file):
            try:
                with open(
                    self.path / file, "a", encoding="utf-8", errors="backslashreplace", opener=_not_through_a_link
                ) as out:
                    out.write(text)
            except OSError:
                if self.size(file) > before:
                    os.truncate(self.path / file, before)  # else the next line would begin within this one
                raise

    @contextmanager
    def without(self, what: str) -> Iterator[None]:
        """Go on without what could not be written, where `on_unwritable` is told of it."""
        try:
            yield
        except (OSError, SafetensorError) as error:
            if self.on_unwritable is None:
                raise
            self.on_unwritable(what, error)

    def event(self, kind: str, step: int, **more: Any) -> None:
        self.append("events.jsonl", {"event": kind, "step": step, "time": round(time.time(), 3), **more})

    def write(self, file: str, content: dict[str, Any]) -> None:
        """Replace a .json file."""
        self.write_text(file, json.dumps(content, indent=1, ensure_ascii=False, default=str) + "\n")

    def write_text(self, file: str, text: str) -> None:
        """Replace a file; a reader never sees half of it."""
        aside = self.path / f"{file}.tmp"
        with self.without(file):
            try:
                aside.unlink(missing_ok=True)  # it might be a link
                aside.write_text(text, encoding="utf-8", errors="backslashreplace")
                sync_one(aside)  # else a power cut could leave the new name with nothing in it
                os.replace(aside, self.path / file)
            finally:
                aside.unlink(missing_ok=True)

    def sync_logs(self) -> None:
        """Return when the logs are on the disk as they are now: no power cut makes them end before a checkpoint."""
        for path in (self.path / file for file in LOGS):
            if path.is_file():
                with self.without(path.name):
                    sync_one(path)
        sync_one(self.path)

    def read(self, file: str) -> dict[str, Any] | None:
        """The mapping in a .json file, of plain values; None where it is missing or damaged."""
        path = self.path / file
        try:
            content = plain(json.loads(path.read_text(encoding="utf-8-sig"))) if is_file(path) else None
        except (OSError, ValueError, RecursionError):
            return None
        return content if isinstance(content, dict) else None

    def read_whole(self, file: str) -> dict[str, Any] | None:
        """The mapping in a .json file of `SHAPES`; None where it is missing or damaged, or lacks what is needed."""
        content = self.read(file)
        return content if is_whole(Path(file).name, content) else None

    def lines(self, file: str) -> Iterator[dict[str, Any]]:
        """The mappings in a .jsonl file, whatever is in them; other lines are passed over."""
        return (record for _, record in self.each_line(file) if record is not None)

    def records(self, file: str) -> Iterator[dict[str, Any]]:
        """The records of a log that are whole, as `SHAPES` has it."""
        return (record for record in self.lines(file) if is_whole(file, record))

    def each_line(self, file: str) -> Iterator[tuple[str, dict[str, Any] | None]]:
        """Each line, and the mapping in it; None where there is none."""
        path = self.path / file
        if not path.is_file():
            return
        with path.open(encoding="utf-8-sig", errors="replace") as lines:  # it may be cut within a character
            for line in lines:
                try:
                    record = json.loads(line)
                except (ValueError, RecursionError):
                    record = None
                yield line, record if isinstance(record, dict) else None

    def steps(self) -> Iterator[dict[str, Any]]:
        """The metrics of each step, whatever else is in them."""
        return (record for record in self.lines("metrics.jsonl") if type(record.get("step")) is int)

    def own_evaluations(self) -> list[dict[str, Any]]:
        """The held-out measurements that the run made itself, not those that were made of it later."""
        return [record for record in self.lines("eval.jsonl") if "target" not in record]

    def evaluations(self) -> list[Evaluation]:
        """Those of its own measurements that are whole, by step: one that was lost may have been made again later."""
        read = SHAPES["eval.jsonl"].validate_python
        return sorted(
            (read(record) for record in self.records("eval.jsonl") if "target" not in record), key=lambda one: one.step
        )

    def size(self, file: str) -> int:
        """Bytes; 0 where the file is not there."""
        path = self.path / file
        return path.stat().st_size if path.is_file() else 0

    def cut_back(self, file: str, step: int) -> None:
        """Keep the records up to and including `step` that are whole: what came later is about to be done again.

        What was measured of the run from outside, with a `target`, stays, and so do events that are not of a step.
        """
        measured = {one.step for one in self.evaluations()}
        kept = [
            record
            for record in self.records(file)
            if (record["step"] <= step or _stays(record))
            and (MEASURED_STEP not in record or record[MEASURED_STEP] in measured)
        ]
        if (self.path / file).is_file():
            self.write_text(file, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in kept))


def _not_through_a_link(path: str, flags: int) -> int:
    """A run directory may come from somebody else, and is written to nowhere but within itself."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def _stays(record: dict[str, Any]) -> bool:
    return "target" in record or record.get("event", "") in ("warning", "resumed", "stopped", "failed")


def never_begun(name: str) -> list[RunDir]:
    """Directories of runs of this name that ended before they had written their recipe: what a start makes, no more."""
    return [run for run in runs_called(name) if not run.path.is_symlink() and _is_of_a_start(run.path)]


def _is_of_a_start(folder: Path) -> bool:
    there = {path.name for path in folder.iterdir()}
    aside = {f"{file}.tmp" for file in (*OF_A_START, "recipe.yaml")}
    return there <= {".lock", *OF_A_START, *aside} and (".lock" in there or not there)


def new_run(name: str) -> RunDir:
    """Make `./runs/NAME`, or a numbered one where that is taken."""
    return RunDir(new_folder(RUNS, name))


def new_folder(parent: Path, name: str) -> Path:
    """Make `PARENT/NAME`, or `-2`, `-3`, ... where that is taken: what is there is never overwritten."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for number in range(1, 10_000):
            path = parent / (name if number == 1 else f"{name}-{number}")
            with suppress(FileExistsError):
                path.mkdir()
                return path
    except OSError as error:
        raise RecipeError(
            f"{error.filename}: cannot be made ({error.strerror}); go to a folder you may write to"
        ) from None
    raise RecipeError(f"{parent}: holds 9999 folders called {name}; remove some, or set name:")


def runs_called(name: str) -> list[RunDir]:
    """Runs of a recipe in this folder, newest first."""
    counted = re.compile(rf"{re.escape(name)}(?:-(\d+))?")
    there = [(counted.fullmatch(path.name), path) for path in RUNS.iterdir()] if RUNS.is_dir() else []
    numbered = [(int(m[1] or 1), path) for m, path in there if m and path.is_dir() and _is_called(name, path)]
    return [RunDir(path) for _, path in sorted(numbered, reverse=True)]


def _is_called(name: str, path: Path) -> bool:
    """`smoke-2` is the second run of `smoke`, or the first of a recipe called smoke-2: its own recipe says."""
    file = path / "recipe.yaml"
    tree = read_tree(file) if file.is_file() else None
    return tree is None or tree.get("name", name) == name  # of one that is damaged there is the folder's name alone


def find_run(text: str) -> RunDir:
    """A run by its directory, or by its recipe's name (its newest run). Raises RecipeError."""
    if is_file(Path(text) / "recipe.yaml"):
        return RunDir(Path(text))
    name = Path(text).stem if text.endswith((".yaml", ".yml")) else text
    found = runs_called(name) if "/" not in name else []
    readable = [run for run in found if not is_file(run.path / "recipe.yaml") or read_tree(run.path / "recipe.yaml")]
    if found and not readable:
        raise RecipeError(f"{found[0].path / 'recipe.yaml'}: cannot be read as the recipe of a run")
    if not found:
        have = sorted(path.name for path in RUNS.glob("*")) if RUNS.is_dir() else []
        more = ["..."] if len(have) > SHOWN else []
        asked = text if len(text) < 300 else shorten(text)
        raise RecipeError(f"{asked}: no such run (runs here: {', '.join([*have[:SHOWN], *more]) or 'none'})")
    return readable[0]
