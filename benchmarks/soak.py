"""Does a long run stay as large as it was? Memory of the process and its workers, and the size of its files.

    python benchmarks/soak.py [--steps 1000] [--json FILE]

The smoke recipe for many steps, with every completion logged, a measurement every 100 steps and a checkpoint every 50,
of which two are kept. Memory is the proportional share (PSS) of the run's process and of all that it started, so that
what two of them share counts once: the median of what is seen once a second within each tenth of the run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import psutil
from pairs import machine

RECIPE = Path(__file__).parents[1] / "recipes" / "smoke.yaml"
SETTINGS = ("eval_every=100", "eval_dataset.limit=32", "grpo.save_steps=50")
FLAT = 0.05
"""Growth after a fifth of the run beyond which memory is not called flat."""


@dataclass(frozen=True)
class Seen:
    """The run after so many steps: MB of the process, of its workers, of its logs and of its checkpoints."""

    step: int
    process: float
    workers: float
    logs: float
    checkpoints: float


def pss_mb(process: psutil.Process) -> float:
    full = process.memory_full_info()
    return float(getattr(full, "pss", full.rss)) / 1e6


def size_mb(paths: list[Path]) -> float:
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def look(process: psutil.Process, folder: Path) -> Seen | None:
    """None before the first step, and where something ends while it is looked at."""
    metrics = folder / "metrics.jsonl"
    try:
        steps = sum(1 for _ in metrics.open("rb"))
        checkpoints = list((folder / "checkpoints").rglob("*"))
        workers = sum(pss_mb(child) for child in process.children(recursive=True))
        return Seen(steps, pss_mb(process), workers, size_mb(list(folder.glob("*.jsonl"))), size_mb(checkpoints))
    except (OSError, psutil.Error):
        return None


def watched(steps: int) -> list[Seen]:
    with tempfile.TemporaryDirectory() as place:
        Path(place, "smoke.yaml").write_text(
            RECIPE.read_text("utf-8").replace("data/", f"{RECIPE.parent}/data/"), "utf-8"
        )
        command = [sys.executable, "-m", "grpo_kit", "run", "smoke.yaml", f"grpo.max_steps={steps}", *SETTINGS]
        with Path(place, "log.txt").open("w") as log:
            run = subprocess.Popen(command, cwd=place, stdout=log, stderr=subprocess.STDOUT, env=os.environ.copy())
        seen = []
        while run.poll() is None:
            time.sleep(1)
            found = look(psutil.Process(run.pid), Path(place, "runs/smoke")) if run.poll() is None else None
            if found is not None:
                seen.append(found)
        if run.returncode not in (0, 1) or not seen:
            raise SystemExit(Path(place, "log.txt").read_text()[-2000:])
    return seen


def tenths(seen: list[Seen], steps: int) -> list[Seen]:
    """One for each tenth of the run that was seen: the medians, and the sizes at its end."""
    found = []
    for tenth in range(10):
        part = [one for one in seen if tenth * steps / 10 < one.step <= (tenth + 1) * steps / 10]
        if part:
            last = part[-1]
            found.append(
                Seen(
                    last.step,
                    median(one.process for one in part),
                    median(one.workers for one in part),
                    last.logs,
                    last.checkpoints,
                )
            )
    return found


def growth(seen: list[Seen], steps: int) -> float:
    """Of all memory, by a straight line through what was seen from a fifth of the run on, without its ending."""
    training = [one for one in seen if steps / 5 <= one.step < steps]
    slope, start = np.polyfit([one.step for one in training], [one.process + one.workers for one in training], 1)
    return float(slope * steps * 0.8 / (start + slope * steps / 5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1000, help="optimizer steps (default 1000)")
    parser.add_argument("--json", type=Path, help="write machine, versions and all that was seen to this file")
    given = parser.parse_args()
    facts = machine()
    print("\n".join(f"{key:<16} {value}" for key, value in facts.items()))
    seen = watched(given.steps)
    print("to step    process MB    workers MB    logs MB    checkpoints MB")
    parts = tenths(seen, given.steps)
    for one in parts:
        print(f"{one.step:>7}{one.process:>14.0f}{one.workers:>14.0f}{one.logs:>11.1f}{one.checkpoints:>18.1f}")
    grown = growth(seen, given.steps)
    print(f"memory from a fifth of the run to its last step: {grown:+.1%}; {'flat' if grown <= FLAT else 'NOT FLAT'}")
    if given.json:
        given.json.write_text(json.dumps({**facts, "seen": [asdict(one) for one in seen]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
