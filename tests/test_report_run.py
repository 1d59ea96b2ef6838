"""What a run leaves for its report: the page itself, and its held-out completions before and after."""

import json
from pathlib import Path

import pytest
from whole_run import RECIPE, lines, run

from grpo_kit.cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)


def test_a_run_ends_with_its_report_and_its_held_out_completions(capsys):
    assert run("sums.yaml", "eval_every=1") in (0, 1)
    assert "report       runs/sums/report.html\nfiles        runs/sums\n" in capsys.readouterr().out
    assert "<title>sums" in Path("runs/sums/report.html").read_text()
    # 8 rows x 2 completions; those of steps 1 to 3 are not kept
    assert sorted(path.name for path in Path("runs/sums/evals").iterdir()) == ["step-0", "step-4"]
    for step, measured in ((0, lines("sums", "eval.jsonl")[0]), (4, lines("sums", "eval.jsonl")[-1])):
        rows = {record["row"]: record["pass_rate"] for record in lines("sums", f"evals/step-{step}/rows.jsonl")}
        assert [rows[row] for row in range(8)] == measured["pass_rates"]
        samples = lines("sums", f"evals/step-{step}/samples.jsonl")
        assert len(samples) == 16
        assert {record["step"] for record in samples} == {step}


def test_its_measurements_are_compared_without_a_model(capsys):
    # judged by the box, so that a right answer without one is form that is missing, and no worse answer
    assert run("sums.yaml", "rewards.accuracy={weight: 1.0, require: boxed}") in (0, 1)
    said = capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["compare", "runs/sums/evals/step-0", "runs/sums/evals/step-4"])
    assert not ended.value.code
    before, after = ([r["accuracy"] for r in lines("sums", "eval.jsonl")][at] for at in (0, -1))
    assert f"difference   {after - before:+.3f}" in capsys.readouterr().out
    rows = lines("sums", "evals/step-0/rows.jsonl")
    assert any(row["leniently"] != row["right"] for row in rows)
    assert "leniently" not in said


def test_a_run_that_fails_has_its_report(capsys):
    Path("rewards").mkdir()
    Path("rewards/fickle.py").write_text(
        '"""Fails in the second step or so."""\nIN_PROCESS = True\ncalls = 0\n\n\ndef fickle(completion):\n'
        "    global calls\n    calls += 1\n"
        "    if calls >= 30:\n        raise ValueError('<b>no</b>')\n    return float(calls % 2)\n"
    )
    assert run("sums.yaml", "rewards={fickle: 1.0}", "eval_dataset=null", "goal=fickle") == 1
    assert "report       runs/sums/report.html" in capsys.readouterr().out
    assert json.loads(Path("runs/sums/summary.json").read_text())["status"] == "failed"
    page = Path("runs/sums/report.html").read_text()
    assert "<h1>Failed after 1 step: step 2: " in page
    assert "ValueError: &lt;b&gt;no&lt;/b&gt;" in page
