import datetime
import json
from pathlib import Path

import pytest

from grpo_kit.errors import RecipeError
from grpo_kit.recipe.plain_values import DEEPEST, MOST, plain
from grpo_kit.run.run_dir import RunDir, find_run, new_run, runs_called


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_a_run_is_never_overwritten():
    assert [str(new_run("math").path) for _ in range(3)] == ["runs/math", "runs/math-2", "runs/math-3"]


def test_runs_of_a_name_newest_first_and_no_others():
    for name in ("math", "math", "math-lora", "mathematics"):
        new_run(name)
    for _ in range(10):
        new_run("math")
    assert [run.path.name for run in runs_called("math")][:3] == ["math-12", "math-11", "math-10"]
    assert [run.path.name for run in runs_called("math-lora")] == ["math-lora"]


def test_a_run_by_directory_by_name_and_by_recipe():
    first, second = new_run("math"), new_run("math")
    (first.path / "recipe.yaml").write_text("model: x")
    assert find_run("runs/math").path == Path("runs/math")
    assert find_run("math").path == second.path
    assert find_run("recipes/math.yaml").path == second.path


def test_an_unknown_run_lists_those_there_are():
    new_run("math")
    with pytest.raises(RecipeError, match=r"poetry: no such run \(runs here: math\)"):
        find_run("poetry")


def test_a_line_cut_off_by_a_crash_is_passed_over(tmp_path):
    run = RunDir(tmp_path)
    run.append("metrics.jsonl", {"step": 1})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 2, "rew')
    assert list(run.lines("metrics.jsonl")) == [{"step": 1}]


def test_a_byte_order_mark_is_no_damage(tmp_path):
    for file in ("metrics.jsonl", "summary.json"):
        (tmp_path / file).write_text('{"step": 1}\n', encoding="utf-8-sig")
    assert list(RunDir(tmp_path).records("metrics.jsonl")) == [RunDir(tmp_path).read("summary.json")] == [{"step": 1}]


def test_cutting_back_keeps_the_steps_up_to_the_checkpoint(tmp_path):
    run = RunDir(tmp_path)
    for step in (1, 2, 3, 4):
        own = {"row": 0, "prompt": "?", "completion": "八", "rewards": {}, "tokens": 1, "truncated": False}
        run.append("samples.jsonl", {"step": step, **own})
    run.cut_back("samples.jsonl", 2)
    assert [record["step"] for record in run.lines("samples.jsonl")] == [1, 2]


def test_a_lone_surrogate_in_a_completion_is_written(tmp_path):
    RunDir(tmp_path).append("samples.jsonl", {"step": 1, "completion": "a\ud800b"})
    assert (tmp_path / "samples.jsonl").read_text(encoding="utf-8").count("\n") == 1


def test_json_is_replaced_whole(tmp_path):
    run = RunDir(tmp_path)
    run.write("summary.json", {"status": "failed"})
    run.write("summary.json", {"status": "done"})
    assert json.loads((tmp_path / "summary.json").read_text()) == {"status": "done"}
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


def test_the_second_run_of_a_name_is_no_run_of_another_name():
    for name, recipe in (("smoke", "smoke"), ("smoke-2", "smoke-2"), ("smoke-3", "smoke")):
        (new_run(name).path / "recipe.yaml").write_text(f"name: {recipe}\n")
    assert [run.path.name for run in runs_called("smoke")] == ["smoke-3", "smoke"]
    assert [run.path.name for run in runs_called("smoke-2")] == ["smoke-2"]


def test_a_name_is_text_and_no_pattern():
    for name in ("a[1]", "a1"):
        new_run(name)
    assert [run.path.name for run in runs_called("a[1]")] == ["a[1]"]


def test_a_damaged_json_file_counts_as_missing(tmp_path):
    (tmp_path / "summary.json").write_text('{"status": "do')
    assert RunDir(tmp_path).read("summary.json") is None


def test_a_line_cut_within_a_character_is_passed_over(tmp_path):
    run = RunDir(tmp_path)
    run.append("samples.jsonl", {"step": 1, "completion": "八"})
    whole = (tmp_path / "samples.jsonl").read_bytes()
    (tmp_path / "samples.jsonl").write_bytes(whole + whole[:-4] + b"\n5\n")  # cut in the last character; no record
    assert list(run.lines("samples.jsonl")) == [{"step": 1, "completion": "八"}]


@pytest.mark.parametrize("damaged", ["", "name: [", "- a list"])
def test_a_run_whose_recipe_is_damaged_does_not_hide_the_others(damaged):
    for text in ("name: math\n", damaged):
        (new_run("math").path / "recipe.yaml").write_text(text)
    assert find_run("math").path == Path("runs/math")


def test_findings_of_steps_that_are_done_again_are_cut_back_and_what_happened_to_the_run_stays(tmp_path):
    run = RunDir(tmp_path)
    for kind, step in (("finding", 2), ("finding", 4), ("finding gone", 5), ("warning", 5), ("stopped", 5)):
        run.event(kind, step, name="kl")
    run.cut_back("events.jsonl", 3)
    kept = [(event["event"], event["step"]) for event in run.lines("events.jsonl")]
    assert kept == [("finding", 2), ("warning", 5), ("stopped", 5)]


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            '{"a": NaN, "b": [Infinity, 1e999, 1], "c": 1' + "0" * 400 + "}",
            {"a": None, "b": [None, None, 1], "c": None},
        ),
        ("[" * 100_000 + "]" * 100_000, None),
        ("[1]", None),
        ('"text"', None),
        ("1" * 5000, None),
    ],
)
def test_what_is_read_is_a_mapping_of_plain_values(tmp_path, text, read):
    (tmp_path / "summary.json").write_text(text)
    assert RunDir(tmp_path).read("summary.json") == read


def test_a_tree_in_itself_or_without_end_is_cut():
    ring: dict = {datetime.date(2020, 1, 1): 1}
    ring["own"] = ring
    copy = plain(ring)
    assert copy["2020-01-01"] == 1
    assert str(copy).count("own") == DEEPEST + 1
    many: list = ["x"]
    for _ in range(30):
        many = [many] * 9  # 9 ** 30 texts
    assert str(plain(many)).count("x") <= MOST
