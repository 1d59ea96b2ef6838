"""Whole runs through the command line, on the built-in model, for the tests that look at what a run leaves behind."""

import json
import shutil
import tempfile
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from grpo_kit.cli import main
from grpo_kit.run.run_dir import RunDir

DATA = Path(__file__).parents[1] / "recipes" / "data"

RECIPE = f"""
model: builtin:tiny
dataset: {{path: {DATA}/sums_train.jsonl, prompt: '{{question}}', limit: 21}}
eval_dataset: {{path: {DATA}/sums_test.jsonl, limit: 8}}
evaluation: {{samples: 2}}
rewards: {{accuracy: 1.0, format: {{weight: 0.5, style: boxed}}}}
grpo:
  max_steps: 4
  learning_rate: 1e-4
  warmup_steps: 0
  num_generations: 4
  per_device_train_batch_size: 8
  gradient_accumulation_steps: 2
  max_completion_length: 16
  save_steps: 2
"""


_made = tempfile.TemporaryDirectory(prefix="grpo-kit-runs-")


def run(*arguments: str) -> int:
    """The exit code of `grpo-kit run ...`."""
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    return int(ended.value.code or 0)


def finished(name: str, *settings: str) -> None:
    """`runs/NAME`, as a run of RECIPE with these settings leaves it: made once, and copied from then on."""
    shutil.copytree(_finished(settings), Path("runs") / name)


@cache
def _finished(settings: tuple[str, ...]) -> Path:
    folder = Path(_made.name) / str(len(list(Path(_made.name).iterdir())))
    folder.mkdir()
    with chdir(folder):
        Path("sums.yaml").write_text(RECIPE)
        assert run("sums.yaml", *settings) in (0, 1)
    return folder / "runs" / "sums"


def summary(name: str) -> dict:
    return json.loads((Path("runs") / name / "summary.json").read_text())


def lines(name: str, file: str) -> list[dict]:
    return list(RunDir(Path("runs") / name).lines(file))


def learned(name: str, file: str) -> list[dict[str, Any]]:
    """The records of a run's log without what differs from machine to machine: times."""
    timed = ("kit/seconds", "step_time", "epoch")
    return [{k: v for k, v in record.items() if not k.startswith(timed)} for record in lines(name, file)]


def weights(name: str) -> dict[str, torch.Tensor]:
    (file,) = (Path("runs") / name / "final").glob("*.safetensors")  # of the model, or of its adapter
    return load_file(file)


def same_weights(one: str, other: str) -> bool:
    first, second = weights(one), weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[key], second[key]) for key in first)
