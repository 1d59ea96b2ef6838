r"""Predicted and measured peak memory of `grpo-kit run`.

    python benchmarks/memory.py RECIPE [--steps 2] [--json FILE] [KEY=VALUE ...]

Predicts as `grpo-kit check` does, then runs some steps in a process of its own, without held-out measurements and
checkpoints. Every completion is as long as it may be and no group is flat, so that the largest batches are met:
`min_new_tokens` is set, and the reward is a number of its own for each completion. The measured peak is the process's
resident memory on a CPU, and what torch has allocated on a card.
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from grpo_kit.prepare.prepare import prepare
from grpo_kit.recipe.recipe import load_recipe

REWARD = '''"""No group is flat: a number that hardly two completions share."""

import zlib


def spread(completion):
    return zlib.crc32(completion.encode()) / 2**32
'''


def compared(recipe: Path, overrides: list[str], steps: int, folder: Path) -> dict[str, Any]:
    """The prediction by term, the measured peak and their ratio, from one run in `folder`."""
    reward = folder / "spread.py"
    reward.write_text(REWARD)
    settings = [
        "name=bench", "eval_dataset=null", "evaluation={}", f"rewards={{spread: {{weight: 1.0, file: {reward}}}}}",
        f"grpo.max_steps={steps}", "grpo.warmup_steps=0", "grpo.save_strategy='no'", *overrides,
    ]  # fmt: skip
    length = prepare(load_recipe(recipe, settings)).args.max_completion_length
    settings.append(f"grpo.generation_kwargs={{min_new_tokens: {length}}}")
    memory = prepare(load_recipe(recipe, settings)).plan.memory
    command = [sys.executable, "-m", "grpo_kit", "run", str(recipe), *settings]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    summary = folder / "runs" / "bench" / "summary.json"
    if done.returncode not in (0, 1) or not summary.is_file():
        raise SystemExit(f"{' '.join(command)}\n{done.stdout}\n{done.stderr}")
    measured = json.loads(summary.read_text())["peak_memory_gb"]
    return {**dataclasses.asdict(memory), "predicted": memory.total, "measured": measured}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--steps", type=int, default=2, help="optimizer steps (default 2)")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    given = parser.parse_intermixed_args()
    recipe = given.recipe.resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = compared(recipe, given.overrides, given.steps, Path(folder))
        os.chdir("/")
    print(
        f"predicted {found['predicted']:.2f} GB ({found['phase']}), measured {found['measured']:.2f} GB, "
        f"ratio {found['predicted'] / found['measured']:.2f}"
    )
    if given.json:
        given.json.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
