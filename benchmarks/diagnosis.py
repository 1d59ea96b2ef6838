r"""What a look at a run's history costs, at a step that is far into it.

    python benchmarks/diagnosis.py [--steps 500] [--looks 200]

`record` is adding a step to the history, `diagnose` all symptoms at its end; healthy, and with a fault of each kind,
which costs more because it is described. Milliseconds of one thread's own time, so a busy machine counts for little.
"""

import argparse
import sys
import time
from pathlib import Path
from statistics import median

from pairs import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from histories import FACTS, FAULTS, Made, healthy

from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.history import History


def times(run: Made, looks: int) -> tuple[list[float], list[float]]:
    """Milliseconds of adding each of the last steps, and of looking at the history after it."""
    steps = run.steps
    history = History(steps[:-looks], run.evaluations)
    added, looked = [], []
    for step in steps[-looks:]:
        begun = time.thread_time()
        history.add(step)
        middle = time.thread_time()
        diagnose(history, FACTS)
        added.append(1000 * (middle - begun))
        looked.append(1000 * (time.thread_time() - middle))
    return added, looked


def longer(run: Made, steps: int) -> Made:
    """The run with its last step repeated, so that what was planted in it stays."""
    more = tuple({**run.steps[-1], "step": step} for step in range(len(run.steps) + 1, steps + 1))
    return Made((*run.steps, *more), run.evaluations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--looks", type=int, default=200)
    given = parser.parse_args()
    print("\n".join(f"{key:<16} {value}" for key, value in machine().items()))
    runs = {"healthy": healthy(0, given.steps)}
    runs |= {name: longer(made(0, 60, strengths[3]), given.steps) for name, (made, strengths, _) in FAULTS.items()}
    print(f"{'ms at step ' + str(given.steps):<22}{'record':>8}{'diagnose':>10}{'p95':>8}{'most':>8}")
    for name, run in runs.items():
        added, looked = times(run, min(given.looks, given.steps // 2))
        p95 = sorted(looked)[int(0.95 * len(looked))]
        print(f"{name:<22}{median(added):>8.3f}{median(looked):>10.3f}{p95:>8.3f}{max(looked):>8.3f}")


if __name__ == "__main__":
    main()
