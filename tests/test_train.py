"""Whole runs through the command line, on the built-in model."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from whole_run import RECIPE, lines, run, same_weights, summary

from grpo_kit.cli import main
from grpo_kit.run.run_dir import RunDir
from grpo_kit.shipped import tiny_model

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def recipe(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("sums.yaml").write_text(RECIPE)


def test_a_run_writes_what_it_promises_and_does_what_it_planned(capsys):
    assert run("sums.yaml") in (0, 1)
    shown = capsys.readouterr().out
    assert "4 steps" in shown
    assert "of 4 prompts x 4 = 16 completions" in shown
    assert "1 of 21 rows unused per epoch" in shown  # 5 rollouts of 4 prompts use 20 rows
    files = {path.name for path in Path("runs/sums").iterdir()}
    assert files >= {
        "recipe.yaml", "rewards", "data_fingerprint.json", "grpo_config.json", "provenance.json", "metrics.jsonl",
        "samples.jsonl", "eval.jsonl", "summary.json", "checkpoints", "final",
    }  # fmt: skip
    metrics, samples = lines("sums", "metrics.jsonl"), lines("sums", "samples.jsonl")
    assert [m["step"] for m in metrics] == [1, 2, 3, 4]
    for step in (1, 2, 3, 4):
        rows = [s["row"] for s in samples if s["step"] == step]
        assert len(rows) == 16
        assert len(set(rows)) == 4
    assert len({s["row"] for s in samples}) == 16  # one epoch has 20 rows, so none comes twice
    assert summary("sums")["steps"] == 4
    assert [e["step"] for e in lines("sums", "eval.jsonl")] == [0, 4]


def test_metrics_agree_with_the_samples_they_summarise():
    run("sums.yaml", "grpo.max_steps=2")
    samples = [s for s in lines("sums", "samples.jsonl") if s["step"] == 2]
    metrics = lines("sums", "metrics.jsonl")[1]
    assert metrics["kit/accuracy"] == pytest.approx(sum(s["rewards"]["accuracy"] for s in samples) / 16)
    assert metrics["reward"] == pytest.approx(
        sum(s["rewards"]["accuracy"] + 0.5 * s["rewards"]["format"] for s in samples) / 16
    )
    groups = [samples[start : start + 4] for start in range(0, 16, 4)]
    flat = [g for g in groups if len({s["rewards"]["accuracy"] + 0.5 * s["rewards"]["format"] for s in g}) == 1]
    assert metrics["kit/flat_group_share"] == len(flat) / 4
    assert all(s["advantage"] == 0 for g in flat for s in g)
    assert all(sum(s["advantage"] for s in g) == pytest.approx(0, abs=1e-4) for g in groups)


def test_a_learning_rate_of_0_is_a_failed_run(capsys):
    assert run("sums.yaml", "grpo.learning_rate=0") == 1
    ended = summary("sums")
    assert (ended["status"], ended["verdict"]) == ("failed", "not learned")
    assert "no weight moved: the learning rate was 0" in ended["reason"]
    assert "no weight moved" in capsys.readouterr().out


def test_a_constant_reward_is_a_failed_run_that_says_why():
    Path("rewards").mkdir()
    Path("rewards/nice.py").write_text('"""Always."""\n\ndef nice(completion):\n    return 1.0\n')
    assert run("sums.yaml", "rewards={nice: 1.0}") == 1
    assert summary("sums")["reason"].startswith("nothing could be learned in any step: every group is flat")
    assert "the rows are too easy, or nice pays for anything" in summary("sums")["reason"]
    assert "nice gives always full marks" in summary("sums")["reason"]


def test_the_run_directory_repeats_the_run():
    run("sums.yaml", "grpo.max_steps=2")
    run("runs/sums")
    assert summary("sums-2")["steps"] == 2
    assert same_weights("sums", "sums-2")


def test_measuring_does_not_change_the_training():
    run("sums.yaml", "grpo.max_steps=3")
    run("sums.yaml", "grpo.max_steps=3", "eval_dataset=null")
    run("sums.yaml", "grpo.max_steps=3", "eval_every=1")
    assert summary("sums-2")["verdict"] == "not measured"
    assert [e["step"] for e in lines("sums-3", "eval.jsonl")] == [0, 1, 2, 3]
    assert same_weights("sums", "sums-2")
    assert same_weights("sums", "sums-3")


def test_another_seed_is_another_run():
    run("sums.yaml", "grpo.max_steps=2", "eval_dataset=null")
    run("sums.yaml", "grpo.max_steps=2", "eval_dataset=null", "seed=7")
    assert not same_weights("sums", "sums-2")


def test_an_adapter_is_trained_saved_and_asked(capsys):
    run("sums.yaml", "lora={r: 4}", "grpo.learning_rate=1e-3", "grpo.max_steps=2", "eval_dataset=null")
    assert (Path("runs/sums/final") / "adapter_model.safetensors").is_file()
    capsys.readouterr()
    main_ok("ask", "sums", "What is 3+4?", "--greedy")
    assert any(character.isdigit() for character in capsys.readouterr().out)


def test_reading_and_asking_a_run(capsys):
    run("sums.yaml", "grpo.max_steps=2", "eval_dataset=null")
    capsys.readouterr()
    main_ok("samples", "sums", "--where", "accuracy=1", "--limit", "3")
    shown = capsys.readouterr().out
    assert shown.count("answer read: ") == 3
    assert "accuracy 0" not in shown
    main_ok("ask", "sums", "What is 3+4?")
    assert "<|im_end|>" not in capsys.readouterr().out


def main_ok(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert not ended.value.code


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_stops_and_the_run_goes_on(number, code):
    command = [sys.executable, "-m", "grpo_kit", "run", "sums.yaml", "grpo.max_steps=12", "grpo.save_steps=100"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("step  3/12"):
            process.send_signal(number)
            break
    rest = process.stdout.read()
    assert process.wait(timeout=60) == code, rest
    stopped = summary("sums")
    assert stopped["status"] == "stopped"
    assert 3 <= stopped["steps"] < 12
    assert list(Path("runs/sums/checkpoints").glob("checkpoint-*"))
    assert run("sums.yaml", "grpo.max_steps=12", "grpo.save_steps=100", "--resume") in (0, 1)
    assert not Path("runs/sums-2").exists()
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == list(range(1, 13))
    assert summary("sums")["status"] == "done"
    assert summary("sums")["verdict"] != "not measured"


def test_a_reward_that_fails_names_itself_and_leaves_a_summary(capsys):
    Path("rewards").mkdir()
    Path("rewards/late.py").write_text(
        '"""Fails on its 40th call."""\n\nIN_PROCESS = True\ncalls = 0\n\n\n'
        "def late(completion):\n    global calls\n    calls += 1\n"
        '    if calls == 40:\n        raise KeyError("x")\n    return len(completion)\n'
    )
    assert run("sums.yaml", "rewards={late: 1.0}", "eval_dataset=null") == 1
    assert "late raised KeyError: 'x' (late.py:11, completion" in capsys.readouterr().err
    assert summary("sums")["status"] == "failed"


def test_resume_starts_where_there_is_nothing_to_resume():
    started = time.time()
    run("sums.yaml", "grpo.max_steps=1", "eval_dataset=null", "--resume")
    assert summary("sums")["steps"] == 1
    assert (Path("runs/sums") / "summary.json").stat().st_mtime >= started - 1


JUDGE = """'''A judge that is down for its first calls.'''

IN_PROCESS = True
calls = 0


def judge(completion, prompt):
    global calls
    calls += 1
    one, other = prompt.removeprefix("What is ").rstrip("?").split("+")
    return None if calls <= {down} else float(str(int(one) + int(other)) in completion)
"""


def test_a_reward_that_judges_nothing_is_a_failed_run_that_says_why(capsys):
    Path("rewards").mkdir()
    Path("rewards/judge.py").write_text(JUDGE.format(down=10**6))
    assert run("sums.yaml", "rewards={judge: 1.0}") == 1
    assert summary("sums")["reason"].startswith(
        "RewardError: step 3: no reward judged any completion of 3 batches: all rewards returned None for all of them"
    )
    assert {m["kit/all_wrong"] for m in lines("sums", "metrics.jsonl")} == {0.0}  # nobody said that they are wrong
    assert {m["kit/unscored_share"] for m in lines("sums", "metrics.jsonl")} == {1.0}
    assert "held-out after step 0: nothing could be judged" in capsys.readouterr().out


def test_rows_that_were_judged_only_once_are_no_gain():
    Path("rewards").mkdir()
    Path("rewards/judge.py").write_text(JUDGE.format(down=8 + 14))  # two trials of 4, and 7 of 8 prompts x 2
    assert run("sums.yaml", "rewards={judge: 1.0}", "grpo.learning_rate=1e-6") in (0, 1)
    before = lines("sums", "eval.jsonl")[0]
    assert sum(rate is None for rate in before["pass_rates"]) == 7
    assert before["n"] == 1
    assert before["unscored"]["judge"] == 14 / 16
    assert summary("sums")["verdict"] == "unclear"


def test_a_run_that_is_all_warmup_says_so(capsys):
    assert run("sums.yaml", "grpo.max_steps=1", "grpo.warmup_steps=10", "eval_dataset=null") == 1
    assert "the only step fell into warmup" in summary("sums")["reason"]
    assert "the learning rate rises over the first 10 of 1 steps" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["我的 配方", "my recipe (v2)"])
def test_any_file_name_makes_a_run_that_is_a_recipe(name, capsys):
    Path(f"{name}.yaml").write_text(RECIPE)
    assert run(f"{name}.yaml", "grpo.max_steps=1", "eval_dataset=null") in (0, 1)
    main_ok("check", f"runs/{name}")
    main_ok("ask", name, "What is 1+2?", "--greedy")


def test_two_reward_files_of_one_name_are_both_kept():
    for folder, value in (("a", "len(completion)"), ("b", "completion.count('1')")):
        Path(folder).mkdir()
        Path(folder, "own.py").write_text(f'"""Own."""\n\n\ndef own(completion):\n    return {value}\n')
    assert run("sums.yaml", "rewards={one: {file: a/own.py}, two: {file: b/own.py}}", "grpo.max_steps=2") in (0, 1)
    run("runs/sums")
    first, again = (lines(name, "metrics.jsonl")[1] for name in ("sums", "sums-2"))
    assert first["rewards/one/mean"] == again["rewards/one/mean"] != again["rewards/two/mean"]


def test_a_run_stopped_before_its_first_step_has_no_model_of_its_own():
    code = (
        "import os, signal, grpo_kit.evaluation.evaluate as e, grpo_kit.cli as c\n"
        "measure = e.evaluate\n"
        "def stopped(*a, **k):\n    os.kill(os.getpid(), signal.SIGINT)\n    return measure(*a, **k)\n"
        "import grpo_kit.measure.held_out as t\nt.evaluate = stopped\nc.main(['run', 'sums.yaml'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert summary("sums")["status"] == "stopped"
    assert summary("sums")["steps"] == 0
    assert not Path("runs/sums/final").exists()


def test_the_final_model_is_a_checkpoint_like_the_base():
    run("sums.yaml", "grpo.max_steps=1", "eval_dataset=null")
    base, final = tiny_model(), Path("runs/sums/final")
    assert load_file(final / "model.safetensors").keys() == load_file(base / "model.safetensors").keys()  # ties kept
    config = json.loads((final / "config.json").read_text())
    assert (config["dtype"], config["use_cache"]) == ("float32", True)


def test_the_seconds_of_a_step_are_those_of_its_parts():
    run("sums.yaml", "eval_dataset=null")
    for metrics in lines("sums", "metrics.jsonl"):
        parts = sum(metrics[f"kit/seconds/{part}"] for part in ("generation", "rewards", "update"))
        assert metrics["kit/seconds/step"] == pytest.approx(parts)


def test_seconds_of_several_rollouts_a_step_add_up():
    run("sums.yaml", "grpo.steps_per_generation=1", "eval_dataset=null", "grpo.max_steps=2")
    for metrics in lines("sums", "metrics.jsonl"):
        assert 0 < metrics["kit/seconds/generation"] < metrics["kit/seconds/step"]
    assert len(lines("sums", "samples.jsonl")) == 2 * 16


def test_a_fall_beyond_chance_ends_the_run_and_the_best_model_is_kept(capsys):
    settings = ("grpo.learning_rate=0.05", "eval_every=2", "grpo.max_steps=12", "eval_dataset.limit=64")
    settings += ("grpo.save_steps=1",)
    assert run("sums.yaml", *settings) == 1
    said = capsys.readouterr().out
    ended = summary("sums")
    assert ended["steps"] < 12
    for file in ("metrics.jsonl", "samples.jsonl"):  # the step in which it ends is a whole one
        assert max(record["step"] for record in lines("sums", file)) == ended["steps"]
    assert ended["reason"].startswith("ended early: held-out accuracy was 0.")
    assert "note       ended early" in said
    assert (ended["status"], ended["verdict"]) == ("done", "not learned")

    Path("runs/sums").rename("runs/whole")  # and its last measurement interrupted:
    shutil.copytree("runs/whole", "runs/sums")
    for gone in ("summary.json", "final/model.safetensors"):
        Path("runs/sums", gone).unlink()
    RunDir(Path("runs/sums")).cut_back("eval.jsonl", ended["steps"] - 1)
    assert run("sums.yaml", *settings, "--resume") == 1
    again = summary("sums")
    assert (again["steps"], again["reason"]) == (ended["steps"], ended["reason"])
    assert same_weights("sums", "whole")
    assert lines("sums", "eval.jsonl") == lines("whole", "eval.jsonl")


def test_the_best_of_several_measurements_is_kept():
    run("sums.yaml", "eval_every=1", "grpo.learning_rate=1e-3", "grpo.max_steps=3", "eval_dataset.limit=64")
    own = {record["step"]: record["accuracy"] for record in lines("sums", "eval.jsonl")}
    best = max(own, key=lambda step: (own[step], -step))
    assert (summary("sums")["best"] or {"step": 0})["step"] == best
    assert Path("runs/sums/best/model.safetensors").is_file() == (best > 0)


def test_where_all_is_cut_and_masked_that_is_the_reason():
    more = ("grpo.max_completion_length=2", "grpo.mask_truncated_completions=true", "eval_dataset=null")
    Path("rewards").mkdir()
    Path("rewards/long.py").write_text('"""Longer."""\n\n\ndef long(completion):\n    return float(len(completion))\n')
    assert run("sums.yaml", "rewards={long: 1.0}", *more) == 1
    assert "every completion was cut, and grpo.mask_truncated_completions leaves those out" in summary("sums")["reason"]


def test_dropout_that_is_a_number_in_a_layer_is_off_too(model_folder):
    from transformers import AutoConfig, AutoModelForCausalLM

    from grpo_kit.model.model import without_dropout

    config = AutoConfig.from_pretrained(model_folder, attention_dropout=0.5)
    model = AutoModelForCausalLM.from_config(config).train()
    ids = torch.arange(20).unsqueeze(0)
    assert not torch.equal(model(ids).logits, model(ids).logits)
    without_dropout(model)
    assert torch.equal(model(ids).logits, model(ids).logits)
    assert model.config.attention_dropout == 0.5  # what is saved stays as it was
