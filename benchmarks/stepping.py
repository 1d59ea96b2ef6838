"""In the child process: a recipe's own training, which waits before each step until it is told to take it."""

import contextlib
import gc
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from grpo_kit.console import Console
from grpo_kit.prepare.prepare import Prepared, prepare
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.rewards.scoring import Scorer
from grpo_kit.rewards.workers import shared_workers
from grpo_kit.run.record import Recorder
from grpo_kit.run.run_dir import RunDir
from grpo_kit.train import build_trainer
from grpo_kit.trainer.trainer import ObservedTrainer

warnings.filterwarnings("ignore", category=FutureWarning)  # of the libraries, about each other

ALWAYS = ["eval_dataset=null", "grpo.save_strategy='no'", "grpo.logging_steps=1"]
"""Nothing but steps, and a line of metrics for each."""


@contextmanager
def built(
    recipe: Path, overrides: list[str], first: list[TrainerCallback]
) -> Iterator[tuple[Prepared, RunDir, Recorder, ObservedTrainer]]:
    """A recipe's trainer as `grpo-kit run` makes it, in a folder that goes with it; what it says goes there too."""
    prepared = prepare(load_recipe(recipe, [*overrides, *ALWAYS]))
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "console.txt").open("w") as said:
        run = RunDir(Path(folder))
        recorder = Recorder(prepared, run, Console())
        scorer = Scorer(prepared.rewards, prepared.recipe.on_reward_error == "skip")
        with contextlib.redirect_stdout(said):
            yield prepared, run, recorder, build_trainer(prepared, scorer, run, recorder.on_rollout, [*first, recorder])


class Gate(TrainerCallback):
    """Before each step: report the one before, and wait for a word. `wall_s` has all that happened in between.

    `tokens_per_s` counts the completions' tokens. `run` is to be set before the first step.
    """

    run: RunDir
    completions: int

    def __init__(self, pipe: Connection):
        self._pipe, self._begun = pipe, 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step:
            self._report()
        self._pipe.recv()
        self._begun = time.perf_counter()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._report()

    def _report(self) -> None:
        wall_s = time.perf_counter() - self._begun
        step = list(self.run.lines("metrics.jsonl"))[-1]
        tokens_per_s = self.completions * step["completions/mean_length"] / wall_s
        self._pipe.send({**step, "wall_s": wall_s, "tokens_per_s": tokens_per_s})


def serve(pipe: Connection, fast: bool, memory_gb: float) -> None:
    """Train one recipe after another with `fast` or without, stepping when told to; until the pipe is closed.

    `memory_gb` is all that the card may give to this process, 0 for all it has.
    """
    if memory_gb and torch.cuda.is_available():
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(memory_gb * 1e9 / whole, 1.0))
    with contextlib.closing(shared_workers()), contextlib.suppress(EOFError):
        while True:
            recipe, overrides = pipe.recv()
            gate = Gate(pipe)
            with built(recipe, [*overrides, f"fast={str(fast).lower()}"], [gate]) as (prepared, run, _, trainer):
                gate.run, gate.completions = run, prepared.plan.completions_per_step
                loaded_gb, start_gb = begin_peak()
                pipe.send(
                    {
                        "threads": torch.get_num_threads(),
                        "slow_because": trainer.slow_because,
                        "predicted_gb": prepared.plan.memory.total,
                    }
                )
                trainer.train()
                peak_gb = peak_memory_gb()
                pipe.send({"peak_gb": max(peak_gb, loaded_gb), "above_start_gb": peak_gb - start_gb})
            del trainer, prepared
            gc.collect()


def begin_peak() -> tuple[float, float]:
    """The peak so far and what is held now; from here on the peak counts anew, without that of loading."""
    so_far = peak_memory_gb()
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return so_far, torch.cuda.memory_allocated() / 1e9
    Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM: proc_pid_clear_refs(5)
    return so_far, resident_gb("VmRSS")


def peak_memory_gb() -> float:
    """The most memory (1e9 bytes) that was taken from the card, or that this process held where there is none."""
    return torch.cuda.max_memory_reserved() / 1e9 if torch.cuda.is_available() else resident_gb("VmHWM")


def resident_gb(field: str) -> float:
    """VmRSS, what this process holds now, or VmHWM, the most it ever held, in 1e9 bytes."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{field}:")[1].split()[0]) * 1024 / 1e9
