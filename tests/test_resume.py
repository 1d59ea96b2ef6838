"""A run that goes on is the run that was started, or an exact message."""

import shutil
from pathlib import Path

import pytest
import yaml
from whole_run import RECIPE, finished, learned, lines, run, same_weights, summary

from grpo_kit.cli import main
from grpo_kit.errors import RecipeError
from grpo_kit.recipe.recipe import load_recipe
from grpo_kit.run.checkpoint import checkpoints_of, newest_checkpoint, unreadable
from grpo_kit.run.run_dir import RunDir
from grpo_kit.shipped import tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)


def interrupted(*settings: str, step: int = 2) -> RunDir:
    """A run of 4 steps as a power cut after `step` leaves it: later checkpoints and the ending are missing."""
    if Path("sums.yaml").read_text() == RECIPE:
        finished("sums", *settings)
    else:
        assert run("sums.yaml", *settings) in (0, 1)
    folder = RunDir(Path("runs/sums"))
    for later in range(step + 1, 5):
        shutil.rmtree(folder.checkpoints / f"checkpoint-{later}", ignore_errors=True)
    shutil.rmtree(folder.final)
    (folder.path / "summary.json").unlink()
    folder.cut_back("eval.jsonl", step)
    return folder


def refused(capsys, *arguments: str) -> str:
    capsys.readouterr()
    assert run(*arguments, "--resume") == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


@pytest.mark.parametrize(
    "settings",
    [
        (),  # its micro-batches are accumulated
        ("grpo.gradient_accumulation_steps=1",),
        ("lora={r: 4}",),
        ("grpo.lr_scheduler_type=cosine", "grpo.warmup_steps=2"),
        ("grpo.num_iterations=2",),
        ("fast=false", "grpo.beta=0.04"),
        ("dataset.limit=8", "grpo.save_strategy=epoch", "grpo.logging_steps=3"),
        ("grpo.logging_steps=3",),  # a checkpoint is no place where metrics are in flight
    ],
    ids=lambda settings: " ".join(settings) or "as it is",
)
def test_an_interrupted_run_ends_as_if_it_had_not_been(capsys, settings):
    finished("whole", *settings)
    interrupted(*settings)
    capsys.readouterr()
    assert run("sums.yaml", *settings, "--resume") in (0, 1)
    assert "going on with runs/sums after step 2" in capsys.readouterr().out
    assert same_weights("whole", "sums")
    for file in ("metrics.jsonl", "samples.jsonl", "eval.jsonl"):
        assert learned("whole", file) == learned("sums", file)
    assert summary("sums")["gain"] == summary("whole")["gain"]


@pytest.mark.parametrize("step", [2, 3, 4, 5])
def test_a_run_resumed_in_a_later_epoch_meets_the_same_rows(step):
    # 8 rows, 4 prompts a step: epochs end after steps 2, 4 and 6, each with an order of its own
    settings = [
        "dataset.limit=8",
        "grpo.max_steps=6",
        "grpo.save_steps=1",
        "grpo.save_total_limit=9",
        "eval_dataset=null",
    ]
    run("sums.yaml", *settings, "name=whole")
    run("sums.yaml", *settings, "name=part")
    for later in range(step + 1, 7):
        shutil.rmtree(f"runs/part/checkpoints/checkpoint-{later}")
    Path("runs/part/summary.json").unlink()
    shutil.rmtree("runs/part/final")
    assert run("sums.yaml", *settings, "name=part", "--resume") in (0, 1)
    assert lines("part", "events.jsonl")[-1]["step"] == step  # it did go on from there
    rows = [[s["row"] for s in lines(name, "samples.jsonl")] for name in ("whole", "part")]
    assert rows[0] == rows[1]
    assert rows[0][:32] != rows[0][32:64]
    assert same_weights("whole", "part")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("grpo.learning_rate=1e-3", "grpo.learning_rate (0.0001 -> 0.001)"),
        ("grpo.temperature=0.7", "grpo.temperature (None -> 0.7)"),
        ("rewards={accuracy: 1.0}", "rewards.format.style ('boxed' -> None)"),
        ("dataset.limit=20", "dataset.limit (21 -> 20)"),
        ("lora={r: 4}", "lora.r (None -> 4)"),
        ("seed=7", "seed (42 -> 7)"),
        ("evaluation.samples=3", "evaluation.samples (2 -> 3)"),
    ],
)
def test_another_recipe_is_refused_and_the_difference_named(capsys, override, named):
    interrupted()
    assert named in refused(capsys, "sums.yaml", override)
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]  # nothing was cut back


def test_another_order_of_rewards_is_another_run(capsys):
    interrupted()
    settings = "rewards={format: {weight: 0.5, style: boxed}, accuracy: 1.0}"
    assert "goal ('accuracy' -> 'format')" in refused(capsys, "sums.yaml", settings)
    assert "the order of the rewards (accuracy, format)" in refused(capsys, "sums.yaml", settings, "goal=accuracy")


@pytest.mark.parametrize("file", ["config.json", "chat_template.jinja", "tokenizer.json", "generation_config.json"])
def test_a_model_of_other_files_is_refused_and_one_that_was_moved_is_not(capsys, file):
    shutil.copytree(tiny_model(), "model")
    Path("sums.yaml").write_text(RECIPE.replace("builtin:tiny", "model"))
    interrupted()
    whole = Path("model", file).read_bytes()
    Path("model", file).write_bytes(whole + b"\n")
    assert "the content of model" in refused(capsys, "sums.yaml")
    Path("model", file).write_bytes(whole)
    shutil.move("model", "elsewhere")
    assert run("sums.yaml", "model=elsewhere", "--resume") in (0, 1)
    assert yaml.safe_load(Path("runs/sums/recipe.yaml").read_text())["model"] == str(Path("elsewhere").resolve())


def test_a_warmup_that_is_a_share_of_the_steps_keeps_their_number(capsys):
    share = ("grpo.lr_scheduler_type=constant_with_warmup", "grpo.warmup_steps=0.5")
    interrupted(*share)
    assert "grpo.max_steps (4 -> 8)" in refused(capsys, "sums.yaml", *share, "grpo.max_steps=8")


def test_an_adapter_without_settings_is_one(capsys):
    interrupted()
    assert "lora (None -> {})" in refused(capsys, "sums.yaml", "lora={}")


def test_another_reward_file_is_refused(capsys):
    interrupted()
    Path("rewards").mkdir()
    Path("rewards/accuracy.py").write_text('"""Lenient."""\n\n\ndef accuracy(completion, answer):\n    return 1.0\n')
    assert "the file of reward accuracy" in refused(capsys, "sums.yaml")


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        ("weight: 0.5", "weight: 5.0", "rewards.format.weight (0.5 -> 5)"),
        ("learning_rate: 0.0001", "learning_rate: 0.01", "grpo.learning_rate (0.0001 -> 0.01)"),
        ("\ngrpo:", "\ngrpo:\n  temperature: 0.5", "grpo.temperature (None -> 0.5)"),
    ],
)
def test_a_recipe_that_was_edited_in_the_run_directory_is_another(capsys, before, after, named):
    file = interrupted().path / "recipe.yaml"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    assert f"cannot go on with other settings: {named}; undo the change" in refused(capsys, "runs/sums")
    assert run("sums.yaml", "--resume") in (0, 1)  # the recipe that it was started with is still the same,
    assert before in file.read_text()  # and the directory's is put right
    assert after not in file.read_text()


@pytest.mark.parametrize("name", ["checkpoint-keep-9", "checkpoint-4"])
def test_a_copy_of_a_checkpoint_is_none_of_a_later_step(capsys, name):
    finished("whole")
    folder = interrupted()
    shutil.copytree(folder.checkpoints / "checkpoint-2", folder.checkpoints / name)
    capsys.readouterr()
    assert run("sums.yaml", "--resume") in (0, 1)
    out = capsys.readouterr().out
    assert "going on with runs/sums after step 2" in out
    assert ("checkpoint-4 is damaged (its trainer_state.json is of step 2)" in out) == (name == "checkpoint-4")
    assert same_weights("whole", "sums")
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]


def test_a_project_with_pass_rates_may_be_moved(capsys, monkeypatch):
    Path("here").mkdir()
    monkeypatch.chdir("here")
    text = RECIPE.replace("limit: 21", "limit: 21, pass_rate: [0.0, 1.0], pass_rate_file: rates.jsonl")
    Path("sums.yaml").write_text(RECIPE)
    with pytest.raises(SystemExit):
        main(["preflight", "sums.yaml", "--rows", "21", "--samples", "4"])
    shutil.copy(next(Path("preflight").rglob("rows.jsonl")), "rates.jsonl")
    Path("sums.yaml").write_text(text)
    assert run("sums.yaml") in (0, 1)
    Path("runs/sums/summary.json").unlink()
    monkeypatch.chdir("..")
    Path("here").rename("there")
    monkeypatch.chdir("there")
    capsys.readouterr()
    assert run("sums.yaml", "--resume") in (0, 1)
    assert "dataset.pass_rate_file" in capsys.readouterr().out  # the difference is shown


def test_an_early_end_that_is_met_again_is_one_event(monkeypatch):
    monkeypatch.setattr("grpo_kit.measure.held_out.fall", lambda made: "fallen" if made[-1].step == 2 else None)
    settings = ("eval_every=1", "grpo.save_steps=1", "grpo.save_total_limit=4")
    assert run("sums.yaml", *settings) in (0, 1)
    assert [one["step"] for one in lines("sums", "events.jsonl") if one["event"] == "ended early"] == [2]
    Path("runs/sums/summary.json").unlink()
    shutil.rmtree("runs/sums/checkpoints/checkpoint-3")
    assert run("sums.yaml", *settings, "--resume") in (0, 1)
    assert [one["step"] for one in lines("sums", "events.jsonl") if one["event"] == "ended early"] == [2]
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3]


NOISE = """
import random, numpy, torch
IN_PROCESS = True


def noise(completion: str) -> float:
    return len(completion) / 100 + random.random() + float(numpy.random.rand()) + float(torch.rand(()))
"""


def test_a_measurement_leaves_the_random_numbers_of_training_alone(capsys):
    Path("rewards").mkdir()
    Path("rewards/noise.py").write_text(NOISE)
    settings = ("rewards={accuracy: 1.0, noise: 0.3}", "eval_every=1", "grpo.save_steps=1", "grpo.save_total_limit=4")
    assert run("sums.yaml", "name=whole", *settings) in (0, 1)
    shutil.copytree("runs/whole", "runs/sums")
    recipe = Path("runs/sums/recipe.yaml")
    recipe.write_text(recipe.read_text().replace("name: whole", "name: sums"))
    folder = RunDir(Path("runs/sums"))
    for later in (3, 4):
        shutil.rmtree(folder.checkpoints / f"checkpoint-{later}")
    (folder.path / "summary.json").unlink()
    assert [record["step"] for record in lines("sums", "eval.jsonl")][:3] == [
        0,
        1,
        2,
    ]  # that of step 2 is not made again
    assert run("sums.yaml", *settings, "--resume") in (0, 1)
    assert same_weights("whole", "sums")
    for file in ("metrics.jsonl", "samples.jsonl"):
        assert learned("whole", file) == learned("sums", file)


def test_a_run_of_an_earlier_version_is_said_to_be_one(capsys):
    folder = interrupted()
    origin = folder.read("provenance.json")
    del origin["settings"]
    folder.write("provenance.json", origin)
    assert "was started by an earlier version of grpo-kit" in refused(capsys, "sums.yaml")


def test_other_data_are_refused(capsys):
    rows = Path(RECIPE.split("path: ")[1].split(",")[0]).read_text().splitlines(keepends=True)
    Path("own.jsonl").write_text("".join(rows[:40]))
    Path("sums.yaml").write_text(RECIPE.replace(RECIPE.split("path: ")[1].split(",")[0], "own.jsonl"))
    interrupted()
    Path("own.jsonl").write_text("".join(rows[1:41]))
    assert "the content of data" in refused(capsys, "sums.yaml")


def test_what_only_decides_what_is_written_and_when_it_ends_may_change(capsys):
    interrupted()
    capsys.readouterr()
    settings = ("grpo.max_steps=7", "grpo.save_steps=3", "grpo.logging_steps=2")
    assert run("sums.yaml", *settings, "--resume") in (0, 1)
    changes = "grpo.logging_steps (1 -> 2); grpo.max_steps (4 -> 7); grpo.save_steps (2 -> 3)"
    out = capsys.readouterr().out
    assert f"after step 2, with other settings: {changes}\n" in out
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4, 6, 7]  # a line at each checkpoint, too
    assert [path.name for path in checkpoints_of(RunDir(Path("runs/sums")))] == ["checkpoint-6", "checkpoint-7"]
    resolved = yaml.safe_load(Path("runs/sums/recipe.yaml").read_text())["grpo"]
    assert (resolved["max_steps"], resolved["save_steps"]) == (7, 3)  # so that its own directory can be gone on with


def test_fewer_steps_than_were_taken_are_refused(capsys):
    interrupted()
    assert "grpo.max_steps: found 1, but runs/sums is at step 2" in refused(capsys, "sums.yaml", "grpo.max_steps=1")


def test_all_steps_taken_leaves_only_the_measurement():
    finished("whole")
    interrupted(step=4)
    folder = RunDir(Path("runs/sums"))
    folder.cut_back("eval.jsonl", 0)
    assert run("sums.yaml", "--resume") in (0, 1)
    assert summary("sums")["steps"] == 4
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]
    assert [e["step"] for e in lines("sums", "eval.jsonl")] == [0, 4]
    assert same_weights("whole", "sums")
    assert summary("sums")["gain"] == summary("whole")["gain"]


def one_bit_flipped(content: bytes) -> bytes:
    last = len(content) - 50  # among the numbers, where every value is a valid one
    return content[:last] + bytes([content[last] ^ 64]) + content[last + 1 :]


@pytest.mark.parametrize(
    ("file", "spoil", "reason"),
    [
        ("optimizer.pt", lambda content: content[:-100], "optimizer.pt is not what was written"),
        ("model.safetensors", one_bit_flipped, "model.safetensors is not what was written"),
        ("trainer_state.json", None, "no trainer_state.json"),
        ("config.json", None, "no config.json"),
        ("sums.json", lambda content: content[:40], "sums.json cannot be read"),
        ("sums.json", lambda content: b"{}", "sums.json does not have trainer_state.json"),
        ("sums.json", lambda content: content.replace(b"rng_state.pth", b"other.pth"), "sums.json does not have rng_s"),
        ("model.safetensors", None, "no weights"),
    ],
)
def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(capsys, file, spoil, reason):
    finished("whole")
    folder = interrupted(step=4)
    damaged = folder.checkpoints / "checkpoint-4" / file
    content = damaged.read_bytes()
    damaged.unlink()
    if spoil:
        damaged.write_bytes(spoil(content))
    capsys.readouterr()
    assert run("sums.yaml", "--resume") in (0, 1)
    assert f"checkpoint-4 is damaged ({reason}" in capsys.readouterr().out
    assert (folder.checkpoints / "damaged-4").is_dir()  # it does not count when the oldest goes, and nobody lost it
    assert same_weights("whole", "sums")
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]


def test_no_readable_checkpoint_is_said_and_nothing_is_lost(capsys):
    folder = interrupted()
    (folder.checkpoints / "checkpoint-2" / "optimizer.pt").write_bytes(b"")
    reason = "no checkpoint can be read: checkpoint-2 is damaged (optimizer.pt is not what was written)"
    assert reason in refused(capsys, "sums.yaml")
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4]


def test_a_model_without_checkpoints_is_not_thrown_away(capsys):
    assert run("sums.yaml", "grpo.save_strategy='no'") in (0, 1)
    Path("runs/sums/summary.json").unlink()
    assert "has no checkpoint to go on from" in refused(capsys, "sums.yaml", "grpo.save_strategy='no'")
    assert Path("runs/sums/final/model.safetensors").is_file()


def test_a_finished_run_is_not_gone_on_with(capsys):
    run("sums.yaml")
    capsys.readouterr()
    run("sums.yaml", "--resume")
    assert "nothing unfinished to resume, so a new run" in capsys.readouterr().out
    assert Path("runs/sums-2/summary.json").is_file()


def test_the_directory_holds_the_same_recipe_with_its_defaults_written_out():
    Path("sums.yaml").write_text(RECIPE.replace("limit: 8", "limit: null"))
    run("sums.yaml", "grpo.max_steps=1", "evaluation.samples=1", "thinking=on")
    first, again = load_recipe(Path("sums.yaml")), load_recipe(Path("runs/sums"))
    assert again.eval_dataset is not None
    assert again.eval_dataset.limit is None  # not the 21 of `dataset`
    assert again.dataset == first.dataset
    assert again.rewards["format"].options == {"style": "boxed"}
    assert (again.thinking, again.seed, again.name) == (True, 42, "sums")
    assert again.grpo["learning_rate"] == 1e-4  # YAML 1.1 would read the text "1e-4"
    assert again.grpo["save_total_limit"] == 2  # the kit's default of the day


def test_seconds_are_those_of_all_parts():
    folder = interrupted()
    folder.write("summary.json", {"status": "stopped", "wall_s": 1000.0})
    run("sums.yaml", "--resume")
    assert summary("sums")["wall_s"] > 1000


@pytest.mark.parametrize(
    ("override", "named"), [("lora={r: 8}", "lora.r (4 -> 8)"), ("lora=null", "lora.r (4 -> None)")]
)
def test_another_adapter_is_refused(capsys, override, named):
    interrupted("lora={r: 4}")
    assert named in refused(capsys, "sums.yaml", override)


def test_checkpoints_that_could_not_be_gone_on_from_are_refused_before_the_run(capsys):
    assert run("sums.yaml", "grpo.save_only_model=true") == 2
    assert "a checkpoint without optimizer cannot be gone on from" in capsys.readouterr().err


def test_a_checkpoint_without_weights_is_not_readable(tmp_path):
    folder = tmp_path / "checkpoints" / "checkpoint-3"
    folder.mkdir(parents=True)
    assert unreadable(folder) == "no trainer_state.json, optimizer.pt, scheduler.pt, rng_state.pth, sums.json"
    with pytest.raises(RecipeError, match="no checkpoint can be read"):
        newest_checkpoint(RunDir(tmp_path))


def test_a_run_directory_goes_on_itself():
    interrupted()
    run("sums.yaml", "grpo.max_steps=1")  # a newer run of the same name, finished
    assert run("runs/sums", "--resume") in (0, 1)
    assert summary("sums")["steps"] == 4
    assert not Path("runs/sums-3").exists()


def test_data_beside_the_recipe_are_the_same_data_from_the_run_directory():
    path = RECIPE.split("path: ")[1].split(",")[0]
    shutil.copyfile(path, "own.jsonl")
    Path("sums.yaml").write_text(RECIPE.replace(path, "own.jsonl"))
    interrupted()
    assert run("runs/sums", "--resume") in (0, 1)
    assert summary("sums")["steps"] == 4


def test_the_newest_unfinished_run_is_the_one(capsys):
    interrupted()
    run("sums.yaml", "grpo.warmup_steps=0", "grpo.max_steps=1")
    capsys.readouterr()
    assert run("sums.yaml", "--resume") in (0, 1)
    assert "going on with runs/sums after step 2" in capsys.readouterr().out


def test_more_steps_are_refused_where_the_schedule_depends_on_them(capsys):
    Path("sums.yaml").write_text(RECIPE + "  lr_scheduler_type: linear\n")
    interrupted()
    assert "grpo.max_steps (4 -> 8)" in refused(capsys, "sums.yaml", "grpo.max_steps=8")


def test_a_damaged_final_model_is_passed_over_for_a_checkpoint(capsys):
    run("sums.yaml", "eval_dataset=null")
    weights = Path("runs/sums/final/model.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["ask", "sums", "What is 3+4?", "--greedy"])
    assert not ended.value.code
    assert any(character.isdigit() for character in capsys.readouterr().out)
