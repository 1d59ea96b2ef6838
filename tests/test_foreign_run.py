"""A run directory that somebody else has made: it is read, and nothing in it acts."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_resume import interrupted
from whole_run import RECIPE, finished, run

from grpo_kit.ask import question_messages
from grpo_kit.cli import main
from grpo_kit.doctor import examine
from grpo_kit.errors import RecipeError
from grpo_kit.files.durable import recover, written_whole
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.run.checkpoint import damaged_weights
from grpo_kit.run.run_dir import RunDir

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def precious(own_folder):
    Path("sums.yaml").write_text(RECIPE)
    Path("outside").mkdir()
    Path("outside/precious").write_text("mine\n")


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def untouched() -> bool:
    return [path.name for path in Path("outside").iterdir()] == ["precious"] and (
        Path("outside/precious").read_text() == "mine\n"
    )


def replaced_by_a_link(path: Path, target: str) -> None:
    if path.is_dir():
        path.rename(path.with_name("moved away"))
    path.unlink(missing_ok=True)
    path.symlink_to(Path(target).resolve())


def test_a_report_is_not_written_through_a_link():
    finished("sums")
    Path("runs/sums/report.html.tmp").symlink_to(Path("outside/precious").resolve())
    assert command("report", "runs/sums") == 0
    assert untouched()
    assert Path("runs/sums/report.html").read_text().startswith("<!doctype html>")
    assert not Path("runs/sums/report.html").is_symlink()


@pytest.mark.parametrize(("name", "target"), [("eval.jsonl", "outside/precious"), ("evals", "outside")])
def test_a_measurement_is_not_written_through_a_link(capsys, name, target):
    finished("sums")
    replaced_by_a_link(Path("runs/sums") / name, target)
    assert command("eval", "runs/sums", "eval_dataset.limit=2", "--samples", "1") == 2
    assert f"runs/sums/{name}: is a link" in capsys.readouterr().err
    assert untouched()


def test_what_is_written_aside_is_not_written_through_a_link(tmp_path):
    for name in (".final.new", ".final.old"):
        (tmp_path / name).symlink_to(Path("outside").resolve())
    (tmp_path / "final").mkdir()
    with written_whole(tmp_path / "final") as folder:
        folder.mkdir()
        (folder / "model").touch()
    assert untouched()
    assert [path.name for path in tmp_path.iterdir() if path.name != "outside"].count("final") == 1
    recover(tmp_path / "final")
    assert not (tmp_path / "final").is_symlink()
    assert untouched()


@pytest.mark.parametrize(
    ("name", "target"),
    [
        ("rewards/accuracy.py", "outside/new"),
        ("metrics.jsonl", "outside/precious"),
        ("checkpoints", "outside"),
        ("rewards", "outside"),
    ],
)
def test_a_run_does_not_go_on_through_a_link(capsys, name, target):
    interrupted()
    replaced_by_a_link(Path("runs/sums") / name, target)
    assert run("sums.yaml", "--resume") == 2
    assert f"runs/sums/{name}: is a link" in capsys.readouterr().err
    assert untouched()


def test_a_log_that_becomes_a_link_while_it_is_written_is_not_followed(tmp_path):
    (tmp_path / "events.jsonl").symlink_to(Path("outside/precious").resolve())
    with pytest.raises(OSError, match="symbolic links"):
        RunDir(tmp_path).event("warning", 1)
    assert untouched()


def test_what_only_looks_at_a_run_executes_nothing_of_it(capsys):
    finished("sums")
    for file in Path("runs/sums/rewards").glob("*.py"):
        file.write_text(f"open('outside/hurt', 'w')\n{file.read_text()}")
    for look in (["doctor", "runs/sums"], ["samples", "runs/sums"], ["report", "runs/sums"]):
        assert command(*look) == 0, look
    assert untouched()


def test_full_marks_are_those_that_the_run_has_noted():
    finished("sums")
    folder = RunDir(Path("runs/sums"))
    origin = folder.read("provenance.json")
    assert origin["full_marks"] == {"accuracy": 1.0, "format": 1.0}
    folder.write("provenance.json", {**origin, "full_marks": {"accuracy": 2, "format": "x"}})
    assert examine("runs/sums").facts.full_marks == {"accuracy": 2.0, "format": 1.0}


def test_only_safetensors_of_an_adapter_are_weights(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.bin").write_bytes(b"a pickle")
    (tmp_path / "decoy.safetensors").write_bytes(b"")
    assert damaged_weights(tmp_path) == "no adapter_model.safetensors"


def test_a_checkpoint_that_holds_a_pickle_of_something_else_is_not_loaded(capsys):
    import pickle

    from grpo_kit.files.durable import write_sums

    class Evil:
        def __reduce__(self):
            return os.mkdir, ("outside/hurt",)

    folder = interrupted().checkpoints / "checkpoint-2"
    (folder / "optimizer.pt").write_bytes(pickle.dumps(Evil()))
    write_sums(folder)
    capsys.readouterr()
    assert run("sums.yaml", "--resume") == 1
    err = capsys.readouterr().err
    assert "the newest checkpoint holds what the trainer did not write" in err
    assert "move it away to go on from the one before" in err
    assert "Traceback" not in err
    assert untouched()


GOOD = {
    "step": 1, "row": 0, "prompt": "?", "completion": "x", "rewards": {"accuracy": 1.0}, "tokens": 1,
    "truncated": False, "advantage": 0.5,
}  # fmt: skip


@pytest.mark.parametrize(
    "junk",
    [
        {"step": 1, "completion": "x"}, {"rewards": None}, {"rewards": {"accuracy": "x"}}, {"advantage": "x"},
        {"completion": None}, {"prompt": 5}, {"tokens": "7"}, {"truncated": "no"}, {"row": None},
    ],
)  # fmt: skip
def test_completions_that_are_no_records_are_passed_over(capsys, junk):
    finished("sums")
    first = junk if "completion" in junk and len(junk) == 2 else {**GOOD, **junk}
    text = "".join(json.dumps(record) + "\n" for record in (first, GOOD, {**GOOD, "advantage": None}))
    Path("runs/sums/samples.jsonl").write_text(text)
    assert command("samples", "sums", "--where", "tokens>=1") == 0
    assert "2 of 2 matching completions" in capsys.readouterr().out


@pytest.mark.parametrize("question", ["{a: 2024-13-01, b: 1}", "[" * 3000, "1" * 5000, "caf\udce9", "{a: 1}"])
def test_a_question_that_cannot_be_read_is_one_line(question):
    Path("two.yaml").write_text(RECIPE.replace("'{question}'", "'{a} {b}'"))
    with pytest.raises(RecipeError, match=r"write '\{a: \.\.\., b: \.\.\.\}'|is no UTF-8 text"):
        question_messages(load_recipe(Path("two.yaml")), question)


def test_a_folder_that_is_gone_is_one_line(tmp_path):
    (tmp_path / "gone").mkdir()
    code = "import os; from grpo_kit.cli import main; os.chdir('gone'); os.rmdir('../gone'); main(['check', 'r.yaml'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (
        2,
        "error: the current folder is gone (No such file or directory); go to one that is there\n",
    )
