"""A run on a small disk that is filled at some moment: nothing is lost but what the message says."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from whole_run import RECIPE, lines, run, same_weights, summary

from grpo_kit.run.checkpoint import newest_checkpoint
from grpo_kit.run.run_dir import RunDir
from grpo_kit.train import Stopper

pytestmark = pytest.mark.slow

MB = 64


@pytest.fixture
def small_disk(tmp_path, monkeypatch) -> Iterator[Path]:
    disk = tmp_path / "small"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={MB}m", "tmpfs", disk], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a tmpfs")
    monkeypatch.chdir(disk)
    Path("sums.yaml").write_text(RECIPE)
    yield disk
    monkeypatch.chdir(tmp_path)
    subprocess.run(["umount", "-l", disk], check=True)


def fill(leave: int = 0) -> None:
    """Take all of the disk but so many bytes."""
    free = shutil.disk_usage(".").free - leave
    with Path("filler").open("wb") as file:
        file.write(b"\0" * max(free, 0))


def at_step(step: int, act, monkeypatch) -> None:
    """Do something after a step, before its checkpoint is saved; once."""
    before, done = Stopper.on_step_end, []

    def on_step_end(self, args, state, control, **more):
        if state.global_step == step and not done:
            done.append(act())
        return before(self, args, state, control, **more)

    monkeypatch.setattr(Stopper, "on_step_end", on_step_end)


def gone_on(capsys) -> str:
    """The run goes on to its end with room again."""
    Path("filler").unlink()
    capsys.readouterr()
    assert run("sums.yaml", "--resume") in (0, 1)
    return capsys.readouterr().out


@pytest.fixture
def undisturbed(small_disk, capsys) -> None:
    assert run("sums.yaml", "name=whole", "grpo.save_total_limit=1") in (0, 1)
    shutil.rmtree("runs/whole/checkpoints")
    capsys.readouterr()


def test_full_before_it_begins(small_disk, capsys):
    fill(leave=1 << 20)
    assert run("sums.yaml") == 2
    assert "MB free, but the run's checkpoints need" in capsys.readouterr().err
    assert not Path("runs").exists()


def test_what_is_there_needs_no_room_when_a_run_goes_on(small_disk, capsys):
    assert run("sums.yaml") in (0, 1)
    shutil.rmtree("runs/sums/final")
    Path("runs/sums/summary.json").unlink()
    fill(leave=20 << 20)  # three checkpoints of 8 MB and a model would not fit
    assert run("sums.yaml", "name=other") == 2
    assert "MB free, but the run's checkpoints need" in capsys.readouterr().err
    assert run("sums.yaml", "--resume") in (0, 1)
    assert Path("runs/sums/final").is_dir()


def test_full_while_it_trains(undisturbed, capsys, monkeypatch):
    at_step(1, fill, monkeypatch)
    assert run("sums.yaml") == 1
    out, err = capsys.readouterr()
    for file in ("metrics.jsonl", "samples.jsonl"):
        assert out.count(f"warning    {file} cannot be written") == 1
    assert "checkpoint-2 is not written, and training goes on: 0 MB of disk are free" in out
    assert "final cannot be written" in err
    assert "Traceback" not in err
    assert [record["step"] for record in lines("sums", "metrics.jsonl")] == []  # all that is lost was said
    gone_on(capsys)
    assert same_weights("sums", "whole")
    assert [record["step"] for record in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]


def test_full_within_a_checkpoint(undisturbed, capsys, monkeypatch):
    monkeypatch.setattr(
        "grpo_kit.trainer.trainer.ObservedTrainer._make_room", lambda self, aside: aside.mkdir(parents=True)
    )
    at_step(4, lambda: fill(leave=4 << 20), monkeypatch)  # the weights fit into that, the optimizer's state does not
    run("sums.yaml")
    out, err = capsys.readouterr()
    assert "checkpoint-4 is not written, and training goes on" in out
    assert "Traceback" not in err
    checkpoint, damaged = newest_checkpoint(RunDir(Path("runs/sums")))
    assert (checkpoint.name, damaged) == ("checkpoint-2", [])
    assert not list(Path("runs/sums/checkpoints").glob(".*"))
    if Path("runs/sums/final").exists():  # it found room, once the checkpoint had given up
        assert same_weights("sums", "whole")


def test_full_at_a_measurement(undisturbed, capsys, monkeypatch):
    at_step(3, fill, monkeypatch)
    assert run("sums.yaml", "eval_every=2") == 1
    out, err = capsys.readouterr()
    assert "warning    evals/ cannot be written" in out
    assert sorted(path.name for path in Path("runs/sums/evals").iterdir()) == ["step-0", "step-2"]  # not lost for it
    assert "held-out after step 4: accuracy" in out
    assert "Traceback" not in err
    gone_on(capsys)
    assert next(record["step"] for record in lines("sums", "eval.jsonl")) == 0
    assert same_weights("sums", "whole")


def test_full_at_the_end(undisturbed, capsys, monkeypatch):
    at_step(4, fill, monkeypatch)
    assert run("sums.yaml") == 1
    err = capsys.readouterr().err
    assert "final cannot be written" in err
    assert "free some space, and go on with --resume" in err
    assert "Traceback" not in err
    out = gone_on(capsys)
    assert "going on with runs/sums after step 2" in out
    assert same_weights("sums", "whole")
    assert summary("sums")["status"] == "done"
    assert os.path.getsize("runs/sums/report.html") > 10_000
