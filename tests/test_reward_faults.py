"""Rewards that go wrong during a run, through the command line: each costs what it must and says what it was."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from processes import all_gone, marked, new_mark
from safetensors.torch import load_file
from whole_run import RECIPE, lines, run, same_weights, summary

pytestmark = pytest.mark.slow

SO_FAR = """
import fcntl

def so_far():
    '''Completions that were scored before this one, counted in a file, for workers share nothing else.'''
    with open("calls", "ab") as calls:
        fcntl.flock(calls, fcntl.LOCK_EX)
        calls.write(b".")
        calls.flush()
        return calls.tell() - 1
"""

CALLS_BEFORE_STEP_3 = 4 + 2 * 16
"""Four canned completions, then two rollouts of 16."""


@pytest.fixture(autouse=True)
def recipe(own_folder):
    Path("sums.yaml").write_text(RECIPE)
    Path("rewards").mkdir()


def write_reward(body: str, head: str = "", name: str = "mine") -> None:
    text = f'"""A reward."""\n{head}{SO_FAR}\n\ndef {name}(completion, prompt, **columns):\n    {body}\n'
    Path(f"rewards/{name}.py").write_text(text, encoding="utf-8")


def started(*arguments: str) -> int:
    return run("sums.yaml", "rewards={mine: 1.0}", "eval_dataset=null", *arguments)


GOOD = "return float(len(completion) % 3) + len(completion) / 100"
"""Looks at no gold answer, so that the gold scan, which would count too, leaves it alone."""


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("raise KeyError('x')", "mine raised KeyError: 'x' (mine.py:"),
        ("return math.inf", "mine returned inf (float) for the completion '"),
        ("return math.nan", "mine returned nan (float) for the completion '"),
        ("return '1.0'", "mine returned '1.0' (str) for the completion '"),
        ("exit(0)", "mine raised SystemExit: 0 (mine.py:"),
    ],
)
def test_a_broken_contract_ends_the_run_with_its_last_state_saved(capsys, bad, said):
    write_reward(f"if so_far() >= {CALLS_BEFORE_STEP_3}: {bad}\n    {GOOD}", head="import math\n")
    assert started("grpo.save_steps=100") == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"error: step 3: {Path.cwd()}/rewards/mine.py: {said}")
    assert error.endswith("; 2 steps are saved: mend it and go on with --resume")
    saved = load_file("runs/sums/checkpoints/checkpoint-2/model.safetensors")
    assert all(torch.isfinite(tensor).all() for tensor in saved.values())
    assert summary("sums")["status"] == "failed"
    assert "Traceback" not in error


def test_mended_it_goes_on_as_if_nothing_had_been(capsys):
    write_reward(f"so_far()\n    {GOOD}")
    assert started("name=whole") in (0, 1)
    Path("calls").unlink()
    write_reward(f"if so_far() >= {CALLS_BEFORE_STEP_3}: raise ValueError('not yet')\n    {GOOD}")
    assert started("grpo.save_steps=100") == 1
    shown = capsys.readouterr()
    assert "mine.py" in shown.err
    assert "raise ValueError('not yet')" in shown.err  # its own traceback, from its own file on
    assert "workers.py" not in shown.err
    write_reward(GOOD)
    assert started("grpo.save_steps=100", "--resume") in (0, 1)
    assert same_weights("whole", "sums")
    whole, sums = (lines(name, "metrics.jsonl") for name in ("whole", "sums"))
    assert [m["reward"] for m in whole] == [m["reward"] for m in sums]


def test_the_run_directory_holds_the_mended_reward():
    write_reward(f"if so_far() >= {CALLS_BEFORE_STEP_3}: raise ValueError('not yet')\n    {GOOD}")
    assert started("grpo.save_steps=100") == 1
    write_reward(f"so_far()\n    {GOOD}")
    assert started("grpo.save_steps=100", "grpo.max_steps=3", "--resume") in (0, 1)
    copy, mended = Path("runs/sums/rewards/mine.py"), Path("rewards/mine.py")
    assert copy.read_text() == mended.read_text()
    assert [e["mended_rewards"] for e in lines("sums", "events.jsonl") if e["event"] == "resumed"] == [["mine"]]
    (Path("runs/sums") / "summary.json").unlink()  # as if it had been interrupted once more
    assert started("grpo.save_steps=100", "grpo.max_steps=3", "--resume") in (0, 1)


@pytest.mark.parametrize(
    ("settings", "then"),
    [
        ((), "go on with --resume"),
        (("grpo.save_strategy='no'",), "measure with `grpo-kit eval runs/sums`"),
    ],
)
def test_a_reward_that_fails_in_the_last_measurement_does_not_cost_the_model(capsys, settings, then):
    steps = "sum(1 for _ in open('runs/sums/metrics.jsonl')) if os.path.exists('runs/sums/metrics.jsonl') else 0"
    write_reward(f"if ({steps}) == 4: raise KeyError('x')\n    {GOOD}", head="import os\n")
    assert run("sums.yaml", "rewards={mine: 1.0}", *settings) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith(f"error: held-out after step 4: {Path.cwd()}/rewards/mine.py: mine raised KeyError: 'x'")
    assert error.endswith(f"; the model is in runs/sums/final: mend it and {then}")
    write_reward(GOOD)
    assert run("sums.yaml", "rewards={mine: 1.0}", "name=whole", "eval_dataset=null", *settings) in (0, 1)
    assert same_weights("whole", "sums")
    if not settings:
        assert run("sums.yaml", "rewards={mine: 1.0}", "--resume") in (0, 1)
        assert [one["step"] for one in lines("sums", "eval.jsonl")] == [0, 4]


def test_scores_lost_in_a_measurement_that_is_made_again_are_told_once():
    write_reward(f"if completion.startswith('It is'): raise KeyError('x')\n    {GOOD}")
    settings = ("rewards={mine: 1.0}", "on_reward_error=skip")

    def lost() -> list[tuple[int, int | None, str]]:
        events = [event for event in lines("sums", "events.jsonl") if event["event"] == "score lost"]
        return [(event["step"], event.get("measured_step"), event["completion"]) for event in events]

    assert run("sums.yaml", *settings) in (0, 1)
    before = lost()
    assert {step for step, measured, _ in before if measured is not None} >= {4}
    for _ in range(2):  # interrupted in its last measurement, twice
        Path("runs/sums/summary.json").unlink()
        log = Path("runs/sums/eval.jsonl")
        log.write_text(log.read_text().splitlines(keepends=True)[0])
        assert run("sums.yaml", *settings, "--resume") in (0, 1)
        assert lost() == before


def test_without_a_step_there_is_nothing_to_save(capsys):
    write_reward(f"if so_far() >= 4: raise KeyError('x')\n    {GOOD}")
    assert started() == 1
    assert "--resume" not in capsys.readouterr().err
    assert not list(Path("runs/sums/checkpoints").glob("*"))


def test_skip_loses_the_row_and_goes_on(capsys):
    write_reward(f"if so_far() in (40, 41): raise KeyError('x')\n    {GOOD}")
    assert started("on_reward_error=skip") in (0, 1)
    assert summary("sums")["steps"] == 4
    events = [event for event in lines("sums", "events.jsonl") if event["event"] == "score lost"]
    assert [(e["step"], e["reward"], e["fault"]) for e in events] == [(3, "mine", "error")] * 2
    assert events[0]["message"] == "mine raised KeyError: 'x'"
    assert events[0]["completion"] in {sample["completion"] for sample in lines("sums", "samples.jsonl")}
    shares = [m["kit/rewards/mine/unscored_share"] for m in lines("sums", "metrics.jsonl")]
    assert shares == [0, 0, 2 / 16, 0]
    assert sum(sample["rewards"]["mine"] is None for sample in lines("sums", "samples.jsonl")) == 2
    shown = capsys.readouterr().out
    assert shown.count("reward mine judges nothing where this happens") == 1  # said once, written each time


@pytest.mark.parametrize(
    ("bad", "fault", "policy"),
    [
        ("while True: pass", "timeout", "raise"),
        ("9 ** 9 ** 9", "timeout", "skip"),
        ("import os; os._exit(1)", "died", "raise"),
        ("bytearray(100 * 2**30)", "memory", "raise"),
    ],
)
def test_what_hangs_or_dies_costs_its_row_and_leaves_no_process(bad, fault, policy):
    write_reward(f"if so_far() == 40:\n        {bad}\n    {GOOD}", head="TIME_LIMIT_S = 0.7\n")
    mark = new_mark()
    command = [sys.executable, "-m", "grpo_kit", "run", "sums.yaml", "rewards={mine: 1.0}", "eval_dataset=null"]
    done = subprocess.run([*command, f"on_reward_error={policy}"], env={**os.environ, **mark}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
    assert all_gone(mark, within_s=1.0), [process.cmdline() for process in marked(mark)]
    metrics = lines("sums", "metrics.jsonl")
    assert [m["kit/rewards/mine/unscored_share"] for m in metrics] == [0, 0, 1 / 16, 0]
    assert [m["kit/rewards/mine/timeout_share"] for m in metrics] == [0, 0, (fault == "timeout") / 16, 0]
    [event] = [event for event in lines("sums", "events.jsonl") if event["event"] == "score lost"]
    assert (event["step"], event["reward"], event["fault"]) == (3, "mine", fault)
    assert event["completion"] in {sample["completion"] for sample in lines("sums", "samples.jsonl")}


def test_three_batches_without_a_score_end_the_run(capsys):
    write_reward(f"return None if {CALLS_BEFORE_STEP_3 - 16} <= so_far() else len(completion)")
    assert started("grpo.max_steps=6") == 1
    error = capsys.readouterr().err
    assert "step 4: no reward judged any completion of 3 batches: all rewards returned None for all of them" in error
    assert "; 3 steps are saved" in error


def test_two_batches_without_a_score_do_not(capsys):
    write_reward(f"return None if {CALLS_BEFORE_STEP_3 - 16} <= so_far() < 52 else len(completion)")
    assert started("grpo.max_steps=5") in (0, 1)
    assert summary("sums")["steps"] == 5
    assert [m["kit/unscored_share"] for m in lines("sums", "metrics.jsonl")] == [0, 1, 1, 0, 0]


CONSTANT = [
    ("return 1.0", "mine gives always full marks"),
    ("return 0.0", "mine is always zero"),
    (
        "return float(int(prompt.split('+')[1].rstrip('?')) % 7)",
        "mine is equal inside every group, though it differs between groups",
    ),
    ("return 0.5 + 1e-7 * (so_far() % 4)", "mine is numerically flat: 0.5, give or take 1e-07, which is rounding"),
]


@pytest.mark.parametrize(("body", "said"), CONSTANT)
def test_a_reward_without_a_difference_is_named_while_the_run_goes_on_and_at_its_end(capsys, body, said):
    write_reward(body)
    assert started() == 1
    shown = capsys.readouterr().out
    finding = "finding      no-gradient, since step 1   (docs/doctor.md#no-gradient)\n  seen       every group is flat"
    assert shown.count(finding) == 1
    assert said in shown
    assert shown.index(finding) < shown.index("step 4/4")
    failed = summary("sums")
    assert failed["status"] == "failed"
    assert failed["reason"].startswith("nothing could be learned in any step: every group is flat")
    assert said in failed["reason"]
    assert [found["name"] for found in failed["diagnoses"]] == ["no-gradient"]


def test_what_is_logged_of_each_reward():
    write_reward(GOOD)
    write_reward("return float(len(completion) > 3)", name="gated")
    gate = "rewards={accuracy: 1.0, mine: 0.1, gated: {weight: 0.5, only_if: accuracy}}"
    assert run("sums.yaml", gate, "eval_dataset=null") in (0, 1)
    for metrics in lines("sums", "metrics.jsonl"):
        for label in ("accuracy", "mine", "gated"):
            key = f"kit/rewards/{label}/"
            assert metrics[f"rewards/{label}/mean"] is not None
            assert metrics[f"rewards/{label}/std"] is not None
            assert metrics[f"{key}unscored_share"] == metrics[f"{key}timeout_share"] == 0
            assert 0 < metrics[f"kit/seconds/rewards/{label}"] < 60
        shares = [metrics[f"kit/rewards/{label}/variance_share"] for label in ("accuracy", "mine", "gated")]
        assert math.isclose(sum(shares), 1.0, abs_tol=1e-6)
    for sample in lines("sums", "samples.jsonl"):
        assert sample["rewards"]["gated"] == 0 or sample["rewards"]["accuracy"] == 1  # only if


TOKENS_OF_OURS = """
import json
from pathlib import Path
IN_PROCESS = True

def mine(completion, trainer_state, log_metric):
    with Path("seen").open("a") as seen:
        seen.write(json.dumps([type(completion).__name__, completion, trainer_state.global_step]) + "\\n")
    log_metric("length", len(completion))
    return len(completion)
"""


@pytest.mark.parametrize("opened", [False, True])
def test_tags_that_are_special_tokens_reach_the_reward_and_end_tokens_do_not(model_folder, opened):
    """<think> is one token here; where the template opens it, every completion begins with it."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<think>", "</think>"]})
    if opened:
        marker = "{{ '<|im_start|>assistant\\n' }}"
        assert marker in tokenizer.chat_template
        tokenizer.chat_template = tokenizer.chat_template.replace(marker, marker + "{{ '<think>\\n' }}")
    model = AutoModelForCausalLM.from_pretrained(model_folder)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    with torch.no_grad():  # make both tags likely
        model.get_input_embeddings().weight[-2:] = model.get_input_embeddings().weight[:200].mean(0) * 3
    model.save_pretrained("model")
    tokenizer.save_pretrained("model")
    Path("rewards/mine.py").write_text(TOKENS_OF_OURS)
    overrides = ("model=model", "rewards={mine: 1.0}", "eval_dataset=null", "grpo.max_completion_length=64")
    assert run("sums.yaml", *overrides) in (0, 1)
    seen = [json.loads(line) for line in Path("seen").read_text().splitlines()][4:]
    assert {kind for kind, _, _ in seen} == {"str"}
    assert {step for _, _, step in seen} == {0, 1, 2, 3}
    texts = [text for _, text, _ in seen]
    assert len(texts) == 4 * 16
    assert any("<think>" in text.removeprefix("<think>\n") for text in texts)
    assert not any("<|im_end|>" in text or "<|endoftext|>" in text.rstrip() for text in texts if "<|" not in text[:-12])
    assert all(text.startswith("<think>\n") for text in texts) is opened
    assert lines("sums", "metrics.jsonl")[0]["length"] > 0


def test_a_model_that_never_stops_is_said_to_be_cut(capsys, model_folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(model_folder)
    with torch.no_grad():  # its end tokens stand for nothing, so they are drawn next to never
        model.get_input_embeddings().weight[-3:] = 0
    model.save_pretrained("model")
    AutoTokenizer.from_pretrained(model_folder).save_pretrained("model")
    overrides = ("rewards={accuracy: {weight: 1.0, require: boxed}}", "grpo.max_completion_length=8")
    assert run("sums.yaml", "model=model", "eval_dataset=null", *overrides) == 1
    shown = capsys.readouterr().out
    assert "finding      truncation, since step 1" in shown
    assert "seen       100% of completions hit max_completion_length 8" in shown
    assert shown.index("finding      truncation") < shown.index("step 4/4")
    assert {found["name"] for found in summary("sums")["diagnoses"]} == {"truncation", "no-gradient"}
