"""The benchmark scripts run, and what they compare is comparable; their figures are for a quiet machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
SCRIPTS = ["step_time", "overhead", "curves", "gpu_check", "rewards", "diagnosis", "planted_runs", "soak"]


def script(name: str, *arguments: str) -> str:
    """What a script prints; it must end with exit code 0."""
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(name):
    assert f"benchmarks/{name}.py" in script(name, "--help")


def test_both_meet_the_same_rewards_and_the_planned_flat_groups():
    said = script("step_time", "tiny-80", "long", "--pairs", "1", "--json", "out.json")
    assert "long: 0.5B" in said
    assert "not run: give a checkpoint with --model FOLDER" in said
    found = json.loads(Path("out.json").read_text())["cases"]
    assert list(found) == ["tiny-80"]
    (kit,), (bare,) = found["tiny-80"]["kit"], found["tiny-80"]["bare"]
    assert kit["kit/flat_group_share"] == bare["kit/flat_group_share"] == 0.8
    assert kit["reward"] == bare["reward"]
    assert kit["grad_norm"] == pytest.approx(bare["grad_norm"], rel=1e-4)


def test_overhead_is_a_part_of_the_step():
    recipe = BENCHMARKS / "recipes" / "builtin.yaml"
    script("overhead", str(recipe), "grpo.per_device_train_batch_size=16", "--steps", "2", "--json", "out.json")
    steps = json.loads(Path("out.json").read_text())["seconds"]
    assert len(steps) == 2
    for step in steps:
        assert all(seconds > 0 for seconds in step.values())
        assert sum(step.values()) < 2 * step["step"]  # the parts and the whole


def test_the_shortest_points_of_the_curve_of_rows():
    assert "| 1,000 |" in script("curves", "rows", "--most-rows", "1000")


def test_gpu_check_passes_on_a_cpu():
    said = script("gpu_check", "--device", "cpu", "--tiny")
    assert "verdict    all good" in said
