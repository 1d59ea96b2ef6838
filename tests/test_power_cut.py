"""What is left of a run when the machine goes off: what was synced by then, and no more."""

import os
import shutil
from pathlib import Path

import pytest
from whole_run import RECIPE, finished, learned, lines, run, same_weights

from grpo_kit.files import durable
from grpo_kit.run.checkpoint import checkpoints_of
from grpo_kit.run.run_dir import RunDir

pytestmark = pytest.mark.slow


class Disk:
    """What was synced of each file, by its inode: its name may change."""

    def __init__(self, patch: pytest.MonkeyPatch):
        self.synced: dict[int, bytes] = {}
        real = os.fsync

        def fsync(descriptor):
            real(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").resolve()
            if path.is_file():
                self.synced[path.stat().st_ino] = path.read_bytes()

        patch.setattr(os, "fsync", fsync)

    def left_of(self, folder: Path, copy: Path) -> None:
        """Copy a folder as a power cut leaves it: a file that was never synced is there, and empty."""
        shutil.copytree(folder, copy)
        for path in (path for path in folder.rglob("*") if path.is_file()):
            now, kept = path.read_bytes(), self.synced.get(path.stat().st_ino, b"")
            (copy / path.relative_to(folder)).write_bytes(kept if now.startswith(kept) else b"")  # an inode used again


@pytest.mark.parametrize("step", [2, 4])
def test_a_power_cut_after_a_checkpoint_costs_no_step(own_folder, capsys, step):
    finished("whole")
    Path("sums.yaml").write_text(RECIPE)
    with pytest.MonkeyPatch.context() as patch:
        disk, install = Disk(patch), durable.install

        def installed(aside, folder):
            install(aside, folder)
            if folder.name == f"checkpoint-{step}":
                disk.left_of(folder.parents[1], Path("left"))

        patch.setattr("grpo_kit.trainer.trainer.install", installed)
        assert run("sums.yaml") in (0, 1)
    shutil.rmtree("runs/sums")
    Path("left").rename("runs/sums")
    assert checkpoints_of(RunDir(Path("runs/sums")))[-1].name == f"checkpoint-{step}"
    capsys.readouterr()

    assert run("sums.yaml", "--resume") in (0, 1)
    said = capsys.readouterr().out
    assert f"going on with runs/sums after step {step}" in said
    assert "damaged" not in said
    assert "left out" not in said
    assert same_weights("whole", "sums")
    for file in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert learned("whole", file) == learned("sums", file)


def test_metrics_that_end_before_the_checkpoint_are_said(own_folder, capsys):
    Path("sums.yaml").write_text(RECIPE)
    finished("sums")
    Path("runs/sums/summary.json").unlink()
    metrics = Path("runs/sums/metrics.jsonl")
    metrics.write_text("".join(metrics.read_text().splitlines(keepends=True)[:1]))
    assert run("sums.yaml", "--resume") in (0, 1)
    assert "metrics.jsonl: ends with step 1, so it lacks what came up to step 4" in capsys.readouterr().out
    assert [record["step"] for record in lines("sums", "metrics.jsonl")] == [1]
