"""A run whose files a hand, a tool or a disk has damaged: it goes on and says what is lost, or an exact message."""

import json
import shutil
from pathlib import Path

import pytest
from test_resume import interrupted, refused
from whole_run import RECIPE, finished, lines, run, same_weights, summary

from grpo_kit.errors import RecipeError
from grpo_kit.run.run_dir import RunDir, find_run

pytestmark = pytest.mark.slow

FOLDER, MISSING, UTF_16, HALF = object(), object(), object(), object()

NOTHING = "nothing is said"


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)


def damage(path: Path, content: object) -> None:
    """A text that ends with a newline is added to a log; any other takes the place of what is there."""
    text = path.read_text() if path.is_file() else ""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(exist_ok=True)
    if content is FOLDER:
        path.mkdir()
    elif content is UTF_16:
        path.write_text(text, encoding="utf-16")
    elif content is HALF:
        path.write_text(text[: len(text) * 2 // 3])
    elif isinstance(content, str):
        path.write_text(text + content if content.endswith("\n") else content)


MEASURED = {
    "step": 0, "data": "x", "goal": "accuracy", "accuracy": 1.0, "ci95": [0.9, 1.0], "n": 8, "samples": 2,
    "mean_tokens": 1.0, "truncated_share": 0.0, "rewards": {}, "unscored": {}, "pass_rates": [1.0], "example": {},
}  # fmt: skip


def measured(**changes: object) -> str:
    return json.dumps({**MEASURED, **changes}) + "\n"


LOST = "1 line cannot be read and is left out"


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("eval.jsonl", "{}\n", f"eval.jsonl: {LOST}"),
        ("eval.jsonl", measured(goal=None), f"eval.jsonl: {LOST}"),
        ("eval.jsonl", measured(pass_rates="x"), f"eval.jsonl: {LOST}"),
        ("eval.jsonl", measured(pass_rates=[2.0]), f"eval.jsonl: {LOST}"),  # no share
        ("eval.jsonl", measured(more=1), NOTHING),  # of another number of rows: not used
        ("eval.jsonl", MISSING, NOTHING),  # what is missing is measured again
        ("eval.jsonl", UTF_16, "eval.jsonl: 1 line cannot"),
        ("metrics.jsonl", '{"step": 2, "kit/seconds/step": "x"}\n', f"metrics.jsonl: {LOST}"),
        ("metrics.jsonl", '{"step": true}\n[]\n\n', "metrics.jsonl: 2 lines cannot be read and are left out"),
        ("metrics.jsonl", UTF_16, "metrics.jsonl: 4 lines cannot be read and are left out"),
        ("metrics.jsonl", HALF, NOTHING),
        ("samples.jsonl", '{"step": "2"}\n', f"samples.jsonl: {LOST}"),
        ("events.jsonl", '{"event": "resumed", "step": "x"}\n', f"events.jsonl: {LOST}"),
        ("events.jsonl", '{"event": "resumed", "step": 1, "wall_s": "x"}\n', f"events.jsonl: {LOST}"),
        ("summary.json", '{"wall_s": "x", "status": 3, "reason": []}', NOTHING),
        ("preflight.json", '{"difficulty": 1}', NOTHING),
        ("best/measured.json", '{"step": 1}', "best/measured.json: cannot be read"),
        ("best/measured.json", '{"step": "1", "accuracy": 1, "ci95": [0, 1]}', "best/measured.json: cannot be read"),
        ("checkpoints/checkpoint-²", FOLDER, NOTHING),
    ],
)  # fmt: skip
def test_what_a_run_can_do_without_is_left_out_and_said(capsys, file, content, said):
    finished("whole")
    damage(interrupted().path / file, content)
    capsys.readouterr()
    assert run("sums.yaml", "--resume") in (0, 1)
    out = capsys.readouterr().out
    assert "going on with runs/sums after step 2" in out
    assert (said in out) if said != NOTHING else "cannot be read" not in out
    assert same_weights("whole", "sums")
    assert summary("sums")["gain"] == summary("whole")["gain"]
    assert summary("sums")["best"] is None
    assert sorted({record["step"] for record in lines("sums", "eval.jsonl")}) == [0, 4]
    if file != "metrics.jsonl":
        assert [record["step"] for record in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("metrics.jsonl", FOLDER, "runs/sums/metrics.jsonl: should be a file, and is none"),
        ("events.jsonl", FOLDER, "runs/sums/events.jsonl: should be a file, and is none"),
        ("summary.json", FOLDER, "runs/sums/summary.json: should be a file, and is none"),
        ("checkpoints", "x", "runs/sums/checkpoints: should be a folder, and is none"),
        ("final", "x", "runs/sums/final: should be a folder, and is none"),
        ("provenance.json", MISSING, "runs/sums/provenance.json: cannot be read"),
        ("provenance.json", HALF, "runs/sums/provenance.json: cannot be read"),
        ("provenance.json", '{"rewards": null, "data": {}, "model": {}}', "runs/sums/provenance.json: cannot be read"),
        ("provenance.json", '{"rewards": [], "data": {}, "model": {}}', "runs/sums/provenance.json: cannot be read"),
        ("recipe.yaml", "", "runs/sums/recipe.yaml: cannot be read"),
        ("recipe.yaml", HALF, "runs/sums/recipe.yaml: cannot be read"),
        ("recipe.yaml", "zz: 2024-99-99", "runs/sums/recipe.yaml: cannot be read"),
        ("recipe.yaml", "zz: &a {b: *a}", "runs/sums/recipe.yaml: cannot be read"),
        ("recipe.yaml", "[" * 5000, "runs/sums/recipe.yaml: cannot be read"),
    ],
)
def test_what_a_run_cannot_do_without_is_named_and_nothing_is_written(capsys, file, content, said):
    folder = interrupted().path
    damage(folder / file, content)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
    assert said in refused(capsys, "sums.yaml")
    assert before == {path: path.stat().st_mtime_ns for path in before}


def test_a_run_whose_recipe_is_damaged_disturbs_no_other_run_of_its_name(capsys):
    for number, text in enumerate(("", "name: [", "zz: 2024-99-99", "[]", "[" * 5000, "zz: !!int ''"), 1):
        folder = Path("runs") / ("sums" if number == 1 else f"sums-{number}")
        folder.mkdir(parents=True)
        (folder / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=r"runs/sums-6/recipe.yaml: cannot be read"):
        find_run("sums")
    capsys.readouterr()
    assert run("sums.yaml", "grpo.max_steps=1", "eval_dataset=null") in (0, 1)
    assert capsys.readouterr().err == ""
    assert find_run("sums").path == Path("runs/sums-7")


def test_the_best_model_outlives_the_line_of_its_measurement():
    folder = interrupted("eval_every=1").path
    shutil.rmtree(folder / "best", ignore_errors=True)
    damage(folder / "best/measured.json", '{"step": 1, "accuracy": 1.0, "ci95": [0.9, 1.0]}')
    damage(folder / "eval.jsonl", MISSING)
    assert run("sums.yaml", "eval_every=1", "--resume") in (0, 1)
    assert {record["step"] for record in lines("sums", "eval.jsonl")} >= {0, 3, 4}
    assert summary("sums")["best"]["step"] == 1


VANDAL = """
from pathlib import Path


def vandal(completion: str) -> float:
    for file in ("metrics", "samples", "eval", "events") if Path("runs/sums/recipe.yaml").is_file() else ():
        with Path(f"runs/sums/{file}.jsonl").open("a") as log:
            log.write('{"event": "resumed", "step": 1, "pass_rates": 3, "reward": "x", "wall_s": "x"}\\n{}\\n[\\n')
    for measured in Path("runs/sums").glob("best/measured.json"):
        measured.write_text('{"step": 1}')
    return len(completion) % 2
"""


def test_damage_while_a_run_trains_does_not_end_it():
    Path("rewards").mkdir()
    Path("rewards/vandal.py").write_text(VANDAL)
    assert run("sums.yaml", "rewards={accuracy: 1.0, vandal: 1.0}", "grpo.max_steps=2", "eval_every=1") in (0, 1)
    assert summary("sums")["verdict"] in ("learned", "unclear", "not learned")
    assert [one.step for one in RunDir(Path("runs/sums")).evaluations()] == [0, 1, 2]


def test_measurements_are_in_the_order_of_their_steps(tmp_path):
    folder = RunDir(tmp_path)
    (tmp_path / "eval.jsonl").write_text(measured(step=2) + measured(target="x") + "{}\n" + measured(step=0))
    assert [one.step for one in folder.evaluations()] == [0, 2]
