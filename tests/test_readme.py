"""What the documents show is what the program does."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from grpo_kit.cli import main
from grpo_kit.recipe.recipe import Recipe

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "README.zh.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = ("run", "check", "preflight", "eval", "compare", "samples", "doctor", "report", "ask", "env", "init")


def blocks(text: str, language: str = "") -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [block for kind, block in found if kind == language]


def help_of(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "grpo_kit", *command, "--help"],
        capture_output=True, text=True, check=True, env={**os.environ, "COLUMNS": "100"},
    )  # fmt: skip
    return done.stdout.replace("python -m grpo_kit", "grpo-kit").strip()


def test_the_help_shown_is_the_programs_own():
    assert help_of() in [block.strip() for block in blocks(README)]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_a_help_line_and_is_documented(command):
    assert help_of(command).startswith(f"Usage: grpo-kit {command}")
    assert any(f"grpo-kit {command}" in path.read_text(encoding="utf-8") for path in DOCUMENTS)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_the_recipes_shown_are_valid(path):
    for block in blocks(path.read_text(encoding="utf-8"), "yaml"):
        tree = yaml.safe_load(block)
        tree["eval_dataset"] = {**tree["dataset"], **tree["eval_dataset"]}
        Recipe.model_validate(tree)


@pytest.mark.parametrize("path", DOCUMENTS[:2], ids=lambda path: path.name)
def test_the_reward_shown_works(path, tmp_path, monkeypatch, capsys):
    [block] = blocks(path.read_text(encoding="utf-8"), "python")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards").mkdir()
    (tmp_path / "rewards" / "politeness.py").write_text(block, encoding="utf-8")
    (tmp_path / "data.jsonl").write_text('{"question": "Hello?"}\n' * 30)
    (tmp_path / "polite.yaml").write_text(
        "model: builtin:tiny\ndataset: {path: data.jsonl, prompt: '{question}'}\nrewards: {politeness: 1.0}\n"
        "grpo: {max_completion_length: 32}\n"
    )
    with pytest.raises(SystemExit) as ended:
        main(["check", "polite.yaml"])
    assert not ended.value.code
    assert str(tmp_path / "rewards" / "politeness.py") in capsys.readouterr().out


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#]+)\)", path.read_text(encoding="utf-8")):
        assert (path.parent / target).exists(), target


def test_every_file_in_the_tree_exists():
    tree = next(block for block in blocks(README) if block.startswith("recipes/"))
    for name in re.findall(r"\b[\w/]+\.py\b", tree):
        assert (ROOT / name).exists() or any((ROOT / "src/grpo_kit").rglob(name)), name
