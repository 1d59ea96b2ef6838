r"""How step time grows: the kit (`fast: true`) beside bare TRL (`fast: false`) on a small random model.

    python benchmarks/curves.py [group|prompt|completion|rows ...] [--pairs 3] [--most-rows 1000000] [--json FILE]

group       group size 4 to 64 at 64 completions a step: prompts of 64 tokens, completions of 32
prompt      prompts of 16 to 1024 tokens: 4 of them x 8 completions of 32 tokens
completion  completions of 8 to 512 tokens: 4 prompts of 64 tokens x 8
rows        from the command to the end of the first step, and the peak memory, with 1,000 to 1,000,000 data rows; bare
            is a script of a few lines: datasets, GRPOTrainer, one step

The tables are markdown, for docs/speed.md. No group is flat. Ratios are bare / kit: medians of the pairs of steps, with
the least and the greatest. A ratio that falls along a curve means that the kit grows faster than bare TRL.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from models import SMALL, question, save_random_model
from pairs import Child, machine, measure, spread


@dataclass(frozen=True)
class Point:
    """One step: `prompts` x `group` completions; tokens of a prompt and of a completion."""

    prompts: int = 4
    group: int = 8
    prompt: int = 64
    completion: int = 32


CURVES: dict[str, list[Point]] = {
    "group": [Point(prompts=64 // size, group=size) for size in (4, 8, 16, 32, 64)],
    "prompt": [Point(prompt=tokens) for tokens in (16, 32, 64, 128, 256, 512, 1024)],
    "completion": [Point(completion=tokens) for tokens in (8, 16, 32, 64, 128, 256, 512)],
}
PARTS = {"step": "wall_s", "generation": "kit/seconds/generation", "update": "kit/seconds/update"}
ROWS = (1_000, 10_000, 100_000, 1_000_000)
MICRO_BATCH = 8

BARE = """
import sys
from datasets import load_dataset
from trl import GRPOConfig, GRPOTrainer
model, rows, out = sys.argv[1:]
data = load_dataset("json", data_files=rows, split="train", cache_dir=out)
data = data.map(lambda row: {"prompt": [{"role": "user", "content": row["question"]}]}, remove_columns=["question"])
args = GRPOConfig(output_dir=out, use_cpu=True, bf16=False, max_steps=1, per_device_train_batch_size=8,
                  gradient_accumulation_steps=4, num_generations=8, max_completion_length=8, report_to=[],
                  gradient_checkpointing=False, save_strategy="no")
reward = lambda completions, **columns: [float(len(c[0]["content"])) for c in completions]
GRPOTrainer(model=model, reward_funcs=reward, args=args, train_dataset=data).train()
"""


def recipe_of(point: Point, folder: Path, rows: int) -> Path:
    """A recipe with its data, in a folder that has the model."""
    file = folder / f"{rows}-{point.prompt}.jsonl"
    if not file.exists():
        with file.open("w") as out:
            for row in range(rows):
                out.write(json.dumps({"question": question(row, point.prompt)}) + "\n")
    tree: dict[str, Any] = {
        "model": str(folder / "model"),
        "dataset": {"path": str(file), "prompt": "{question}"},
        "rewards": {"planned": {"weight": 1.0, "file": str(Path(__file__).parent / "rewards" / "planned.py")}},
        "grpo": {
            "num_generations": point.group,
            "per_device_train_batch_size": MICRO_BATCH,
            "gradient_accumulation_steps": point.prompts * point.group // MICRO_BATCH,
            "max_completion_length": point.completion,
            "generation_kwargs": {"min_new_tokens": point.completion},
        },
    }
    recipe = folder / "recipe.yaml"
    recipe.write_text(json.dumps(tree))
    return recipe


def curve(name: str, pairs: int, folder: Path, kit: Child, bare: Child) -> list[dict[str, Any]]:
    """Measure and print one of the step-time curves."""
    head = ("kit", "bare", "bare / kit (min to max)", "generation", "update")
    print(f"\n| {name} | {' | '.join(head)} |\n|---{'|---' * len(head)}|", flush=True)
    records = []
    for point in CURVES[name]:
        found = measure(recipe_of(point, folder, rows=64), [], pairs, kit, bare)
        times = [median(step["wall_s"] for step in steps) for steps in (found.kit, found.bare)]
        ratios = {part: found.ratios(key) for part, key in PARTS.items()}
        parts = " | ".join(f"{median(ratios[part]):.2f}" for part in ("generation", "update"))
        whole = f"{times[0]:.3f} s | {times[1]:.3f} s | {spread(ratios['step'])}"
        print(f"| {getattr(point, name)} | {whole} | {parts} |", flush=True)
        records.append({**asdict(point), "kit_s": times[0], "bare_s": times[1], "ratios": ratios})
    return records


def rows_curve(most: int, folder: Path) -> list[dict[str, Any]]:
    """Start-up: seconds and memory of whole commands, once each."""
    head = ("kit", "bare", "bare / kit", "kit, peak", "bare, peak", "bare / kit")
    print(f"\n| rows | {' | '.join(head)} |\n|---{'|---' * len(head)}|", flush=True)
    records = []
    for rows in ROWS:
        if rows > most:
            continue
        recipe = recipe_of(Point(prompt=16, completion=8), folder, rows)
        settings = ["grpo.max_steps=1", "grpo.save_strategy='no'", f"name=rows-{rows}"]
        kit = command([sys.executable, "-m", "grpo_kit", "run", str(recipe), *settings], folder)
        data = folder / f"{rows}-16.jsonl"
        bare = command([sys.executable, "-c", BARE, str(folder / "model"), str(data), str(folder / "bare")], folder)
        print(
            f"| {rows:,} | {kit[0]:.1f} s | {bare[0]:.1f} s | {bare[0] / kit[0]:.2f} "
            f"| {kit[1]:.2f} GB | {bare[1]:.2f} GB | {bare[1] / kit[1]:.2f} |",
            flush=True,
        )
        records.append({"rows": rows, "kit_s": kit[0], "bare_s": bare[0], "kit_gb": kit[1], "bare_gb": bare[1]})
    return records


def command(arguments: list[str], folder: Path) -> tuple[float, float]:
    """Seconds that a command takes, and the most memory (1e9 bytes) of its process, those it starts not counted."""
    started = time.perf_counter()
    process = subprocess.Popen(arguments, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    peak = 0
    status = Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        for line in status.read_text().splitlines() if status.exists() else ():
            if line.startswith("VmHWM"):
                peak = max(peak, int(line.split()[1]))
        time.sleep(0.05)
    assert process.stderr is not None
    said = process.stderr.read()
    if process.returncode not in (0, 1) or not peak or "Error" in said:
        raise SystemExit(f"{' '.join(arguments)}\n{said}")
    return time.perf_counter() - started, peak * 1024 / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("curves", nargs="*", metavar="CURVE")
    parser.add_argument("--pairs", type=int, default=3, help="pairs of steps at each point, after one of warm-up")
    parser.add_argument("--most-rows", type=int, default=ROWS[-1], help="leave out longer data sets")
    parser.add_argument("--json", type=Path, help="write machine, versions and every ratio to this file")
    given = parser.parse_args()
    names = [*CURVES, "rows"]
    unknown = [name for name in given.curves if name not in names]
    if unknown:
        parser.error(f"no curve {', '.join(unknown)}; there are {', '.join(names)}")
    facts = machine()
    print("\n".join(f"{key:<16} {value}" for key, value in facts.items()))
    records = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_random_model(folder / "model", SMALL)
        steps = [name for name in CURVES if name in (given.curves or names)]
        if steps:
            with Child(fast=True) as kit, Child(fast=False) as bare:
                for name in steps:
                    records[name] = curve(name, given.pairs, folder, kit, bare)
        if "rows" in (given.curves or names):
            records["rows"] = rows_curve(given.most_rows, folder)
    if given.json:
        given.json.write_text(json.dumps({**facts, "curves": records}, indent=1) + "\n")


if __name__ == "__main__":
    main()
