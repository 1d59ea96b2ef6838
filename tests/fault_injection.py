"""Runs that are killed, and resumed until they are done, against one that was left alone. Run by `make faults`.

Each case is a process of its own, `grpo-kit run`, on 20 steps of the built-in model with checkpoints every third step,
evaluations every seventh, and a reward that leaves a file while it is at work. The moment is one that can be seen from
outside (a checkpoint is being written, an evaluation has begun, the reward is at work), or a random time.
"""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from whole_run import DATA, learned, lines, same_weights

STEPS = 20
BOUND_S = 300

RECIPE = f"""
model: builtin:tiny
dataset: {{path: {DATA}/sums_train.jsonl, prompt: '{{question}}', limit: 40}}
eval_dataset: {{path: {DATA}/sums_test.jsonl, limit: 16}}
evaluation: {{samples: 2}}
eval_every: 7
rewards: {{accuracy: 1.0, busy: 0.2}}
grpo:
  max_steps: {STEPS}
  learning_rate: 1e-4
  warmup_steps: 0
  num_generations: 4
  per_device_train_batch_size: 8
  gradient_accumulation_steps: 2
  steps_per_generation: 4
  max_completion_length: 16
  save_steps: 3
"""

BUSY = '''"""Longer is better, and slowly judged."""

import time
from pathlib import Path

AT_WORK = Path(__file__).parents[1] / "at_work"


def busy(completion: str) -> float:
    AT_WORK.touch()
    time.sleep(0.002)
    AT_WORK.unlink(missing_ok=True)
    return min(len(completion) / 40, 1.0)
'''

KILLS = [
    *[("kill -9", "a checkpoint is written", seed) for seed in range(10)],
    *[("kill -9", "an evaluation is going on", seed) for seed in range(4)],
    *[("kill -9", "a reward is at work", seed) for seed in range(4)],
    *[("kill -9", "at random", seed) for seed in range(12)],
    *[("SIGTERM", "at random", 100 + seed) for seed in range(5)],
    *[("Ctrl-C", "at random", 200 + seed) for seed in range(5)],
]
SIGNALS = {"kill -9": signal.SIGKILL, "SIGTERM": signal.SIGTERM, "Ctrl-C": signal.SIGINT}


def start() -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "grpo_kit", "run", "sums.yaml", "--resume"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with Path("log.txt").open("a") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, text=True)


def steps_done() -> int:
    return sum(1 for _ in lines("sums", "metrics.jsonl")) if Path("runs/sums").is_dir() else 0


def evaluating() -> bool:
    """A seventh step is done, and its measurement is not there yet."""
    measured = {record["step"] for record in lines("sums", "eval.jsonl")} if Path("runs/sums").is_dir() else set()
    return bool(steps_done() in (7, 14) and steps_done() not in measured)


def saving(seed: int) -> Callable[[], bool]:
    """A file of a checkpoint has just been made: which one, the seed says."""
    seen: set[Path] = set()
    wanted = 1 + random.Random(seed).randrange(40)

    def look() -> bool:
        for folder, _, files in os.walk("runs/sums/checkpoints"):  # what vanishes meanwhile is no error to it
            seen.update(Path(folder) / file for file in files)
        return len(seen) >= wanted

    return look


def moment(where: str, seed: int) -> Callable[[], bool]:
    draw = random.Random(seed)
    after = draw.randrange(1, STEPS - 1)
    if where == "a checkpoint is written":
        return saving(seed)
    if where == "an evaluation is going on":
        return evaluating
    if where == "a reward is at work":
        return lambda: steps_done() >= after and Path("at_work").exists()
    until = time.monotonic() + 8 + draw.uniform(0, 12)
    return lambda: time.monotonic() > until or steps_done() > after


def interrupt(process: "subprocess.Popen[str]", with_signal: int, when: Callable[[], bool]) -> bool:
    """Whether the signal came while the run was going on."""
    ends = time.monotonic() + BOUND_S
    while process.poll() is None and time.monotonic() < ends:
        if when():
            process.send_signal(with_signal)
            process.wait(60)
            return True
        time.sleep(0.0005)
    return False


def finished() -> int:
    """The exit code of the run, gone on with to its end."""
    return start().wait(BOUND_S)


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    project(folder)
    before = Path.cwd()
    os.chdir(folder)
    assert finished() in (0, 1), Path("log.txt").read_text()
    os.chdir(before)
    return folder


def project(folder: Path) -> None:
    (folder / "rewards").mkdir()
    (folder / "rewards/busy.py").write_text(BUSY)
    (folder / "sums.yaml").write_text(RECIPE)


@pytest.mark.parametrize(("how", "where", "seed"), KILLS)
def test_a_run_that_is_interrupted_ends_as_if_it_had_not_been(undisturbed, own_folder, how, where, seed):
    project(Path())
    hit = interrupt(start(), SIGNALS[how], moment(where, seed))
    at = steps_done()
    code = finished() if hit else 0
    log = Path("log.txt").read_text()
    Path("runs/whole").symlink_to(undisturbed / "runs/sums")
    print(f"\n{how:<8} {where:<26} {'after step' if hit else 'too late: ended at'} {at:>2}  exit {code}", end="  ")
    assert hit, log
    assert code in (0, 1), log
    assert "Traceback" not in log
    assert [record["step"] for record in lines("sums", "metrics.jsonl")] == list(range(1, STEPS + 1))
    for file in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert learned("sums", file) == learned("whole", file), file
    assert same_weights("sums", "whole")
    assert json.loads(Path("runs/sums/summary.json").read_text())["status"] in ("done", "failed")
    assert not list(Path("runs").glob("sums-*"))
