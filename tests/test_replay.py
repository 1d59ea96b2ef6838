"""A run's completions under other rewards: what is said is what a count of `samples.jsonl` by hand gives."""

import json
import os
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from command_line import write_rows
from whole_run import run as grpo_kit_run

from grpo_kit.cli import main
from grpo_kit.data.data import Data
from grpo_kit.errors import RecipeError, RewardError
from grpo_kit.reward_tools.replay import replay
from grpo_kit.reward_tools.rescore import advantage_signs, rescore
from grpo_kit.reward_tools.sample_rows import RowFinder
from grpo_kit.run.run_dir import RunDir

SUMS = [(12, 15), (3, 4), (20, 22), (8, 9), (31, 5), (6, 6), (14, 70)]
CHINESE = "三加四等于几？"
OVERLONG = (0, 5)
"""Rows whose prompts leave no room within the 512 positions of the built-in model."""

RECIPE = """
model: builtin:tiny
dataset: {path: rows.jsonl, prompt: '{question}'}
rewards: {accuracy: 1.0, format: {weight: 0.5, style: boxed}}
grpo:
  max_steps: 2
  num_generations: 4
  per_device_train_batch_size: 8
  gradient_accumulation_steps: 2
  max_completion_length: 16
  save_strategy: 'no'
"""
"""Two steps of 16 / 4 = 4 prompts: each of the 8 rows that are short enough once."""

STRICT = 'def {name}(completion, answer):\n    return float(completion == "\\\\boxed{{" + answer + "}}")\n'


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A project with one finished run, `runs/sums`."""
    project, before = tmp_path_factory.mktemp("project"), Path.cwd()
    rows = [{"question": f"What is {a}+{b}?", "answer": str(a + b)} for a, b in SUMS]
    rows.append({"question": CHINESE, "answer": "7"})
    for place in OVERLONG:
        rows.insert(place, {"question": f"{place} " + "+1" * 300, "answer": "300"})
    os.chdir(project)
    try:
        write_rows("rows.jsonl", [{**row, "place": place} for place, row in enumerate(rows)])
        Path("sums.yaml").write_text(RECIPE)
        assert grpo_kit_run("sums.yaml") in (0, 1)
    finally:
        os.chdir(before)
    return project


@pytest.fixture
def run(trained) -> RunDir:
    return RunDir(trained / "runs" / "sums")


@pytest.fixture
def samples(run) -> list[dict]:
    found = list(run.lines("samples.jsonl"))
    assert len(found) == 32
    return found


@pytest.fixture
def project(trained, tmp_path) -> Path:
    """A copy of the project whose files a test may change."""
    shutil.copytree(trained, tmp_path / "copy")
    copied = RunDir(tmp_path / "copy" / "runs" / "sums")
    copied.write("provenance.json", {**copied.read("provenance.json"), "recipe": str(tmp_path / "copy" / "sums.yaml")})
    return tmp_path / "copy"


def recipe_with(rewards: str, **files: str) -> Path:
    """A recipe in the current folder with these rewards, and the reward files beside it."""
    Path("rewards").mkdir(exist_ok=True)
    for name, code in files.items():
        Path("rewards", f"{name}.py").write_text(code, encoding="utf-8")
    old = "{accuracy: 1.0, format: {weight: 0.5, style: boxed}}"
    assert old in RECIPE
    Path("new.yaml").write_text(RECIPE.replace(old, rewards), encoding="utf-8")
    return Path("new.yaml")


def line_of(lines: list[str], label: str) -> str:
    """The line that begins with the label; it has one."""
    [line] = [line for line in lines if line.startswith(f"{label:<12} ")]
    return line[13:]


def old_total(sample: dict) -> float:
    return sample["rewards"]["accuracy"] + 0.5 * sample["rewards"]["format"]


def by_group(values: list) -> list[list]:
    return [values[start : start + 4] for start in range(0, 32, 4)]


def test_the_same_rewards_change_nothing(run, trained):
    lines = replay(run, None, 5)
    assert lines[0] == f"run          {run.path}: 32 completions, 8 groups, 2 steps"
    assert lines[1] == f"rewards      of {trained}/sums.yaml, which the run was started from"
    assert lines[-1] == "nothing changes: the rewards give these 32 completions the same scores"
    assert len(lines) == 5  # and a line for each of the two rewards: no note, no example


def test_a_stricter_reward_is_counted(run, samples):
    recipe = recipe_with(
        "{accuracy: 1.0, format: {weight: 0.5, style: boxed}}", accuracy=STRICT.format(name="accuracy")
    )
    before = [sample["rewards"]["accuracy"] for sample in samples]
    after = [float(sample["completion"] == f"\\boxed{{{sample['gold']}}}") for sample in samples]
    totals = [old_total(sample) for sample in samples]
    new_totals = [a + 0.5 * sample["rewards"]["format"] for a, sample in zip(after, samples, strict=True)]
    changed = sum(a != b for a, b in zip(before, after, strict=True))
    assert 0 < changed < 32

    lines = replay(run, recipe, 2)
    means = f"mean {fmean(before):.3f} -> {fmean(after):.3f}"
    assert lines[1] == "rewards      of new.yaml"
    assert line_of(lines, "format").startswith("0 of 32 changed (0.00); ")
    assert line_of(lines, "total") == (
        f"{changed} of 32 changed ({changed / 32:.2f}); mean {fmean(totals):.3f} -> {fmean(new_totals):.3f}"
    )
    of_reward, of_goal = [line[13:] for line in lines if line.startswith("accuracy     ")]
    assert of_reward == f"{changed} of 32 changed ({changed / 32:.2f}); {means}"
    assert of_goal == f"{fmean(before):.3f} -> {fmean(after):.3f} (full marks of accuracy)"

    flat = [(len(set(a)) == 1, len(set(b)) == 1) for a, b in zip(by_group(totals), by_group(new_totals), strict=True)]
    assert line_of(lines, "groups") == (
        f"{flat.count((False, True))} of {sum(not a for a, _ in flat)} turn flat; "
        f"{flat.count((True, False))} of {sum(a for a, _ in flat)} flat ones no longer are"
    )
    pairs = [
        (a - fmean(old), b - fmean(new))
        for old, new in zip(by_group(totals), by_group(new_totals), strict=True)
        for a, b in zip(old, new, strict=True)
    ]
    signed = [(a, b) for a, b in pairs if abs(a) > 1e-9 and abs(b) > 1e-9]
    flips = sum(a * b < 0 for a, b in signed)
    assert line_of(lines, "advantages").startswith(f"{flips} of {len(signed)} change sign ({flips / len(signed):.2f});")

    at = lines.index(f"2 of {changed} completions that changed, those that changed most:")
    first = next(s for s, a, b in zip(samples, before, after, strict=True) if a != b)
    shown = "\n".join(lines[at:])
    assert f"step {first['step']}  row {first['row']}  total {old_total(first):.3g} -> " in shown
    assert f"  prompt: {first['prompt']}\n  | {first['completion']}" in shown
    assert "accuracy 1 -> 0" in shown
    assert shown.count("  prompt: ") == 2


def test_where_every_total_is_mirrored_every_advantage_flips(run, samples):
    # 1 - accuracy, and format counted the other way round: the total is 1 - what it was
    flipped = (
        "from grpo_kit.answers import final_answer, same_answer\n\n\ndef accuracy(completion, answer):\n"
        "    found = final_answer(completion)\n"
        "    return 1.0 - float(found is not None and same_answer(answer, found))\n"
    )
    lines = replay(run, recipe_with("{accuracy: 1.0, format: {weight: -0.5, style: boxed}}", accuracy=flipped), 0)
    totals = by_group([old_total(sample) for sample in samples])
    signed = sum(abs(total - fmean(group)) > 1e-9 for group in totals for total in group)
    assert signed > 16
    assert line_of(lines, "advantages") == (
        f"{signed} of {signed} change sign (1.00); {32 - signed} without one before or now"
    )
    assert line_of(lines, "format").endswith("; weight 0.5 -> -0.5")
    assert line_of(lines, "groups").startswith("0 of ")


def test_a_constant_reward_turns_all_groups_flat(run, samples):
    lines = replay(run, recipe_with("{accuracy: 1.0}", accuracy="def accuracy(completion):\n    return 0.25\n"), 5)
    varied = sum(len({old_total(sample) for sample in group}) > 1 for group in by_group(samples))
    assert varied
    assert line_of(lines, "groups") == f"{varied} of {varied} turn flat; 0 of {8 - varied} flat ones no longer are"
    assert line_of(lines, "advantages") == "0 of 0 change sign; 32 without one before or now"


def test_rewards_that_come_and_go_are_named(run, samples):
    brevity = "def brevity(completion):\n    return -len(completion)\n"
    lines = replay(run, recipe_with("{accuracy: 1.0, brevity: 0.01}", brevity=brevity), 1)
    was, now = (
        fmean(sample["rewards"]["format"] for sample in samples),
        fmean(-len(s["completion"]) for s in samples),
    )
    assert line_of(lines, "format") == f"only before (weight 0.5), mean {was:.3f}"
    assert line_of(lines, "brevity") == f"only now (weight 0.01), mean {now:.3f}"
    assert "(only before)" in lines[-1]
    assert "(only now)" in lines[-1]


def test_what_is_no_longer_judged_is_counted(run, samples):
    unsure = "def format(completion):\n    return None if 'boxed' in completion else 0.0\n"
    boxed = sum("boxed" in sample["completion"] for sample in samples)
    assert 0 < boxed < 32
    line = line_of(replay(run, recipe_with("{accuracy: 1.0, format: 0.5}", format=unsure), 0), "format")
    assert line.endswith(f"-> 0.000; {boxed} no longer judged")


def test_a_weight_alone_changes_totals(run):
    lines = replay(run, recipe_with("{accuracy: 1.0, format: {weight: 0.1, style: boxed}}"), 0)
    assert line_of(lines, "format").startswith("0 of 32 changed (0.00); ")
    assert line_of(lines, "format").endswith("; weight 0.5 -> 0.1")
    assert not line_of(lines, "total").startswith("0 of 32")


def test_another_goal_means_other_right_completions(run, samples):
    recipe = recipe_with("{accuracy: 1.0, format: {weight: 0.5, style: boxed}}\ngoal: format")
    accuracy, form = (fmean(sample["rewards"][name] for sample in samples) for name in ("accuracy", "format"))
    lines = replay(run, recipe, 0)
    assert lines[-1] == f"accuracy     {accuracy:.3f} -> {form:.3f} (full marks of accuracy, now format)"


def test_the_recipe_it_was_started_from_is_read_as_it_is_now(project):
    Path(project, "rewards").mkdir()
    Path(project, "rewards", "format.py").write_text("def format(completion, *, style):\n    return 7.0\n")
    assert " -> 7.000" in line_of(replay(RunDir(project / "runs" / "sums"), None, 0), "format")


def test_overrides_of_rewards_hold_as_they_did_in_the_run(project):
    run = RunDir(project / "runs" / "sums")
    argv = ["grpo-kit", "run", "sums.yaml", "grpo.max_steps=2", "rewards.format.weight=0.2"]
    run.write("provenance.json", {**run.read("provenance.json"), "argv": argv})
    lines = replay(run, None, 0)
    assert lines[1].endswith(
        "/sums.yaml, which the run was started from, with rewards.format.weight=0.2 of its command line"
    )
    assert line_of(lines, "format").endswith("; weight 0.5 -> 0.2")


def test_without_its_recipe_a_run_has_its_own_copies(project):
    run = RunDir(project / "runs" / "sums")
    (project / "sums.yaml").unlink()
    lines = replay(run, None, 5)
    assert lines[1] == f"rewards      the run's own copies ({project}/sums.yaml is gone)"
    assert lines[-1].startswith("nothing changes")
    origin = run.read("provenance.json")
    del origin["recipe"]  # a run of an earlier version
    run.write("provenance.json", origin)
    assert "does not say which recipe" in replay(run, None, 5)[1]


def test_a_column_is_that_of_the_right_row_though_overlong_rows_were_left_out(run, samples, trained):
    assert run.read("data_fingerprint.json")["train"]["rows"] == 8
    rows = [json.loads(line) for line in (trained / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    place = {row["question"]: row["place"] for row in rows}
    recipe = recipe_with("{where: 1.0}", where="def where(completion, place):\n    return place\n")
    found = rescore(run, recipe)
    assert found.notes == []
    assert [one.after.rewards["where"] for one in found.completions] == [place[s["prompt"]] for s in samples]
    assert {one.after.rewards["where"] for one in found.completions} == {1, 2, 3, 4, 6, 7, 8, 9}


def test_batch_rewards_see_the_batches_of_the_training_and_how_many_tokens_there_were(run, samples):
    seen = (
        "def seen(completions, completion_ids):\n    return [len(completions) + len(c) / 100 for c in completion_ids]\n"
    )
    found = rescore(run, recipe_with("{seen: 1.0}", seen=seen))
    assert [one.after.rewards["seen"] for one in found.completions] == [16 + s["tokens"] / 100 for s in samples]


def test_chinese_text_is_read_and_shown(run):
    asks = f"def asks(completion, prompt):\n    return 5.0 if prompt == '{CHINESE}' else 0.0\n"
    lines = replay(run, recipe_with("{accuracy: 1.0, asks: 1.0}", asks=asks), 4)
    assert lines.count(f"  prompt: {CHINESE}") == 4


def test_long_and_hostile_completions_are_shown_in_part_and_as_text(project):
    run = RunDir(project / "runs" / "sums")
    one, *others = run.lines("samples.jsonl")
    one["completion"] = "\x1b[2J" + "a" * 2000 + " so it is 41"
    run.write_text("samples.jsonl", "".join(json.dumps(sample) + "\n" for sample in (one, *others)))
    long = "def long(completion):\n    return len(completion)\n"
    shown = "\n".join(replay(run, recipe_with("{accuracy: 1.0, long: 1.0}", long=long), 1))
    assert "  | \\x1b[2Jaaa" in shown
    assert "[... 1216 characters ...]" in shown  # of 4 + 2000 + 12 all but 800
    assert "aaa so it is 41\n" in shown


def test_what_a_reward_lacks_or_breaks_is_said_as_in_a_run(run):
    with pytest.raises(RecipeError, match="needs the column 'hint', but the data has question, answer, place"):
        replay(run, recipe_with("{x: 1.0}", x="def x(completion, hint):\n    return 1.0\n"), 5)
    with pytest.raises(RewardError, match=r"x\.py: x raised ValueError: not this one"):
        replay(run, recipe_with("{x: 1.0}", x="def x(completion):\n    raise ValueError('not this one')\n"), 5)
    with pytest.raises(RecipeError, match="no such file"):
        replay(run, Path("gone.yaml"), 5)


@pytest.mark.parametrize("line", ['{"step": 1, "row"\n', "[]\n", '{"step": 1, "row": 0}\n'])
def test_damaged_samples_are_refused(project, line):
    file = project / "runs" / "sums" / "samples.jsonl"
    file.write_text(line + file.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(RecipeError, match=r"samples\.jsonl: is damaged, 1 of its lines hold no completion"):
        replay(RunDir(project / "runs" / "sums"), None, 5)


def test_a_line_that_a_crash_cut_off_is_passed_over(project):
    run = RunDir(project / "runs" / "sums")
    with (run.path / "samples.jsonl").open("a") as file:
        file.write('{"step": 3, "row": 1, "prom')
    assert "32 completions" in replay(run, None, 5)[-1]


def test_no_samples(project):
    run = RunDir(project / "runs" / "sums")
    run.write_text("samples.jsonl", "")
    with pytest.raises(RecipeError, match=r"has no completions \(samples.jsonl\)"):
        replay(run, None, 5)


def test_data_that_changed_since_is_said(project):
    rows = [json.loads(line) for line in (project / "rows.jsonl").read_text(encoding="utf-8").splitlines()]
    tree = (project / "runs" / "sums" / "recipe.yaml").read_text(encoding="utf-8")
    original = next(line for line in tree.splitlines() if "rows.jsonl" in line).split(": ", 1)[1]
    moved = tree.replace(original, str(project / "rows.jsonl"))
    (project / "runs" / "sums" / "recipe.yaml").write_text(moved, encoding="utf-8")
    run = RunDir(project / "runs" / "sums")

    write_rows(str(project / "rows.jsonl"), [row for row in rows if row["question"] != CHINESE])
    notes = [line for line in replay(run, None, 5) if line.startswith("note")]
    label = str(project / "rows.jsonl")
    assert notes == [
        f"note         {label} is not what it was when the run was started",
        f"note         4 of 32 completions left out, their row cannot be told in {label}",
    ]
    write_rows(str(project / "rows.jsonl"), [{"question": "1+1?", "answer": "2", "place": 0}])
    with pytest.raises(RecipeError, match="none of its prompts is in"):
        replay(run, None, 5)


def data(*rows: tuple[str, str, int]) -> Data:
    made = [{"prompt": [{"role": "user", "content": p}], "answer": gold, "x": x} for p, gold, x in rows]
    return Data("rows", made, ("prompt", "answer", "x"), len(made))


@pytest.mark.parametrize(
    ("sample", "x"),
    [
        ({"row": 0, "prompt": "a", "gold": "1"}, 1),
        ({"row": 2, "prompt": "b", "gold": "3"}, 4),
        ({"row": 3, "prompt": "b", "gold": "2"}, 5),  # the gold answer tells it from the other b
        ({"row": 2, "prompt": "c", "gold": "4"}, 3),  # it is the row numbered 2 or 3 now, and 3 is a b
        ({"row": 1, "prompt": "c", "gold": "4"}, None),  # this could be the first c or the second
        ({"row": 0, "prompt": "d", "gold": "1"}, None),
    ],
)
def test_a_row_is_found_or_it_is_left_out(sample, x):
    everything = data(("a", "1", 1), ("c", "4", 2), ("c", "4", 3), ("b", "3", 4), ("b", "2", 5))
    find = RowFinder(everything, {"rows": 4, "scanned": 5, "sha256": "of the rows that were short enough"})
    found = find(sample)
    assert (found and found["x"]) == x


def test_where_no_row_was_left_out_the_number_is_the_row():
    everything = data(("a", "1", 1), ("a", "1", 2))
    find = RowFinder(everything, everything.fingerprint())
    assert [find({"row": row, "prompt": "a", "gold": "1"})["x"] for row in (0, 1)] == [1, 2]
    assert not find.changed


@pytest.mark.parametrize(
    ("totals", "signs"),
    [
        ([1.0, 0.0, 0.0, 0.0], [1, -1, -1, -1]),
        ([1.0, 0.5, 0.0], [1, 0, -1]),
        ([1.0, None, 0.0], [1, 0, -1]),
        ([0.3, 0.1 + 0.2], [0, 0]),
        ([None, None], [0, 0]),
        ([5.0], [0]),
    ],
)
def test_signs_of_advantages(totals, signs):
    assert advantage_signs(totals) == signs


def test_the_command(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "replay", "sums"])
    assert not ended.value.code
    assert "nothing changes: the rewards give these 32 completions the same scores" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["rewards", "replay", "nowhere"])
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: nowhere: no such run (runs here: sums)\n"
