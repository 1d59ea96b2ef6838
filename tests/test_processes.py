"""Several processes of one run, started as a user does: the same numbers as with one, written once, ended together."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from one_step import CASES, REWARDS
from processes import all_gone, marked, new_mark
from whole_run import RECIPE, lines, run, summary

from grpo_kit.processes import gather, is_main, on_main, together

TESTS = Path(__file__).parent
TOLERANCE = 1e-5
LIMIT_S = 90
RECIPE_OF_TWO = RECIPE.replace("per_device_train_batch_size: 8", "per_device_train_batch_size: 2").replace(
    "gradient_accumulation_steps: 2", "gradient_accumulation_steps: 4"
)
"""2 x 4 x 2 processes = 16 completions a step, in 4 groups of 4."""

ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2",
              "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
              "--main_process_port", "0"]  # fmt: skip
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]


@contextmanager
def launched(command: list[str]) -> Iterator[tuple[subprocess.Popen, dict[str, str]]]:
    """A launcher with its output in `said`, and the mark of all its processes, of which none outlives this."""
    mark = new_mark()
    environment = {**os.environ, **mark, "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1"}
    with Path("said").open("w") as said:
        process = subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT, env=environment)
    try:
        yield process, mark
    finally:
        for left in marked(mark):
            left.kill()
        process.wait()


def ended(command: list[str]) -> tuple[int, str, bool]:
    """Exit code, output, and whether all processes were gone with the launcher."""
    with launched(command) as (process, mark):
        code = process.wait(LIMIT_S)
        return code, Path("said").read_text(), all_gone(mark)


def run_of_two(*arguments: str) -> list[str]:
    return [*ACCELERATE, "-m", "grpo_kit", "run", "sums.yaml", *arguments]


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE_OF_TWO)


def test_one_process_is_itself():
    assert gather(3) == [3]
    assert is_main()
    assert on_main(lambda: 4) == 4
    with pytest.raises(KeyError, match="as it is"), together():
        raise KeyError("as it is")


@pytest.mark.slow
def test_gradients_are_those_of_one_process(model_folder):
    script = [str(TESTS / "one_step.py"), str(model_folder)]
    assert ended([sys.executable, *script, "one.pt"])[0] == 0
    code, said, _ = ended([*TORCHRUN, *script, "two.pt"])
    assert code == 0, said
    for (fast, _), one, two in zip(CASES, torch.load("one.pt"), torch.load("two.pt"), strict=True):
        assert one["rewards"] == two["rewards"] == REWARDS
        assert two["advantages"] == pytest.approx(one["advantages"], abs=1e-6)
        # rows 8 to 11 are flat: of the second process's micro-batches of 3 one has no other rows
        assert two["micro-batches without work"] == ([0, 1] if fast else [0, 0])
        scale = max(grad.abs().max() for grad in one["gradients"].values())
        assert scale > 0
        for name, grad in one["gradients"].items():
            assert (two["gradients"][name] - grad).abs().max() < TOLERANCE * scale, name


@pytest.mark.slow
def test_a_whole_run_is_written_and_said_once():
    code, said, gone = ended(run_of_two("grpo.learning_rate=1e-6"))
    assert (code, gone) == (0, True), said
    assert [path.name for path in Path("runs").iterdir()] == ["sums"]
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]
    samples = lines("sums", "samples.jsonl")
    for step in (1, 2, 3, 4):
        own = [s for s in samples if s["step"] == step]
        rows = [s["row"] for s in own]
        assert len(rows) == 16
        assert [len(set(rows[start : start + 4])) for start in range(0, 16, 4)] == [1, 1, 1, 1]  # in global order
        assert len(set(rows)) == 4
        metrics = lines("sums", "metrics.jsonl")[step - 1]
        assert metrics["kit/accuracy"] == pytest.approx(sum(s["rewards"]["accuracy"] for s in own) / 16)
        assert metrics["reward"] == pytest.approx(
            sum(s["rewards"]["accuracy"] + 0.5 * s["rewards"]["format"] for s in own) / 16
        )
        assert metrics["completions/mean_length"] == pytest.approx(sum(s["tokens"] for s in own) / 16)
    for once in (
        "plan  ",
        "device     2 processes",
        "held-out after step 0",
        "first completion",
        "step 3/4",
        "verdict",
    ):
        assert said.count(once) == 1, said
    assert "4 steps (0.8 epochs) of 4 prompts x 4 = 16 completions" in said
    assert (Path("runs/sums/final") / "model.safetensors").is_file()

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    run("sums.yaml", "name=alone", "grpo.max_steps=1")
    torch.set_num_threads(before)
    assert lines("alone", "eval.jsonl")[0] == lines("sums", "eval.jsonl")[0]  # 8 rows in 2 batches, one for each


@pytest.mark.slow
@pytest.mark.parametrize("whom", ["launcher", "second process"])
def test_a_signal_to_one_stops_both_at_one_step_and_the_run_goes_on(whom):
    more = ("grpo.max_steps=9", "grpo.save_steps=100", "eval_dataset=null")
    with launched(run_of_two(*more)) as (process, mark):
        deadline = time.monotonic() + LIMIT_S
        while "step 2/9" not in Path("said").read_text():
            assert time.monotonic() < deadline, Path("said").read_text()
            time.sleep(0.02)
        ranks = {p.environ().get("RANK"): p for p in marked(mark) if "grpo_kit" in p.cmdline()}
        (process if whom == "launcher" else ranks["1"]).send_signal(signal.SIGTERM)
        assert process.wait(LIMIT_S) != 0
        assert all_gone(mark)
    stopped = summary("sums")
    assert (stopped["status"], stopped["reason"]) == ("stopped", "SIGTERM"), Path("said").read_text()
    assert 2 <= stopped["steps"] < 9
    assert (Path("runs/sums/checkpoints") / f"checkpoint-{stopped['steps']}" / "rng_state_1.pth").is_file()

    assert run("sums.yaml", *more, "--resume") == 2  # one process is another run
    code, said, _ = ended(run_of_two(*more, "--resume"))
    assert code in (0, 1)
    assert said.count(f"going on with runs/sums after step {stopped['steps']}") == 1, said
    assert not Path("runs/sums-2").exists()
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == list(range(1, 10))
    assert summary("sums")["status"] == "done"


FAULT = """
import os
from pathlib import Path
IN_PROCESS = {in_process}


def mine(completion, trainer_state=None):
    if os.environ.get("RANK") == "1":
        with Path("calls").open("a") as calls:
            calls.write("x")
        if len(Path("calls").read_text()) > 25:
            {fault}
    return float(len(completion))
"""


def write_reward(fault: str, in_process: bool) -> None:
    """Fails in the second process's 26th call: 8 are one step's, and those before the first step are fewer than 16."""
    Path("rewards").mkdir()
    text = FAULT.format(fault=fault, in_process=in_process)
    Path("rewards/mine.py").write_text(text if in_process else text.replace(", trainer_state=None", ""))


@pytest.mark.slow
def test_a_reward_that_fails_in_one_process_ends_both_with_its_error():
    write_reward("raise ValueError('no more')", in_process=False)
    started = time.monotonic()
    code, said, gone = ended(run_of_two("rewards={mine: 1.0}", "eval_dataset=null"))
    assert (code, gone) == (1, True), said
    assert time.monotonic() - started < 60
    assert said.count("error: step ") == 1, said
    assert "ValueError: no more" in said
    assert "exitcode  : 1 " in said, said  # the launcher lists both, but may end the slower one itself
    failed = summary("sums")
    assert failed["status"] == "failed"
    assert failed["reason"].startswith("RewardError: step ")
    assert failed["steps"] >= 1
    saved = Path("runs/sums/checkpoints") / f"checkpoint-{failed['steps']}"
    assert {"optimizer.pt", "rng_state_0.pth", "rng_state_1.pth"} <= {path.name for path in saved.iterdir()}


@pytest.mark.slow
def test_a_process_that_dies_ends_the_run():
    write_reward("os._exit(7)", in_process=True)
    code, said, gone = ended(run_of_two("rewards={mine: 1.0}", "eval_dataset=null"))
    assert (code, gone) == (1, True), said
    assert json.loads(Path("runs/sums/summary.json").read_text())["status"] == "failed"


@pytest.mark.slow
def test_what_is_wrong_with_a_recipe_is_said_once():
    code, said, gone = ended([*TORCHRUN, "-m", "grpo_kit", "check", "sums.yaml", "grpo.no_such_key=1"])
    assert (code, gone) == (1, True)
    assert said.count("error: ") == 1, said
    assert "grpo.no_such_key" in said
    assert said.count("exitcode  : 2 ") == 2, said


@pytest.mark.slow
def test_check_shows_the_plan_once():
    code, said, _ = ended([*TORCHRUN, "-m", "grpo_kit", "check", "sums.yaml"])
    assert code == 0, said
    assert said.count("of 4 prompts x 4 = 16 completions") == 1, said
