"""Checkpoints: when they are saved, that they are whole, and that a run has one owner."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from whole_run import RECIPE, finished, lines, run, same_weights, summary

from grpo_kit import cli
from grpo_kit.cli import main
from grpo_kit.errors import RecipeError
from grpo_kit.files.lock import Lock
from grpo_kit.measure.held_out import HeldOut
from grpo_kit.run.checkpoint import checkpoints_of
from grpo_kit.run.resume import place_for
from grpo_kit.run.run_dir import RunDir, never_begun, new_run
from grpo_kit.train import Stopper

SHARED = ("grpo.steps_per_generation=6", "grpo.per_device_train_batch_size=8", "grpo.max_steps=6", "dataset.limit=60")
"""Two micro-batches a step and six a rollout: each rollout serves three steps."""


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)


def saved(name: str = "sums") -> list[str]:
    return [path.name for path in checkpoints_of(RunDir(Path("runs") / name))]


@pytest.mark.slow
def test_a_checkpoint_waits_until_no_rollout_is_half_used(capsys):
    assert run("sums.yaml", *SHARED, "grpo.save_steps=1", "grpo.save_total_limit=9", "eval_dataset=null") == 0
    assert saved() == ["checkpoint-3", "checkpoint-6"]


def broken(*args, **kwargs):
    raise ZeroDivisionError


@pytest.mark.slow
def test_a_stop_within_a_rollout_waits_for_its_last_step_and_goes_on_the_same(capsys, monkeypatch):
    run("sums.yaml", *SHARED, "name=whole")
    before, asked = Stopper.on_step_end, []

    def on_step_end(self, args, state, control, **more):
        if state.global_step == 1 and not asked:
            asked.append(os.kill(os.getpid(), signal.SIGTERM))
        return before(self, args, state, control, **more)

    monkeypatch.setattr(Stopper, "on_step_end", on_step_end)
    assert run("sums.yaml", *SHARED) == 143
    assert (summary("sums")["status"], summary("sums")["steps"], saved()) == ("stopped", 3, ["checkpoint-3"])
    assert Path("runs/sums/final").is_dir()
    with monkeypatch.context() as patched:  # a second part that gets nowhere leaves no model that looks like its own
        patched.setattr("grpo_kit.train.build_trainer", broken)
        with pytest.raises(ZeroDivisionError):
            main(["run", "sums.yaml", *SHARED, "--resume"])
    assert not Path("runs/sums/final").exists()
    assert run("sums.yaml", *SHARED, "--resume") in (0, 1)
    assert same_weights("sums", "whole")
    assert [record["step"] for record in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_is_a_warning_and_leaves_nothing(capsys, monkeypatch):
    written = torch.save

    def fails(what, file, *args, **kwargs):
        if "checkpoint-2" in str(file) and str(file).endswith("scheduler.pt"):
            raise RuntimeError("PytorchStreamWriter failed writing file data.pkl")
        return written(what, file, *args, **kwargs)

    monkeypatch.setattr(torch, "save", fails)
    assert run("sums.yaml", "eval_dataset=null") == 0
    out = capsys.readouterr().out
    assert "checkpoint-2 is not written, and training goes on: PytorchStreamWriter failed" in out
    assert saved() == ["checkpoint-4"]
    assert [path.name for path in Path("runs/sums/checkpoints").iterdir()] == ["checkpoint-4"]
    [warning] = [event for event in lines("sums", "events.jsonl") if "not written" in event.get("message", "")]
    assert warning["step"] == 2


@pytest.mark.slow
def test_two_runs_in_one_directory_are_refused_and_a_stale_lock_is_not(capsys):
    assert run("sums.yaml", "eval_dataset=null") == 0
    folder = Path("runs/sums")
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / "final")
    other = Lock()
    other.take(folder)
    capsys.readouterr()
    assert run("sums.yaml", "eval_dataset=null", "--resume") == 2
    error = capsys.readouterr().err
    assert f"runs/sums: is being trained by process {os.getpid()} on" in error
    assert error.count("\n") == 1
    other.close()  # as the end of its process would
    assert (folder / ".lock").read_text().startswith("process")
    assert run("sums.yaml", "eval_dataset=null", "--resume") == 0


def test_a_lock_by_hand(own_folder):
    Path("run").mkdir()
    one, other = Lock(), Lock()
    one.take(Path("run"))
    with pytest.raises(RecipeError, match="is being trained by process"):
        other.take(Path("run"))
    one.close()
    other.take(Path("run"))
    other.close()
    Lock().close()


def test_a_ctrl_c_that_somebody_swallows_before_the_run_ends_it_all_the_same(monkeypatch):
    prepare = cli._prepare

    def swallowing(*arguments):
        with suppress(BaseException):
            os.kill(os.getpid(), signal.SIGINT)
        return prepare(*arguments)

    monkeypatch.setattr(cli, "_prepare", swallowing)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored in a job in the background
    try:
        assert run("sums.yaml") == 130
        assert not Path("runs").exists()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.slow
def test_a_stop_within_a_measurement_loses_none(monkeypatch):
    run("sums.yaml", "eval_every=2", "name=whole")
    before, asked = HeldOut.on_step_begin, []

    def on_step_begin(self, args, state, control, **more):
        if state.global_step == 2 and not asked:
            asked.append(os.kill(os.getpid(), signal.SIGINT))
        return before(self, args, state, control, **more)

    monkeypatch.setattr(HeldOut, "on_step_begin", on_step_begin)
    assert run("sums.yaml", "eval_every=2") == 130
    assert (summary("sums")["steps"], saved()) == (3, ["checkpoint-2", "checkpoint-3"])
    assert run("sums.yaml", "eval_every=2", "--resume") in (0, 1)
    assert lines("sums", "eval.jsonl") == lines("whole", "eval.jsonl")
    assert [record["step"] for record in lines("sums", "eval.jsonl")] == [0, 2, 4]


@pytest.mark.slow
@pytest.mark.parametrize("last", ["grpo_config.json", "provenance.json", "data_fingerprint.json", "recipe.yaml"])
def test_a_run_that_is_killed_before_it_has_begun_leaves_no_second_one(monkeypatch, last):
    class Killed(BaseException):
        pass

    written = RunDir.write_text

    def write_text(self, file, text):
        if file == last:
            (self.path / f"{file}.tmp").write_text(text[:20])
            raise Killed
        written(self, file, text)

    with monkeypatch.context() as patched:
        patched.setattr(RunDir, "write_text", write_text)
        with pytest.raises(Killed):
            main(["run", "sums.yaml", "eval_dataset=null"])
    assert run("sums.yaml", "eval_dataset=null", "--resume") == 0
    assert [path.name for path in Path("runs").iterdir()] == ["sums"]


FORKING = """
import os, time
from pathlib import Path
from grpo_kit.files.lock import Lock
lock = Lock()
lock.take(Path("run"))
os.write(1, b"%d\\n" % os.fork())
time.sleep(60)
"""


def test_a_child_that_outlives_the_run_does_not_hold_its_lock(own_folder):
    Path("run").mkdir()
    with subprocess.Popen([sys.executable, "-c", FORKING], stdout=subprocess.PIPE, text=True) as parent:
        children = {int(parent.stdout.readline()) for _ in range(2)} - {0}  # each of the two says what fork returned
        parent.kill()
        parent.wait()
        Lock().take(Path("run"))
        for child in children:
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("name", [".lock", "precious.txt"])
def test_a_lock_that_is_no_file_of_its_own_is_left_alone(own_folder, name):
    Path("run").mkdir()
    Path("precious.txt").write_text("mine")
    if name == ".lock":
        Path("run/.lock").mkdir()
    else:
        Path("run/.lock").symlink_to(Path("precious.txt").resolve())
    with pytest.raises(RecipeError, match=r"run/\.lock: cannot be opened"):
        Lock().take(Path("run"))
    assert Path("precious.txt").read_text() == "mine"


def test_a_directory_without_a_lock_of_its_own_is_said_and_not_tried_again_with_another_number(own_folder, monkeypatch):
    monkeypatch.setattr(os, "O_NOFOLLOW", os.O_DIRECTORY)  # a file system that refuses each
    with pytest.raises(RecipeError, match=r"runs/sums/\.lock: cannot be opened"):
        place_for("sums", Lock())
    assert [path.name for path in Path("runs").iterdir()] == ["sums"]


def test_what_is_no_start_of_a_run_is_never_emptied(own_folder):
    for path in ("notes.txt", "final/model.safetensors", "metrics.jsonl", "rewards.py"):
        file = Path("runs/sums", path)
        file.parent.mkdir(parents=True)
        file.write_text("mine")
        (Path("runs/sums") / ".lock").touch()
        assert never_begun("sums") == []
        shutil.rmtree("runs/sums")
    Path("victim").mkdir()
    Path("victim/.lock").touch()
    Path("runs/sums").symlink_to(Path("victim").resolve())
    assert never_begun("sums") == []
    Path("runs/sums").unlink()


@pytest.mark.parametrize("make", [Path.touch, lambda path: path.symlink_to("nowhere")])
def test_a_name_that_is_taken_by_no_folder_gets_a_number(own_folder, make):
    Path("runs").mkdir()
    make(Path("runs/sums"))
    assert never_begun("sums") == []
    assert new_run("sums").path == Path("runs/sums-2")


def test_a_place_for_runs_that_cannot_be_made_is_named(own_folder):
    Path("runs").symlink_to("not-mounted/runs")
    with pytest.raises(RecipeError, match=r"^runs: cannot be made"):
        new_run("sums")


@pytest.mark.slow
def test_a_run_whose_recipe_is_gone_is_no_place_for_another(capsys):
    finished("sums")
    Path("runs/sums/recipe.yaml").rename("mine.yaml")
    assert run("mine.yaml", "name=sums", "grpo.max_steps=1", "eval_dataset=null") in (0, 1)
    assert summary("sums")["steps"] == 4
    assert summary("sums-2")["steps"] == 1


@pytest.mark.slow
def test_a_damaged_checkpoint_is_not_kept_in_place_of_a_whole_one(monkeypatch):
    finished("sums")
    folder = RunDir(Path("runs/sums"))
    (folder.path / "summary.json").unlink()
    (folder.checkpoints / "checkpoint-4/optimizer.pt").write_bytes(b"")

    class Killed(BaseException):
        pass

    def killed(self, args, state, control, **given):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Stopper, "on_step_end", killed)
        with pytest.raises(Killed):
            main(["run", "sums.yaml", "grpo.save_total_limit=1", "grpo.save_steps=3", "--resume"])
    assert saved() == ["checkpoint-2"]


def test_what_is_in_a_folder_of_the_users_own_stays(own_folder):
    Path("runs/sums").mkdir(parents=True)
    Path("runs/sums/notes.txt").write_text("mine")
    assert never_begun("sums") == []
    Path("runs/sums-2").mkdir()
    assert [found.path.name for found in never_begun("sums")] == ["sums-2"]
