"""In the parent process: the kit (`fast: true`) beside bare TRL (`fast: false`), step by step in turn."""

import multiprocessing
import os
import platform
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

Step = dict[str, Any]
"""The line of `metrics.jsonl` of one step, with `wall_s` and `tokens_per_s`."""

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # of the children too, as the command line sets it
os.environ.setdefault("HF_DATASETS_DISABLE_PROGRESS_BARS", "1")


class Ended(SystemExit):
    """A child process ended before it was told to."""


class Child:
    """A process that trains recipes step by step. `fast: true` and `fast: false` have one each."""

    def __init__(self, fast: bool, memory_gb: float = 0.0):
        spawning = multiprocessing.get_context("spawn")
        self._pipe, theirs = spawning.Pipe()
        self._process = spawning.Process(target=_serve, args=(theirs, fast, memory_gb))
        self._process.start()
        theirs.close()
        self._name = f"fast: {str(fast).lower()}"

    def build(self, recipe: Path, overrides: Sequence[str]) -> dict[str, Any]:
        """Load a recipe up to its first step."""
        self._pipe.send((recipe, [*overrides]))
        return self._receive()

    def step(self) -> Step:
        self._pipe.send("go")
        return self._receive()

    def memory(self) -> dict[str, float]:
        """`peak_gb` and `above_start_gb`, its difference to when the trainer was built; after the last step."""
        return self._receive()

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self._pipe.close()  # which ends it, wherever it waits
        self._process.join()

    def _receive(self) -> Any:
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionError):
            self._process.join()
            code = self._process.exitcode
            killed = "; the kernel killed it, so memory ran out: --one-at-a-time needs less" if code == -9 else ""
            raise Ended(f"the process with {self._name} ended (exit code {code}){killed}; it says why above") from None


def _serve(pipe: Any, fast: bool, memory_gb: float) -> None:
    from stepping import serve  # torch and TRL, which the parent does without

    serve(pipe, fast, memory_gb)


@dataclass(frozen=True)
class Measured:
    """The steps of one recipe, warm-up left out, `kit[i]` beside `bare[i]`; and of each the memory and what it said."""

    kit: list[Step]
    bare: list[Step]
    memory: dict[str, dict[str, float]]
    built: dict[str, dict[str, Any]]

    def ratios(self, key: str) -> list[float]:
        return [bare[key] / kit[key] for kit, bare in zip(self.kit, self.bare, strict=True)]

    def same_rewards(self) -> bool:
        return [step["reward"] for step in self.kit] == [step["reward"] for step in self.bare]

    def flat_share(self) -> float:
        """The mean share of flat groups, as both saw it."""
        shares = [step["kit/flat_group_share"] for step in (*self.kit, *self.bare)]
        return sum(shares) / len(shares)


def measure(recipe: Path, overrides: Sequence[str], pairs: int, kit: Child, bare: Child) -> Measured:
    """Alternate `pairs` steps of each after one step of warm-up; who is first changes, so that drift cancels out."""
    children = {"kit": kit, "bare": bare}
    settings = [*overrides, f"grpo.max_steps={pairs + 1}"]
    said = {name: child.build(recipe, settings) for name, child in children.items()}
    steps: dict[str, list[Step]] = {"kit": [], "bare": []}
    for at in range(pairs + 1):
        for name in ("kit", "bare") if at % 2 else ("bare", "kit"):
            steps[name].append(children[name].step())
    memory = {name: child.memory() for name, child in children.items()}
    return Measured(steps["kit"][1:], steps["bare"][1:], memory, said)


def measure_apart(
    recipe: Path, overrides: Sequence[str], pairs: int, names: Sequence[str] = ("kit", "bare"), memory_gb: float = 0.0
) -> Measured:
    """The same with one process after the other, for where memory does not hold both; or of one of them alone.

    `memory_gb` is all that a card may give to each, 0 for all it has. Raises Ended where one comes to no end.
    """
    settings = [*overrides, f"grpo.max_steps={pairs + 1}"]
    found = Measured([], [], {}, {})
    for name in names:
        with Child(name == "kit", memory_gb) as child:
            found.built[name] = child.build(recipe, settings)
            {"kit": found.kit, "bare": found.bare}[name].extend([child.step() for _ in range(pairs + 1)][1:])
            found.memory[name] = child.memory()
    return found


def spread(ratios: Sequence[float]) -> str:
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def machine() -> dict[str, Any]:
    """Commit, machine and versions: what a figure has to name."""
    here = Path(__file__).parent
    git = subprocess.run(["git", "-C", str(here), "describe", "--always", "--dirty"], capture_output=True, text=True)
    cpuinfo = Path("/proc/cpuinfo")
    names = [line.split(":")[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
    return {
        "commit": git.stdout.strip() or "unknown",
        "cpu": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS"),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in ("torch", "transformers", "trl", "peft", "accelerate")},
    }
