r"""What the kit does in a step besides generation and update, timed at its own hooks in a real run of a recipe.

    python benchmarks/overhead.py RECIPE [KEY=VALUE ...] [--steps 20] [--json FILE]

`rewards` is all of the scoring, worker processes included, `rollout` what is written of each completion and computed
from the scores, `log` metrics, diagnosis and the console line, `callbacks` all else that is called at each step. The
first step is left out: it starts the workers. Evaluation and checkpoints are off. Times are milliseconds a step.
"""

import argparse
import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from statistics import fmean, median
from typing import Any

from pairs import machine

PARTS = ("rewards", "rollout", "log", "callbacks")


class Stopwatch:
    """Seconds by part of the step that is going on; `steps` has one mapping for each that is over."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._spent: dict[str, float] = defaultdict(float)
        self._begun = time.perf_counter()

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._spent[part] += time.perf_counter() - started

        return call

    def next_step(self) -> None:
        """What was spent since the last call is one step's."""
        now = time.perf_counter()
        self.steps.append({**dict.fromkeys(PARTS, 0.0), **self._spent, "step": now - self._begun})
        self._spent.clear()
        self._begun = now


def measured(recipe: Path, overrides: list[str], steps: int) -> list[dict[str, float]]:
    """Train a recipe for so many steps after one of warm-up; the times of each."""
    from stepping import built
    from transformers import TrainerCallback

    from grpo_kit.rewards.workers import shared_workers

    watch = Stopwatch()

    class Boundary(TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            watch.next_step()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            watch.next_step()

    settings = [*overrides, f"grpo.max_steps={steps + 1}"]
    with closing(shared_workers()), built(recipe, settings, [Boundary()]) as (_, _, recorder, trainer):
        observed: Any = trainer
        observed._calculate_rewards = watch.timed("rewards", observed._calculate_rewards)
        observed._on_rollout = watch.timed("rollout", observed._on_rollout)
        for callback in trainer.callback_handler.callbacks:
            if type(callback).__module__.startswith("grpo_kit"):
                for event in ("on_step_begin", "on_step_end", "on_log"):
                    part = "log" if callback is recorder and event == "on_log" else "callbacks"
                    setattr(callback, event, watch.timed(part, getattr(callback, event)))
        trainer.train()
    return watch.steps[2:]  # before the first step, and the first


def report(steps: Sequence[dict[str, float]]) -> None:
    whole = [1000 * sum(step[part] for part in PARTS) for step in steps]
    print(f"{'ms a step':<12}{'median':>9}{'mean':>9}{'p95':>9}   share of the step")
    columns = {part: [1000 * step[part] for step in steps] for part in PARTS}
    for name, values in {**columns, "all": whole, "step": [1000 * step["step"] for step in steps]}.items():
        share = sum(values) / sum(1000 * step["step"] for step in steps)
        p95 = sorted(values)[min(int(0.95 * len(values)), len(values) - 1)]
        print(f"{name:<12}{median(values):>9.2f}{fmean(values):>9.2f}{p95:>9.2f}   {share:.2%}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--steps", type=int, default=20, help="optimizer steps after one of warm-up (default 20)")
    parser.add_argument("--json", type=Path, help="write machine, versions and every step to this file")
    given = parser.parse_args()
    facts = machine()
    print("\n".join(f"{key:<16} {value}" for key, value in facts.items()))
    steps = measured(given.recipe, given.overrides, given.steps)
    report(steps)
    if given.json:
        given.json.write_text(json.dumps({**facts, "recipe": str(given.recipe), "seconds": steps}, indent=1) + "\n")


if __name__ == "__main__":
    main()
