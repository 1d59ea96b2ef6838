"""`grpo-kit preflight` on the built-in model: what it foretells, what it would change, and what it keeps."""

import json
import signal
from pathlib import Path

import pytest
from command_line import write_rows
from whole_run import DATA, lines, run, summary

from grpo_kit.cli import main
from grpo_kit.data.filters import prompt_hash

pytestmark = pytest.mark.slow

RECIPE = f"""
model: builtin:tiny
dataset: {{path: {DATA}/sums_train.jsonl, prompt: '{{question}}', limit: 60}}
rewards: {{accuracy: 1.0, format: {{weight: 0.2, style: boxed}}}}
grpo:
  max_steps: 4
  learning_rate: 1e-4
  warmup_steps: 0
  num_generations: 4
  per_device_train_batch_size: 16
  gradient_accumulation_steps: 1
  max_completion_length: 24
"""

OFTEN = '''"""1.0 for a right answer, or for any where the row is easy."""

from grpo_kit.answers import final_answer, same_answer


def often(completion: str, answer: str, easy: bool) -> float:
    found = final_answer(completion)
    return float(easy or (found is not None and same_answer(answer, found) is True))
'''


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("r.yaml").write_text(RECIPE)


def preflight(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["preflight", *arguments])
    return int(ended.value.code or 0)


def shown(capsys, *arguments: str) -> tuple[int, list[str]]:
    """Exit code, and the lines shown."""
    capsys.readouterr()
    code = preflight(*arguments)
    return code, capsys.readouterr().out.splitlines()


def kept(folder: str = "r") -> dict:
    return json.loads((Path("preflight") / folder / "preflight.json").read_text())


def easy_rows(easy: int) -> None:
    """60 sums of which so many are called easy, with a reward that gives these full marks always."""
    Path("rewards").mkdir()
    Path("rewards/often.py").write_text(OFTEN)
    rows = [json.loads(line) for line in (DATA / "sums_train.jsonl").read_text().splitlines()[:60]]
    write_rows("rows.jsonl", [{**row, "easy": at < easy} for at, row in enumerate(rows)])


EASY = ("dataset.path=rows.jsonl", "rewards={often: 1.0}")


def test_a_recipe_that_can_learn_is_a_go_and_its_numbers_are_kept(capsys):
    code, said = shown(capsys, "r.yaml", "--rows", "20", "--samples", "4")
    assert (code, said[-1]) == (0, "verdict: go")
    folder = Path("preflight/r")
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert (len(rows), len(samples)) == (20, 80)
    found = kept()["difficulty"]
    assert found["accuracy"] == pytest.approx(sum(s["rewards"]["accuracy"] for s in samples) / 80)
    assert found["truncated_share"] == pytest.approx(sum(s["truncated"] for s in samples) / 80)
    assert sum(found["histogram"].values()) == 20
    assert not Path("runs").exists()


def test_it_foretells_the_first_steps_of_a_run_and_the_summary_says_how_well():
    preflight("r.yaml", "--rows", "60")
    run("r.yaml", "grpo.max_steps=20", "grpo.learning_rate=0", "seed=3")
    scored = summary("r")["preflight"]
    for share in ("flat_group_share", "truncated_share"):
        steps = [record[f"kit/{share}"] for record in lines("r", "metrics.jsonl")]
        assert abs(scored[share]["predicted"] - sum(steps) / 20) < 0.1
        assert scored[share]["actual"] == pytest.approx(sum(steps[:3]) / 3)
    assert scored["seconds_per_step"]["predicted"] > 0


def test_a_preflight_of_another_recipe_foretells_nothing():
    preflight("r.yaml", "--rows", "4", "--samples", "4")
    run("r.yaml", "grpo.max_steps=1", "grpo.temperature=0.9")
    assert summary("r")["preflight"] is None


def test_a_budget_that_cuts_half_is_adjusted_and_then_goes(capsys):
    code, said = shown(capsys, "r.yaml", "grpo.max_completion_length=14", "--rows", "30", "--apply", "new.yaml")
    assert (code, said[-1]) == (0, "verdict: adjust")
    assert any(line.startswith("change       grpo.max_completion_length=") for line in said)
    code, said = shown(capsys, "new.yaml", "--rows", "30")
    assert (code, said[-1]) == (0, "verdict: go")
    assert "completions are cut at 14 tokens" in Path("new.yaml").read_text().splitlines()[1]


def test_rows_that_are_too_easy_are_left_out_and_then_it_goes(capsys):
    easy_rows(52)
    code, said = shown(capsys, "r.yaml", *EASY, "--rows", "60", "--apply", "sub/new.yaml")
    assert (code, said[-1]) == (0, "verdict: adjust")
    assert any(line.startswith("change       dataset.pass_rate=[0.1,0.9]") for line in said)
    code, said = shown(capsys, "sub/new.yaml", "--rows", "60")
    assert (code, said[-1]) == (0, "verdict: go")
    left = kept("new")["difficulty"]
    assert left["prompts"] <= 8  # only those that are not easy
    assert 0.1 <= left["accuracy"] <= 0.9


def test_a_hopeless_recipe_is_stopped_with_the_reason_and_no_patch(capsys):
    write_rows("never.jsonl", [{"question": f"What is {at}+1?", "answer": str(10**9 + at)} for at in range(30)])
    code, said = shown(capsys, "r.yaml", "dataset.path=never.jsonl", "--rows", "30", "--apply", "new.yaml")
    assert (code, said[-1]) == (1, "verdict: stop")
    assert any("nothing at all was right in 30 prompts x 8" in line for line in said)
    assert "not written  new.yaml: there is nothing to change in the recipe" in said
    assert not any(line.startswith("change") for line in said)
    assert not Path("new.yaml").exists()


def test_run_refuses_where_nothing_was_right_unless_anyway(capsys):
    write_rows("never.jsonl", [{"question": f"What is {at}+1?", "answer": str(10**9 + at)} for at in range(30)])
    held_out = f"eval_dataset={{path: {DATA}/sums_test.jsonl, limit: 4}}"
    never = ("dataset.path=never.jsonl", "eval_dataset={path: never2.jsonl}", "grpo.max_steps=1")
    write_rows("never2.jsonl", [{"question": f"What is {at}+2?", "answer": str(10**9 + at)} for at in range(8)])
    assert run("r.yaml", *never) == 1
    assert "none of 32 held-out completions was right before training" in capsys.readouterr().err
    assert summary("r")["status"] == "failed"
    with pytest.raises(SystemExit):
        main(["run", "r.yaml", *never, "--anyway"])
    assert summary("r-2")["steps"] == 1
    assert run("r.yaml", held_out, "grpo.max_steps=1") == 0


def test_a_graded_reward_without_full_marks_is_trained_on():
    Path("rewards").mkdir()
    Path("rewards/graded.py").write_text(
        '"""Shorter is better."""\n\n\ndef graded(completion):\n    return 0.5 / (1 + len(completion))\n'
    )
    held_out = f"eval_dataset={{path: {DATA}/sums_test.jsonl, limit: 4}}"
    assert run("r.yaml", "rewards={graded: 1.0}", held_out, "grpo.max_steps=1") in (0, 1)
    assert summary("r")["steps"] == 1


def test_ctrl_c_keeps_what_was_sampled(capsys, monkeypatch):
    from grpo_kit.evaluation import judged

    sample_batch, calls = judged.sample_batch, []

    def interrupted(*args, **kwargs):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return sample_batch(*args, **kwargs)

    monkeypatch.setattr(judged, "sample_batch", interrupted)
    code, said = shown(capsys, "r.yaml", "--rows", "20")
    assert code == 130
    assert any(line.startswith("interrupted: what follows is from 4 prompts") for line in said)
    assert len((Path("preflight/r") / "rows.jsonl").read_text().splitlines()) == 4
    assert kept()["cost"] is None


def test_ctrl_c_while_steps_are_timed_keeps_all_that_was_sampled(capsys, monkeypatch):
    from grpo_kit.preflight.preflight import StepTimer

    began = StepTimer.on_step_begin

    def interrupted(self, *args, **kwargs):
        signal.raise_signal(signal.SIGINT)
        began(self, *args, **kwargs)

    monkeypatch.setattr(StepTimer, "on_step_begin", interrupted)
    code, said = shown(capsys, "r.yaml", "--rows", "20")
    assert code == 130
    assert said[-1] == "verdict: go"
    assert (kept()["cost"], kept()["difficulty"]["prompts"]) == (None, 20)


def test_steps_that_share_a_rollout_are_timed_as_whole_cycles():
    preflight("r.yaml", "--rows", "8", "grpo.steps_per_generation=2", "grpo.num_iterations=2")
    run("r.yaml", "grpo.steps_per_generation=2", "grpo.num_iterations=2", "grpo.max_steps=9", "grpo.learning_rate=0")
    scored = summary("r")["preflight"]["seconds_per_step"]
    assert 0.3 < scored["predicted"] / scored["actual"] < 3  # a mean of both, with rollouts


def test_held_out_rows_are_reported_beside(capsys):
    held_out = f"eval_dataset={{path: {DATA}/sums_test.jsonl}}"
    _, said = shown(capsys, "r.yaml", held_out, "--rows", "8", "--samples", "4", "--held-out")
    assert "held-out rows: 8 prompts x 4 completions" in said
    assert kept()["held_out"]["prompts"] == 8


def test_what_is_there_is_never_overwritten(capsys):
    Path("new.yaml").write_text("mine")
    assert preflight("r.yaml", "--apply", "new.yaml") == 2
    assert "new.yaml: is there already" in capsys.readouterr().err
    preflight("r.yaml", "--rows", "2")
    preflight("r.yaml", "--rows", "2")
    assert Path("preflight/r-2/preflight.json").is_file()


def checked(capsys, *overrides: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["check", "r.yaml", *overrides])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def rates(pass_rates) -> None:
    """A file that says so of the first rows."""
    rows = [json.loads(line) for line in (DATA / "sums_train.jsonl").read_text().splitlines()]
    records = [
        {
            "prompt_sha256": prompt_hash(
                {"prompt": [{"role": "user", "content": row["question"]}], "answer": row["answer"]}
            ),
            "pass_rate": rate,
        }
        for row, rate in zip(rows, pass_rates, strict=False)
    ]
    write_rows("rates.jsonl", records)


BAND = ("dataset.pass_rate=[0.25,0.75]", "dataset.pass_rate_file=rates.jsonl", "dataset.limit=null")


def test_only_rows_of_the_wanted_pass_rates_are_kept(capsys):
    rates([0.0, 0.25, 0.5, 0.75, 0.5, 1.0, None])
    code, out, _ = checked(capsys, *BAND)
    assert code == 0
    assert "4 of 6 measured rows kept, their pass rates are within 0.25 to 0.75" in out
    assert "rows were not measured and are left out" in out


@pytest.mark.parametrize(
    ("content", "override", "message"),
    [
        (None, (), "dataset.pass_rate_file: no such file: rates.jsonl"),
        ('{"prompt_sha256": "0", "pass_rate": 0.5}\n', (), "none of the"),
        ('{"a": 1}\n', (), "line 1 has no prompt_sha256 and pass_rate"),
        ('{"prompt_sha256": "0", "pass_rate": 0.5}\n{"prompt', (), "none of the"),  # cut off by a crash
        ("not json\n", (), "line 1 has no prompt_sha256 and pass_rate"),
        (None, ("dataset.pass_rate=[0.9,0.1]",), "write two shares such as [0.1, 0.9]"),
        (None, ("dataset.pass_rate=[0.1]",), "dataset.pass_rate"),
        (None, ("dataset.pass_rate=0.5",), "dataset.pass_rate"),
        (None, ("dataset.pass_rate_file=null",), "pass_rate: needs pass_rate_file too"),
        (None, ("dataset.pass_rate=null",), "pass_rate_file: needs pass_rate too"),
        (None, ("eval_dataset={path: x.jsonl, pass_rate: [0, 1], pass_rate_file: y}",), "only training rows"),
    ],
)
def test_what_is_wrong_with_pass_rates_is_said(capsys, content, override, message):
    if content is not None:
        Path("rates.jsonl").write_text(content)
    code, _, err = checked(capsys, *BAND, *override)
    assert code == 2
    assert message in err


def test_a_preflights_folder_stands_for_its_file(capsys):
    rates([0.5] * 10)
    Path("folder").mkdir()
    Path("rates.jsonl").rename("folder/rows.jsonl")
    code, out, _ = checked(capsys, *BAND, "dataset.pass_rate_file=folder")
    assert code == 0
    assert "10 of 10 measured rows kept" in out


def test_too_few_of_the_wanted_pass_rates_are_said_to_be_that(capsys):
    rates([0.5] * 3)
    code, _, err = checked(capsys, *BAND)
    assert code == 2
    assert "dataset: has 3 rows of the wanted pass rates in its pass_rate_file, but one generation batch needs 4" in err


def test_no_row_within_is_an_error(capsys):
    rates([0.0, 1.0])
    code, _, err = checked(capsys, *BAND)
    assert code == 2
    assert "none of the 2 prompts measured in" in err


def test_the_run_directory_knows_its_rows_too():
    rates([0.5] * 20)
    run("r.yaml", *BAND, "grpo.max_steps=1")
    run("runs/r")
    assert len({s["row"] for s in lines("r-2", "samples.jsonl")}) > 0
    assert summary("r-2")["steps"] == 1
