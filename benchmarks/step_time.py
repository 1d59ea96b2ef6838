r"""Step time and memory of `grpo-kit run` with `fast: true` and `fast: false`, which is TRL's own trainer.

    python benchmarks/step_time.py RECIPE [--runs 5] [--steps 3] [KEY=VALUE ...]

The two run in turn, each in a process of its own, with the same seed and data. The first step of each is left out: it
loads and warms. Printed are the ratios `fast: false` / `fast: true`, above 1 the kit is faster, with their spread over
the runs, and whether both saw the same rewards. `--json FILE` also writes all numbers.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

PARTS = ("kit/seconds/step", "kit/seconds/generation", "kit/seconds/update", "kit/seconds/rewards")


def measured(recipe: Path, overrides: list[str], steps: int, fast: bool, folder: Path) -> dict[str, Any]:
    """One run in a folder of its own: medians over its steps but the first, peak memory, rewards."""
    settings = [f"fast={str(fast).lower()}", f"grpo.max_steps={steps}", "eval_dataset=null", "grpo.save_strategy='no'"]
    command = [sys.executable, "-m", "grpo_kit", "run", str(recipe), "name=bench", *settings, *overrides]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    file = folder / "runs" / "bench" / "metrics.jsonl"
    if done.returncode not in (0, 1) or not file.is_file():
        raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
    metrics = [json.loads(line) for line in file.read_text().splitlines()]
    summary = json.loads((folder / "runs" / "bench" / "summary.json").read_text())
    times = {part: median(m[part] for m in metrics[1:]) for part in PARTS}
    return {**times, "peak_memory_gb": summary["peak_memory_gb"], "rewards": [m["reward"] for m in metrics]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs (default 5)")
    parser.add_argument("--steps", type=int, default=3, help="optimizer steps of each (default 3)")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    given = parser.parse_args()
    pairs = []
    for _ in range(given.runs):
        both = {}
        for fast in (False, True):
            with tempfile.TemporaryDirectory() as folder:
                both[fast] = measured(given.recipe.resolve(), given.overrides, given.steps, fast, Path(folder))
        pairs.append(both)
    for part in (*PARTS, "peak_memory_gb"):
        ratios = sorted(both[False][part] / both[True][part] for both in pairs)
        print(f"{part:<24} ratio {median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})")
    same = all(both[False]["rewards"] == both[True]["rewards"] for both in pairs)
    print(f"{len(pairs)} pairs of {given.steps} steps; rewards of both the same: {'yes' if same else 'no'}")
    if given.json:
        given.json.write_text(json.dumps([{str(fast): run for fast, run in both.items()} for both in pairs], indent=1))


if __name__ == "__main__":
    main()
