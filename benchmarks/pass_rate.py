r"""Steps to a target accuracy with and without `dataset.pass_rate`, on data of which most prompts are useless.

    python benchmarks/pass_rate.py [--seeds 1 2 3] [--steps 120] [--target 0.75] [--useless 0.7] [--rows 320]

The built-in model learns sums as in recipes/smoke.yaml, but with accuracy as the only reward; the gold answer of the
useless prompts is wrong, so that their groups are always flat. `grpo-kit preflight` samples all rows; the filtered run
keeps those with a pass rate of 0.1 to 0.9. Held-out accuracy (256 prompts x 2) is measured every 5 steps. Both runs of
a seed follow each other. The preflight's completions are counted beside: they are what the filter costs.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from dynamic_sampling import RECIPE, data

FILTER = ["dataset.pass_rate=[0.1,0.9]", "dataset.pass_rate_file=preflight/recipe/rows.jsonl"]
GROUP, PROMPTS = 8, 8


@dataclass
class Reached:
    """The step at which the target was first met (None: not within the steps), and the accuracy in the end."""

    steps: int | None
    accuracy: float


def command(folder: Path, *arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "grpo_kit", *arguments], cwd=folder, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(arguments)}\n{done.stderr}")


def run(folder: Path, name: str, seed: int, steps: int, target: float, *settings: str) -> Reached:
    own = [f"seed={seed}", f"grpo.max_steps={steps}", f"name={name}", *settings]
    command(folder, "run", "recipe.yaml", *own)
    records = (folder / "runs" / name / "eval.jsonl").read_text().splitlines()
    measured = [json.loads(line) for line in records]
    first = next((e["step"] for e in measured if e["step"] and e["accuracy"] >= target), None)
    return Reached(first, measured[-1]["accuracy"])


def both(seed: int, given: argparse.Namespace) -> tuple[Reached, Reached, int]:
    """The unfiltered run, the filtered one, and how many rows the filter kept."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data(given.useless, folder)
        (folder / "recipe.yaml").write_text(RECIPE.replace("'{question}'", f"'{{question}}', limit: {given.rows}"))
        command(folder, "preflight", "recipe.yaml", f"seed={seed}", "--rows", str(given.rows), "--samples", str(GROUP))
        rows = [json.loads(line) for line in (folder / "preflight/recipe/rows.jsonl").read_text().splitlines()]
        kept = sum(0.1 <= row["pass_rate"] <= 0.9 for row in rows)
        plain = run(folder, "plain", seed, given.steps, given.target)
        return plain, run(folder, "filtered", seed, given.steps, given.target, *FILTER), kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--target", type=float, default=0.75)
    parser.add_argument("--useless", type=float, default=0.7)
    parser.add_argument("--rows", type=int, default=320)
    given = parser.parse_args()
    print(f"{given.rows} rows, {given.useless:.0%} useless; the preflight samples {given.rows * GROUP} completions, "
          f"as many as {given.rows / PROMPTS:.0f} steps")  # fmt: skip
    print(f"| seed | rows kept | steps to {given.target}: all rows | filtered | ratio | accuracy in the end: all rows "
          "| filtered |")  # fmt: skip
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for seed in given.seeds:
        plain, filtered, kept = both(seed, given)
        reached = plain.steps and filtered.steps
        ratios += [filtered.steps / plain.steps] if plain.steps and filtered.steps else []
        print(f"| {seed} | {kept} | {plain.steps or '-'} | {filtered.steps or '-'} "
              f"| {ratios[-1] if reached else float('nan'):.2f} | {plain.accuracy:.2f} | {filtered.accuracy:.2f} |",
              flush=True)  # fmt: skip
    if ratios:
        print(f"median ratio {median(ratios):.2f}")


if __name__ == "__main__":
    main()
