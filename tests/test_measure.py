"""`grpo-kit eval` and `compare` on runs of the built-in model."""

import json
import shutil
from pathlib import Path

import pytest
from whole_run import DATA, RECIPE, run, summary

from grpo_kit.cli import main
from grpo_kit.run.run_dir import RunDir
from grpo_kit.shipped import tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A folder with a run `sums` of 4 steps, checkpoints at 2 and 4, measured every 2 steps."""
    folder = tmp_path_factory.mktemp("measure")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        Path("sums.yaml").write_text(RECIPE)
        run("sums.yaml", "eval_every=2", "eval_dataset.limit=24", "grpo.learning_rate=1e-3")
    return folder


@pytest.fixture(autouse=True)
def own_copy(finished, tmp_path, monkeypatch):
    shutil.copytree(finished, tmp_path / "w")
    monkeypatch.chdir(tmp_path / "w")


def command(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def evaluations(path: str = "runs/sums") -> list[dict]:
    return [json.loads(line) for line in (Path(path) / "eval.jsonl").read_text().splitlines()]


def test_a_run_is_measured_as_it_measured_itself(capsys):
    assert command("eval", "sums") == 0
    after, again = summary("sums")["eval_after"], evaluations()[-1]
    for key in ("accuracy", "ci95", "n", "samples", "mean_tokens", "truncated_share", "rewards"):
        assert again[key] == after[key], key
    assert again["target"] == "runs/sums/final"
    rows = [json.loads(line) for line in Path(again["rows"]).read_text().splitlines()]
    assert len(rows) == after["n"]
    assert sum(row["pass_rate"] for row in rows) / len(rows) == pytest.approx(after["accuracy"])
    assert f"accuracy     {after['accuracy']:.3f}" in capsys.readouterr().out


def test_a_measurement_of_a_run_is_not_taken_for_its_own():
    command("eval", "sums")
    before = summary("sums")
    with pytest.raises(SystemExit):
        main(["run", "runs/sums", "--resume"])  # done, so it starts anew
    assert summary("sums")["eval_after"] == before["eval_after"]


def test_every_checkpoint_has_a_line_and_the_best_is_named(capsys):
    assert command("eval", "sums", "--all-checkpoints") == 0
    said = capsys.readouterr().out.splitlines()
    own = {record["step"]: record for record in evaluations() if "target" not in record}
    table = [line.split() for line in said if line.strip()[:1].isdigit()]
    assert [int(line[0]) for line in table] == [2, 4]
    assert [float(line[1]) for line in table] == [pytest.approx(own[step]["accuracy"], abs=6e-4) for step in (2, 4)]
    best = max((2, 4), key=lambda step: own[step]["accuracy"])
    assert f"best         step {best}: runs/sums/checkpoints/checkpoint-{best}" in "\n".join(said)


def test_the_best_model_is_kept_and_measures_as_it_did():
    own = [record for record in evaluations() if "target" not in record]
    best = max(own, key=lambda record: record["accuracy"])
    found = summary("sums")["best"]
    if best["step"] == 0:
        assert found is None
        return
    assert found["step"] == best["step"]
    command("eval", "runs/sums/best")
    assert evaluations()[-1]["accuracy"] == best["accuracy"]


def test_base_against_the_run_is_the_runs_own_gain(capsys):
    assert command("compare", "base", "sums") == 0
    said = capsys.readouterr().out
    gain = summary("sums")["gain"]
    assert f"difference   {gain['value']:+.3f} (95% interval {gain['ci95'][0]:+.3f} to {gain['ci95'][1]:+.3f}" in said


def test_a_model_compared_with_itself_is_no_different(capsys):
    assert command("compare", "sums", "runs/sums/checkpoints/checkpoint-4", "--greedy") == 0
    said = capsys.readouterr().out
    assert "difference   +0.000" in said
    assert "McNemar" in said
    assert "no difference that these prompts can tell" in said


def test_measurements_are_compared_without_a_model(capsys):
    command("eval", "base", "--recipe", "runs/sums")
    command("eval", "sums")
    shutil.rmtree("runs/sums/final")
    capsys.readouterr()
    assert command("compare", "evals/base", "runs/sums/evals/final/rows.jsonl") == 0
    assert "better answers" in capsys.readouterr().out


def test_a_folder_and_rows_of_ones_own(capsys):
    rows = [json.loads(line) for line in (DATA / "sums_test.jsonl").read_text().splitlines()[:6]]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    own = ("dataset.prompt='{question}'", "grpo.max_completion_length=24", "--samples", "3")
    assert command("eval", str(tiny_model()), "--dataset", "mine.jsonl", *own) == 0
    record = evaluations("evals")[-1]
    assert (record["n"], record["samples"]) == (6, 3)
    assert "6 prompts x 3 completions" in capsys.readouterr().out


def test_departures_from_training_are_said(capsys):
    command("eval", "sums", "--greedy")
    assert "sampling     greedy, one completion each (training: temperature 1)" in capsys.readouterr().out
    command("eval", "sums", "--temperature", "0.5", "--samples", "2")
    assert "2 completions each at temperature 0.5 (training: 1), top_p 1" in capsys.readouterr().out
    assert evaluations()[-1]["sampling"].startswith("2 completions each at temperature 0.5")


def test_an_adapter_is_measured_in_the_precision_of_its_run():
    run("sums.yaml", "name=lora", "lora={r: 4}", "grpo.learning_rate=1e-2", "grpo.max_steps=2")
    command("eval", "lora")
    assert evaluations("runs/lora")[-1]["accuracy"] == summary("lora")["eval_after"]["accuracy"]
    shutil.copytree("runs/lora/final", "elsewhere")
    command("eval", "elsewhere", "--recipe", "sums.yaml")
    assert evaluations("evals")[-1]["n"] == summary("lora")["eval_after"]["n"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("eval", "nothing/at/all"), "nothing/at/all: no run, folder or hub id"),
        (("eval", "base"), "base: of which recipe? Name it with --recipe"),
        (("eval", str(tiny_model())), "how is it to be asked? Name a recipe with --recipe"),
        (("eval", "."), "has no config.json and no adapter_config.json"),
        (("eval", "sums", "--greedy", "--samples", "3"), "--greedy: has one completion of each prompt"),
        (("eval", "sums", "eval_dataset=null"), "has no eval_dataset to measure on"),
        (("eval", str(tiny_model()), "--dataset", "sums.yaml"), "sums.yaml"),
        (("eval", str(tiny_model()), "--all-checkpoints", "--recipe", "sums.yaml"), "is no run"),
        (("eval", "nosuchrun"), "nosuchrun: no run, folder or hub id OWNER/NAME (runs here: sums"),
        (("compare", "rows.jsonl", "sums"), "rows.jsonl: no such file"),
        (("compare", "hub/unknown", "sums"), "hub/unknown: cannot be loaded"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(capsys, arguments, message):
    assert command(*arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


def test_a_damaged_checkpoint_is_not_measured(capsys):
    weights = Path("runs/sums/checkpoints/checkpoint-2/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    assert command("eval", "runs/sums/checkpoints/checkpoint-2") == 2
    assert "cut off" in capsys.readouterr().err


def test_a_line_that_a_crash_cut_off_is_passed_over_and_a_wrong_one_is_not(capsys):
    command("eval", "sums")
    file = Path("runs/sums/evals/final/rows.jsonl")
    whole = file.read_text()
    file.write_text(whole + whole[:40])
    assert command("compare", str(file), str(file)) == 0
    file.write_text(whole + '{"row": 1, "prompt_sha256": "0", "pass_rate": 0.5, "right": [], "leniently": [],'
                    ' "truncated": [], "tokens": []}\n')  # fmt: skip
    assert command("compare", str(file), str(file)) == 2
    assert "line 25: is no line of a rows.jsonl" in capsys.readouterr().err


def test_different_goals_are_not_compared(capsys):
    command("eval", "sums")
    command("eval", "sums", "goal=format")
    assert command("compare", "runs/sums/evals/final", "runs/sums/evals/final-2") == 2
    assert "A was judged by accuracy and B by format" in capsys.readouterr().err


def test_what_was_measured_from_outside_stays_when_a_run_goes_on():
    command("eval", "sums")
    [record] = [record for record in evaluations() if "target" in record]
    RunDir(Path("runs/sums")).cut_back("eval.jsonl", 0)
    assert [record["step"] for record in evaluations()] == [0, record["step"]]


def test_a_best_model_of_steps_that_are_done_again_goes():
    run("sums.yaml", "name=b", "eval_every=1", "grpo.max_steps=4", "eval_dataset.limit=64", "grpo.learning_rate=1e-5")
    best = Path("runs/b/best")
    best.mkdir(exist_ok=True)
    (best / "measured.json").write_text('{"step": 3, "accuracy": 0.5, "ci95": [0, 1]}')
    shutil.rmtree("runs/b/checkpoints/checkpoint-4")
    Path("runs/b/summary.json").unlink()
    with pytest.raises(SystemExit):
        main(["run", "sums.yaml", "name=b", "grpo.max_steps=2", "eval_dataset.limit=64", "grpo.learning_rate=1e-5",
              "eval_every=100", "--resume"])  # fmt: skip
    assert not best.exists()
    assert summary("b")["best"] is None


def test_other_files_are_not_taken_for_measurements(capsys):
    Path("x.jsonl").write_text('{"a": 1}\n')
    assert command("compare", "x.jsonl", "x.jsonl") == 2
    assert "x.jsonl, line 1: is no line of a rows.jsonl" in capsys.readouterr().err
