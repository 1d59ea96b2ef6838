"""`grpo-kit doctor` on runs of ours, on a plain trainer's state, and on what is neither."""

import json
from pathlib import Path

import pytest
from histories import healthy
from whole_run import RECIPE, run

from grpo_kit.cli import main


def doctor(capsys, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def run_folder(name: str, history: list[dict]) -> Path:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    (folder / "grpo_config.json").write_text('{"max_completion_length": 200, "loss_type": "dapo"}')
    (folder / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in history))
    return folder


def sick() -> list[dict]:
    return [{**step, "clip_ratio/region_mean": 0.5 if step["step"] > 50 else 0.0} for step in healthy(0)]


def test_a_healthy_run_is_said_to_be(capsys):
    run_folder("sums", healthy(0))
    code, out, _ = doctor(capsys, "sums")
    assert code == 0
    assert out.startswith("steps        120, the last is 120")
    assert "nothing wrong is seen" in out


def test_a_finding_comes_with_its_evidence_and_what_to_change(capsys):
    run_folder("sums", sick())
    code, out, _ = doctor(capsys, "runs/sums")
    assert code == 0
    assert "finding      clipping, since step 51" in out
    assert "seen       50% of tokens are clipped" in out
    assert "change     lower grpo.learning_rate" in out


def test_a_finding_can_be_made_a_failure(capsys):
    run_folder("sums", sick())
    assert doctor(capsys, "sums", "--fail-on", "clipping")[0] == 1
    assert doctor(capsys, "sums", "--fail-on", "KL")[0] == 0
    code, _, err = doctor(capsys, "sums", "--fail-on", "cliping")
    assert code == 2
    assert "no such finding; there are truncation" in err


def plain(history: list[dict]) -> str:
    """What a plain TRL run leaves: no key of the kit's."""
    entries = [{k: v for k, v in record.items() if not k.startswith("kit/")} for record in history]
    log = [{**entry, "loss": 0.0, "frac_reward_zero_std": 0.2, "completions/max_length": 100} for entry in entries]
    return json.dumps({"log_history": [*log, {"step": 120, "train_runtime": 1.0}]})


def test_a_plain_trainers_state_is_read_too(capsys):
    Path("out/checkpoint-120").mkdir(parents=True)
    Path("out/checkpoint-120/trainer_state.json").write_text(plain(sick()))
    for named in ("out", "out/checkpoint-120", "out/checkpoint-120/trainer_state.json"):
        code, out, _ = doctor(capsys, named)
        assert code == 0
        assert "steps        120" in out
        assert "finding      clipping, since step 51" in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as a trainer's state"),
        ('{"log_history": [{"loss"', "cannot be read as a trainer's state"),
        ("[]", "cannot be read as a trainer's state"),
        ('{"log_history": 3}', "cannot be read as a trainer's state"),
        ('{"log_history": [{"loss": 1}]}', "cannot be read as a trainer's state"),
        ('{"log_history": []}', "has no logged steps"),
    ],
)
def test_a_damaged_state_is_one_line(capsys, content, message):
    Path("trainer_state.json").write_text(content)
    code, _, err = doctor(capsys, "trainer_state.json")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_what_is_no_run_is_one_line(capsys):
    Path("empty").mkdir()
    Path("notes.txt").write_text("hello")
    run_folder("new", [])
    for named, message in (
        ("empty", "empty: no such run"),
        ("nothing", "nothing: no such run"),
        ("notes.txt", "notes.txt: name a run, or a trainer_state.json"),
        ("new", "has no steps in metrics.jsonl yet"),
    ):
        code, _, err = doctor(capsys, named)
        assert code == 2
        assert message in err
        assert err.count("\n") == 1


def test_half_a_last_line_and_foreign_values_do_no_harm(capsys):
    folder = run_folder("sums", [{**step, "kit/entropy": None} for step in healthy(0)])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"step": 121, "rew')
    assert doctor(capsys, "sums")[0] == 0
    (folder / "grpo_config.json").unlink()
    (folder / "recipe.yaml").write_text(RECIPE.replace("accuracy: 1.0", "gone: 1.0"))
    assert doctor(capsys, "sums")[0] == 0  # its reward's file is not there any more


@pytest.mark.slow
def test_a_constant_reward_is_found_in_a_real_run(capsys):
    Path("sums.yaml").write_text(RECIPE)
    Path("rewards").mkdir()
    Path("rewards/nice.py").write_text('"""Always."""\n\n\ndef nice(completion):\n    return 1.0\n')
    assert run("sums.yaml", "rewards={nice: 1.0}", "eval_dataset=null") == 1
    code, out, _ = doctor(capsys, "sums", "--fail-on", "no gradient")
    assert code == 1
    assert "nice gives always full marks" in out
