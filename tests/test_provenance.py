"""Where a run came from, without what is nobody else's business."""

import json
import subprocess
import sys
from pathlib import Path

from command_line import RECIPE, VARIETY

from grpo_kit.prepare.prepare import prepare
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.recipe.secrets import hidden_in, without_environment
from grpo_kit.run import provenance as origin
from grpo_kit.run.provenance import provenance


def git(*arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True, capture_output=True)


def test_no_secret_of_the_environment_is_in_the_provenance(cli, monkeypatch):
    Path("r.yaml").write_text(RECIPE)
    git("init", "--quiet")
    git("add", "r.yaml", "rewards")
    git("commit", "--quiet", "--message", "first")
    secrets = {"HF_TOKEN": "hf_abcDEF123", "JUDGE_API_KEY": "with spaces & /", "DB_PASSWORD": "$ecret^value"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    Path("rewards/variety.py").write_text(f"{VARIETY}PASSWORD = {secrets['DB_PASSWORD']!r}\n")
    url, key = f"model=https://me:{secrets['HF_TOKEN']}@host/m", f"rewards.variety.key={secrets['JUDGE_API_KEY']}"
    monkeypatch.setattr(sys, "argv", ["grpo-kit", "run", "r.yaml", url, key, "seed=7"])

    found = provenance(prepare(load_recipe(Path("r.yaml"), [])))
    text = json.dumps(found, ensure_ascii=False)
    assert not [value for value in secrets.values() if value in text]
    assert found["argv"] == [
        "grpo-kit", "run", "r.yaml", "model=https://me:(not shown)@host/m", "rewards.variety.key=(not shown)", "seed=7"
    ]  # fmt: skip
    assert "+PASSWORD = '(not shown)'" in found["git"]["diff"]
    assert hidden_in(f"refused: {secrets['JUDGE_API_KEY']}") == "refused: (not shown)"


def test_a_secret_that_ends_with_a_newline_or_stands_in_a_url_or_is_called_like_a_file(monkeypatch):
    there = {"HF_TOKEN": "abcDEF1234\n", "HTTPS_PROXY": "http://me:proxypw99@host:3128", "DB_PASSWORD": "SECRET9999"}
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    Path("SECRET9999").touch()
    assert without_environment("say abcDEF1234, SECRET9999") == "say (not shown), (not shown)"
    assert without_environment("at http://me:proxypw99@host/") == "at http://(not shown)host/"


def test_a_long_diff_is_cut_after_its_secrets_are_gone(cli, monkeypatch):
    Path("r.yaml").write_text(RECIPE)
    git("init", "--quiet")
    git("add", "r.yaml", "rewards")
    git("commit", "--quiet", "--message", "first")
    monkeypatch.setenv("HF_TOKEN", "hf_abcDEF123")
    Path("rewards/variety.py").write_text(VARIETY + "# " + "hf_abcDEF123 " * 30)
    for most in range(150, 300, 7):  # wherever it is cut
        monkeypatch.setattr(origin, "MAX_DIFF", most)
        assert "hf_" not in origin._git(Path())["diff"]


def test_of_the_environment_only_secrets_are_hidden(monkeypatch):
    there = {
        "API_KEY": "short", "PWD": str(Path.cwd()), "TOKENIZERS_PARALLELISM": "parallelism", "MAX_TOKENS": "123456789",
        "A_TOKEN": "token-one", "ANOTHER_TOKEN": "token-one-and-two",
    }  # fmt: skip
    for name, value in there.items():
        monkeypatch.setenv(name, value)
    text = f"short {Path.cwd()}/runs parallelism 123456789"
    assert without_environment(text) == text
    assert without_environment("token-one-and-two, token-one") == "(not shown), (not shown)"
