r"""Steps and seconds to a target accuracy with and without `dynamic_sampling`, on data of which a share is useless.

    python benchmarks/dynamic_sampling.py [--seeds 1 2 3] [--steps 120] [--target 0.8] [--json FILE]

The built-in model learns sums as in recipes/smoke.yaml, but with accuracy as the only reward, so that a prompt whose
gold answer is wrong always has a flat group. 0, 50 and 80 % of the prompts are made so. Held-out accuracy (256 prompts
x 2) is measured every 5 steps; its time does not count. Seconds are the sums of the steps' own, as ratios to the plain
run of the same seed, which runs right before.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
RECIPE = f"""
model: builtin:tiny
dataset: {{path: train.jsonl, prompt: '{{question}}'}}
eval_dataset: {{path: {ROOT}/recipes/data/sums_test.jsonl}}
eval_every: 5
evaluation: {{samples: 2}}
rewards: {{accuracy: 1.0}}
samples: 1000
grpo:
  learning_rate: 2e-4
  warmup_steps: 5
  per_device_train_batch_size: 64
  gradient_accumulation_steps: 1
  max_completion_length: 24
  save_strategy: 'no'
"""
KINDS = {"plain": "null", "dynamic, 2 rounds": "{max_rounds: 2}", "dynamic, 4 rounds": "{max_rounds: 4}"}


@dataclass
class Reached:
    """When the target was first met (None: not within the steps), and what the whole run cost."""

    steps: int | None
    seconds: float | None
    accuracy: float
    all_seconds: float
    completions: float
    flat_left: float


def data(useless: float, folder: Path) -> None:
    """The smoke recipe's rows; of each ten, the given share has an answer that no sum of two numbers below 50 has."""
    rows = [json.loads(line) for line in (ROOT / "recipes/data/sums_train.jsonl").read_text().splitlines()]
    for number, row in enumerate(rows):
        if number % 10 < round(useless * 10):
            row["answer"] = str(5000 + number)
    (folder / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def run(kind: str, useless: float, seed: int, steps: int, target: float) -> Reached:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data(useless, folder)
        (folder / "recipe.yaml").write_text(RECIPE)
        settings = [f"seed={seed}", f"grpo.max_steps={steps}", f"dynamic_sampling={KINDS[kind]}", "name=run"]
        command = [sys.executable, "-m", "grpo_kit", "run", "recipe.yaml", *settings]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode not in (0, 1):
            raise SystemExit(f"{' '.join(command)}\n{done.stderr}")
        metrics, measured = (
            [json.loads(line) for line in (folder / "runs/run" / file).read_text().splitlines()]
            for file in ("metrics.jsonl", "eval.jsonl")
        )
    seconds = [m["kit/seconds/step"] for m in metrics]
    first = next((e["step"] for e in measured if e["step"] and e["accuracy"] >= target), None)
    prompts = sum(m.get("kit/sampling/prompts", 8) for m in metrics)
    left = [m.get("kit/sampling/flat_left_share", m["kit/flat_group_share"]) for m in metrics]
    return Reached(
        first, sum(seconds[:first]) if first else None, measured[-1]["accuracy"], sum(seconds), prompts * 8,
        sum(left) / len(left),
    )  # fmt: skip


def spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--target", type=float, default=0.8)
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    given = parser.parse_args()
    found: dict[tuple[float, str], list[Reached]] = {}
    for useless in (0.0, 0.5, 0.8):
        for seed in given.seeds:
            for kind in KINDS:
                found.setdefault((useless, kind), []).append(run(kind, useless, seed, given.steps, given.target))
    print(f"| useless prompts | | steps to {given.target} | seconds to it, of plain's | seconds of a step, of plain's "
          "| accuracy in the end | completions sampled | flat groups in the update |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|")
    for (useless, kind), runs in found.items():
        plain = found[useless, "plain"]
        pairs = list(zip(runs, plain, strict=True))
        steps = ", ".join("-" if r.steps is None else str(r.steps) for r in runs)
        to_target = [r.seconds / p.seconds for r, p in pairs if r.seconds and p.seconds]
        print(f"| {useless:.0%} | {kind} | {steps} | {spread(to_target) if to_target else '-'} "
              f"| {spread([r.all_seconds / p.all_seconds for r, p in pairs])} "
              f"| {spread([r.accuracy for r in runs])} | {spread([r.completions for r in runs])} "
              f"| {spread([r.flat_left for r in runs])} |")  # fmt: skip
    if given.json:
        rows = [{"useless": u, "kind": k, "runs": [asdict(r) for r in runs]} for (u, k), runs in found.items()]
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
