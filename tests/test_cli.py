"""The commands that need no run."""

import subprocess
import sys
from pathlib import Path

import pytest

from grpo_kit import __version__
from grpo_kit.cli import exit_code, main


def call(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_version(capsys):
    assert call("--version") == 0
    assert capsys.readouterr().out.strip() == f"grpo-kit {__version__}"


def test_env_names_all_that_a_bug_report_needs(capsys):
    assert call("env") == 0
    shown = capsys.readouterr().out
    for word in ("python", "torch", "cuda", "device", "memory", "bf16", "transformers", "trl", "peft", "precision"):
        assert f"\n{word} " in f"\n{shown}", word


def test_env_says_why_no_run_could_start(capsys, monkeypatch):
    monkeypatch.setattr("grpo_kit.device.metadata.version", lambda name: "0.9.0" if name == "trl" else "1.0")
    assert call("env") == 1
    assert "trl 0.9.0 is installed" in capsys.readouterr().err


def test_init_makes_a_project_that_is_checked_from_anywhere(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert call("init", "demo") == 0
    assert {path.name for path in Path("demo/rewards").glob("*.py")} >= {"accuracy.py", "format.py", "length.py"}
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert call("check", "../demo/recipes/smoke.yaml") == 0
    assert str(tmp_path / "demo" / "rewards" / "accuracy.py") in capsys.readouterr().out


@pytest.mark.parametrize("taken", ["a file", "a full folder"])
def test_init_overwrites_nothing(tmp_path, monkeypatch, capsys, taken):
    monkeypatch.chdir(tmp_path)
    if taken == "a file":
        Path("demo").write_text("mine")
    else:
        Path("demo").mkdir()
        Path("demo/mine.txt").write_text("mine")
    assert call("init", "demo") == 2
    assert "demo: already there" in capsys.readouterr().err


def test_settings_show_every_value_and_its_origin(capsys):
    recipe = Path(__file__).parents[1] / "recipes" / "smoke.yaml"
    assert call("check", str(recipe), "--settings", "grpo.beta=0.01") == 0
    shown = capsys.readouterr().out
    assert "beta = 0.01   (recipe)" in shown
    assert "save_total_limit = 2   (kit: " in shown
    assert "epsilon = 0.2   (TRL)" in shown


def test_an_unknown_run_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for command in (["samples", "nothing"], ["ask", "nothing", "hello"]):
        assert call(*command) == 2
        assert capsys.readouterr().err == "error: nothing: no such run (runs here: none)\n"


def test_a_bug_keeps_its_traceback():
    code = (
        "import grpo_kit.cli as c, grpo_kit.recipe.recipe as r\n"
        "def broken(*a): raise ZeroDivisionError('bug')\n"
        "r.load_recipe = broken\nc.main(['check', 'x.yaml'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr


@pytest.mark.parametrize(
    ("status", "reason", "verdict", "code"),
    [
        ("done", None, "learned", 0),
        ("done", None, "unclear", 0),
        ("done", None, "not measured", 0),
        ("done", None, "not learned", 1),
        ("failed", "no weight moved", "not learned", 1),
        ("stopped", "SIGINT", "unclear", 130),
        ("stopped", "SIGTERM", "unclear", 143),
    ],
)
def test_exit_codes(status, reason, verdict, code):
    assert exit_code({"status": status, "reason": reason, "verdict": verdict}) == code
