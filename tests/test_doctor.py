"""`grpo-kit doctor` on runs of ours, on a plain trainer's state, and on what is neither."""

import json
import shutil
from pathlib import Path

import pytest
from histories import farming, healthy, overfitted, planted
from whole_run import RECIPE, lines, run, summary

from grpo_kit.cli import main
from grpo_kit.report.page import read_page
from grpo_kit.run.run_dir import RunDir


def doctor(capsys, *arguments: str) -> tuple[int, str, str]:
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["doctor", *arguments])
    out, err = capsys.readouterr()
    return int(ended.value.code or 0), out, err


def run_folder(name: str, history, evaluations=()) -> Path:
    folder = Path("runs") / name
    folder.mkdir(parents=True)
    (folder / "recipe.yaml").write_text(RECIPE)
    settings = {
        "max_completion_length": 200, "loss_type": "dapo", "beta": 0.0, "num_iterations": 1, "steps_per_generation": 2,
        "gradient_accumulation_steps": 2,
    }  # fmt: skip
    (folder / "grpo_config.json").write_text(json.dumps(settings))
    RunDir(folder).append("metrics.jsonl", *history)
    RunDir(folder).append("eval.jsonl", *evaluations)
    return folder


def sick():
    return planted(0, 51, lambda step, since: {"clip_ratio/region_mean": 0.5}).steps


def test_a_healthy_run_is_said_to_be(capsys):
    run_folder("sums", healthy(0).steps)
    code, out, _ = doctor(capsys, "sums")
    assert code == 0
    assert out.startswith("steps        120, the last is 120")
    assert "nothing wrong is seen" in out


def test_a_finding_comes_with_its_evidence_and_what_to_change(capsys):
    folder = run_folder("sums", sick())
    for step in (40, 50, 60):
        (folder / "checkpoints" / f"checkpoint-{step}").mkdir(parents=True)
        (folder / "checkpoints" / f"checkpoint-{step}" / "trainer_state.json").write_text("{}")
    code, out, _ = doctor(capsys, "runs/sums")
    assert code == 0
    assert "finding      clipping, since step 51   (docs/doctor.md#clipping)" in out
    assert "seen       50% of tokens are clipped" in out
    assert "override   grpo.learning_rate=2e-06" in out
    assert "before it  runs/sums/checkpoints/checkpoint-50\n" in out
    assert "note         the clip share is 0 by construction: one update per rollout" in out


def test_a_finding_can_be_made_a_failure(capsys):
    run_folder("sums", sick())
    assert doctor(capsys, "sums", "--fail-on", "clipping")[0] == 1
    assert doctor(capsys, "sums", "--fail-on", "kl, clipping")[0] == 1
    assert doctor(capsys, "sums", "--fail-on", "kl", "--fail-on", "truncation")[0] == 0
    code, _, err = doctor(capsys, "sums", "--fail-on", "kl,cliping")
    assert code == 2
    assert "--fail-on 'cliping': no such finding; write clipping" in err
    assert "write one of not-finite, no-gradient" in doctor(capsys, "sums", "--fail-on", "xyz")[2]


def test_what_earns_a_farmed_reward_is_shown(capsys):
    folder = run_folder("sums", farming(1, 60, 0.5).steps)
    record = {"step": 100, "completion": "a" * 400, "rewards": {"accuracy": 0.0, "format": 1.0}}
    others = [
        {**record, "completion": "before it", "step": 3},
        {**record, "completion": "right", "rewards": {"accuracy": 1.0, "format": 1.0}},
        {**record, "completion": "\x1b[2J", "rewards": {"accuracy": 0.0, "format": 0.5}},
        {**record, "completion": 7},
        {**record, "rewards": "none"},
    ]
    RunDir(folder).append("samples.jsonl", record, *others)
    out = doctor(capsys, "sums")[1]
    assert "finding      farmed-reward" in out
    assert f"  sample     {'a' * 297}...\n  sample     \\x1b[2J\n" in out  # 300 characters, the better one first
    assert "before it" not in out
    assert "sample     right" not in out


def test_held_out_measurements_of_the_run_itself_are_looked_at(capsys):
    made = overfitted(1, 60, 0.3)
    later = [{**one, "target": "runs/sums", "accuracy": 1.0} for one in made.evaluations[-3:]]
    run_folder("sums", made.steps, [*made.evaluations, *later])
    assert "finding      overfitting" in doctor(capsys, "sums")[1]


def test_how_a_failed_run_ended_is_said(capsys):
    folder = run_folder("sums", healthy(0).steps)
    reason = "NotFiniteError: step 121: not finite: weight w (nan in 1 of 2 values)"
    (folder / "summary.json").write_text(json.dumps({"status": "failed", "reason": reason}))
    code, out, _ = doctor(capsys, "sums", "--fail-on", "not-finite")
    assert code == 1
    assert f"ended        {reason}" in out
    assert "finding      not-finite, since step 121" in out


def plain(history) -> str:
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
        assert "which reward means success is not known" in out  # weights are not logged, and are not all 1 here
        assert (
            "not looked for, because their metrics are not there: truncation, entropy-explosion, entropy-colla" in out
        )


def state_of(step: int, log: list[dict]) -> str:
    return json.dumps({"global_step": step, "log_history": [{"step": at, **e} for at, e in enumerate(log, 1)]})


GRPO = {"loss": 0.0, "reward": 0.5, "reward_std": 0.1, "grad_norm": 1.0, "rewards/r/mean": 0.5}


def test_of_a_folder_the_state_of_the_latest_step_is_read(capsys):
    for folder, steps in (("out/checkpoint-9", 9), ("out/checkpoint-40", 40), ("out", 50)):
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, "trainer_state.json").write_text(state_of(steps, [GRPO] * steps))
    Path("out/checkpoint-9/trainer_state.json").touch()  # copied last
    assert "steps        50, the last is 50" in doctor(capsys, "out")[1]
    Path("out/trainer_state.json").write_text(state_of(5, [GRPO] * 5))  # of an older run
    assert "steps        40, the last is 40" in doctor(capsys, "out")[1]
    Path("out/checkpoint-40/trainer_state.json").write_text("{")
    assert "steps        9, the last is 9" in doctor(capsys, "out")[1]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("rewards/chosen", "rewards/rejected", "rewards/accuracies"), "rewards/chosen and rewards/rejected are DPO's"),
        (("rewards/chosen", "rewards/rejected", "kl"), "rewards/chosen and rewards/rejected are KTO's"),
        (("mean_token_accuracy",), "mean_token_accuracy is SFT's"),
    ],
)
def test_another_trainers_state_is_refused_by_its_name(capsys, keys, message):
    Path("trainer_state.json").write_text(state_of(30, [{"loss": 1.0, **dict.fromkeys(keys, 0.5)}] * 30))
    code, _, err = doctor(capsys, "trainer_state.json")
    assert code == 2
    assert f"logs no rewards, so it is not of a GRPO run: {message}" in err
    assert err.count("\n") == 1


def test_a_state_with_the_total_reward_alone_is_read(capsys):
    Path("trainer_state.json").write_text(state_of(9, [{"loss": 0.0, "reward": 0.5, "reward_std": 0.1}] * 9))
    assert doctor(capsys, "trainer_state.json")[0] == 0


def test_the_names_of_older_trl_are_read_and_a_dead_run_is_seen(capsys):
    dead = {"loss": 0.0, "reward": 0.0, "reward_std": 0.0, "grad_norm": 0.0, "rewards/strict": 0.0}
    Path("trainer_state.json").write_text(state_of(59, [dead] * 59))
    code, out, _ = doctor(capsys, "trainer_state.json", "--fail-on", "no-gradient")
    assert code == 1
    assert "finding      no-gradient, since step 1 " in out
    assert "strict is always zero" in out
    assert "note         the log has no frac_reward_zero_std; reward_std and grad_norm are 0 in every step" in out
    Path("trainer_state.json").write_text(state_of(59, [*[dead] * 58, {**dead, "grad_norm": 0.1}]))  # not throughout
    code, out, _ = doctor(capsys, "trainer_state.json", "--fail-on", "no-gradient")
    assert (code, "is taken to be flat" in out) == (0, False)


def test_a_recipe_names_its_newest_run_and_an_empty_part_no_finding(capsys):
    run_folder("sums", sick())
    assert doctor(capsys, "recipes/sums.yaml", "--fail-on", "clipping,")[0] == 1
    Path("sums.yaml").write_text(RECIPE)
    assert "finding      clipping" in doctor(capsys, "sums.yaml", "--fail-on", "")[1]


def test_a_number_beyond_every_float_is_none(capsys):
    Path("out").mkdir()
    Path("out/trainer_state.json").write_text(
        plain(sick()).replace('"reward": ', '"reward": 1' + "0" * 400 + ', "r": ')
    )
    code, out, err = doctor(capsys, "out")
    assert (code, err) == (0, "")
    assert "steps " in out


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1" + "0" * 400])
def test_settings_that_are_no_numbers_count_as_unknown(capsys, value):
    folder = run_folder("sums", sick())
    (folder / "grpo_config.json").write_text(f'{{"max_completion_length": {value}, "num_iterations": {value}}}')
    (folder / "summary.json").write_text("[" * 100_000 + "]" * 100_000)
    code, out, err = doctor(capsys, "sums")
    assert (code, err) == (0, "")
    assert "finding      clipping" in out


@pytest.mark.parametrize(("last", "lost"), [(0.5, False), (float("nan"), True)])
def test_a_norm_that_is_finite_again_was_an_overflow_of_fp16(capsys, last, lost):
    norms = [float("inf"), float("nan"), 0.5, 0.5, last]
    log = [{"step": at, "loss": 0.0, "grad_norm": norm, "rewards/r/mean": 0.5} for at, norm in enumerate(norms, 1)]
    Path("trainer_state.json").write_text(json.dumps({"log_history": log}))
    code, out, _ = doctor(capsys, "trainer_state.json")
    assert code == 0
    assert ("finding      not-finite, since step 1" in out) is lost


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "cannot be read as a trainer's state"),
        ('{"log_history": [{"loss"', "cannot be read as a trainer's state"),
        ("[]", "cannot be read as a trainer's state"),
        ('{"log_history": 3}', "cannot be read as a trainer's state"),
        ("[" * 100_000, "cannot be read as a trainer's state"),
        ('{"log_history": [{"loss": 1}, "text", 3, null, {"step": "1"}]}', "has no logged steps"),
        ('{"log_history": []}', "has no logged steps"),
        ('{"log_history": [{"step": 1, "loss": "low", "reward": []}]}', "logs no rewards, so it is not of a GRPO run"),
        (
            '{"log_history": [{"step": 1, "loss": 2.0, "grad_norm": NaN}, {"step": 1, "eval_loss": 2}]}',
            "logs no rewards, so it is not of a GRPO run",
        ),
    ],
)
def test_a_damaged_or_foreign_state_is_one_line(capsys, content, message):
    Path("trainer_state.json").write_text(content)
    code, _, err = doctor(capsys, "trainer_state.json")
    assert code == 2
    assert message in err
    assert err.count("\n") == 1


def test_what_is_no_run_is_one_line(capsys):
    Path("empty").mkdir()
    Path("notes.txt").write_text("hello")
    Path("folders/recipe.yaml").mkdir(parents=True)
    Path("folders/trainer_state.json").mkdir()
    Path("loop").symlink_to("loop")
    Path("looped").mkdir()
    Path("looped/recipe.yaml").symlink_to("recipe.yaml")
    Path("looped/checkpoint-1").mkdir()
    Path("looped/checkpoint-1/trainer_state.json").symlink_to("trainer_state.json")
    Path("binary").mkdir()
    Path("binary/trainer_state.json").write_bytes(bytes(range(256)))
    run_folder("new", [])
    for named, message in (
        ("empty", "empty: no such run"),
        ("nothing", "nothing: no such run"),
        ("notes.txt", "notes.txt: name a run, or a trainer_state.json"),
        ("folders", "folders: no such run"),
        ("loop", "loop: no such run"),
        ("looped", "looped: no such run"),
        ("x" * 5000, "no such run"),
        ("", "no such run"),
        ("binary", "cannot be read as a trainer's state"),
        ("new", "runs/new: has no steps yet"),
    ):
        code, _, err = doctor(capsys, named)
        assert code == 2, named
        assert message in err
        assert err.count("\n") == 1


def test_half_a_last_line_and_foreign_values_do_no_harm(capsys):
    folder = run_folder("sums", [{**step, "kit/entropy": None} for step in healthy(0).steps])
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\x00garbage\n[1, 2]\n"text"\n' + b"[" * 100_000 + b"\n")
        file.write(json.dumps({"step": 121, "reward": "high", "loss": [1], "kit/accuracy": {"a": 1}}).encode() + b"\n")
        file.write(b'{"step": 122, "reward": NaN, "grad_norm": 1e400, "kl": ' + b"9" * 400 + b"}\n")
        file.write(b'{"step": "123", "reward": 1}\n{"step": true}\n{"step": 124, "rew')
    for file in ("eval.jsonl", "samples.jsonl"):
        (folder / file).write_bytes(b'{"step": [], "accuracy": "x", "ci95": 3}\n{"step": 1}\nnull\n\x00\xff')
    code, out, err = doctor(capsys, "sums")
    assert (code, err) == (0, "")
    assert "steps        122, the last is 122" in out
    (folder / "grpo_config.json").write_text('["a", 3]')
    (folder / "summary.json").write_text('{"status": "failed", "reason": {"a": 1}}')
    (folder / "recipe.yaml").write_text(RECIPE.replace("accuracy: 1.0", "gone: 1.0"))
    assert doctor(capsys, "sums")[0] == 0  # its reward's file is not there any more
    (folder / "grpo_config.json").write_bytes(b"\x00\xff")
    (folder / "summary.json").unlink()
    (folder / "summary.json").mkdir()
    assert doctor(capsys, "sums")[0] == 0


@pytest.mark.slow
def test_a_constant_reward_is_found_in_a_real_run(capsys):
    Path("sums.yaml").write_text(RECIPE)
    nice()
    assert run("sums.yaml", "rewards={nice: 1.0}", "eval_dataset=null") == 1
    code, out, _ = doctor(capsys, "sums", "--fail-on", "no-gradient")
    assert code == 1
    assert "nice gives always full marks" in out


def nice() -> None:
    Path("rewards").mkdir()
    Path("rewards/nice.py").write_text('"""Always."""\n\n\ndef nice(completion):\n    return 1.0\n')


@pytest.mark.slow
def test_a_run_ends_on_the_finding_that_it_is_told_to_end_on(capsys):
    Path("sums.yaml").write_text(RECIPE + "stop_on: [no-gradient]\n")
    nice()
    settings = ("rewards={nice: 1.0}", "eval_dataset=null", "grpo.max_steps=6", "grpo.save_steps=1")
    assert run("sums.yaml", *settings) == 1
    told = "step 3: stop_on: no-gradient since step 1: every group is flat; "
    assert told in capsys.readouterr().err
    ended = summary("sums")
    assert (ended["status"], ended["steps"]) == ("failed", 3)
    assert told in ended["reason"]
    assert "there is no checkpoint from before it; --resume goes on from the newest one" in ended["reason"]
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3]

    assert run("sums.yaml", *settings, "--resume") == 1  # the same again, after the next step
    out, err = capsys.readouterr()
    assert "going on with runs/sums after step " in out
    assert "stop_on: no-gradient" in err
    assert run("sums.yaml", *settings, "stop_on=[]", "--resume") == 1  # for it has learned nothing
    assert [m["step"] for m in lines("sums", "metrics.jsonl")] == [1, 2, 3, 4, 5, 6]
    [found] = summary("sums")["diagnoses"]
    assert (found["name"], found["since"], found["reference"]) == ("no-gradient", 1, "docs/doctor.md#no-gradient")


@pytest.mark.slow
def test_a_finding_that_comes_and_goes_is_in_the_events():
    Path("sums.yaml").write_text(RECIPE)
    Path("rewards").mkdir()
    Path("rewards/late.py").write_text(
        '"""Does not judge for three steps of 16 completions."""\n\nIN_PROCESS = True\n\n\n'
        "def late(completion, trainer_state):\n"
        "    return None if trainer_state.global_step < 3 else float(len(completion))\n"
    )
    rewards = "rewards={accuracy: 1.0, late: 0.1}"
    run("sums.yaml", rewards, "eval_dataset=null", "grpo.max_steps=9")
    events = [(e["event"], e["step"], e["name"], e["reward"]) for e in lines("sums", "events.jsonl") if "name" in e]
    # three steps unjudged; the mean of the last three is above 10 % until step 5; then gone for three steps
    assert events == [("finding", 3, "unscored", "late"), ("finding gone", 8, "unscored", "late")]
    first = next(e for e in lines("sums", "events.jsonl") if e["event"] == "finding")
    assert first["evidence"] == "late did not judge 100% of completions, 0% for its time limit"
    assert len(first["completions"]) == 3


@pytest.mark.parametrize("names", ["[no_gradient]", "[no-gradent]", "no-gradient"])
def test_a_name_that_no_finding_has_is_refused(capsys, names):
    Path("sums.yaml").write_text(RECIPE + f"stop_on: {names}\n")
    assert run("sums.yaml") == 2
    error = capsys.readouterr().err
    assert "stop_on" in error
    assert ("write no-gradient" in error) is names.startswith("[")
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_run_that_is_gone_on_with_has_neither_its_old_ending_nor_findings_that_never_end(capsys):
    Path("sums.yaml").write_text(RECIPE)
    settings = ("grpo.max_steps=8", "grpo.save_steps=2", "grpo.save_total_limit=9", "eval_dataset=null")
    run("sums.yaml", *settings, "grpo.lr_scheduler_type=constant_with_warmup")
    folder = RunDir(Path("runs/sums"))
    for later in (4, 6, 8):
        shutil.rmtree(folder.checkpoints / f"checkpoint-{later}")
    (folder.path / "events.jsonl").unlink(missing_ok=True)
    folder.event("finding", 2, name="kl", reward=None, since=1)  # before the checkpoint: goes on, and then ends
    folder.event("finding", 3, name="clipping", reward=None, since=1)  # after it: is found again, or not
    reason = "NotFiniteError: step 4: loss is nan"
    folder.write("summary.json", {"status": "failed", "reason": reason, "steps": 3, "wall_s": 1000.0})
    folder.event("failed", 3, reason=reason)
    seen = {}

    def look(kind: str, step: int, **more) -> None:
        """While it goes on."""
        if kind == "finding gone" and more["name"] == "kl":
            seen["code"], seen["out"], _ = doctor(capsys, "sums", "--fail-on", "not-finite")
            seen["report"] = read_page(folder).results.sentence
        event(kind, step, **more)

    event = folder.event  # bound before it is replaced
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunDir, "event", lambda self, kind, step, **more: look(kind, step, **more))
        run("sums.yaml", *settings, "grpo.lr_scheduler_type=constant_with_warmup", "--resume")
    assert seen["code"] == 0
    assert "ended" not in seen["out"]
    assert seen["report"].startswith("Not ended, or ended without a word: 5 steps so far")
    events = [(e["event"], e["step"], e.get("name")) for e in lines("sums", "events.jsonl")]
    # last seen at the checkpoint's step 2, gone when it has not been seen for three steps
    assert events[:4] == [("finding", 2, "kl"), ("failed", 3, None), ("resumed", 2, None), ("finding gone", 5, "kl")]
    resumed = lines("sums", "events.jsonl")[2]
    assert (resumed["ended_status"], resumed["ended_reason"], resumed["wall_s"]) == ("failed", reason, 1000.0)
    assert summary("sums")["wall_s"] > 1000
    lasting = {lane.name for lane in read_page(folder).timeline.lanes if lane.finding and lane.spans[-1].until is None}
    assert lasting == {finding["name"] for finding in summary("sums")["diagnoses"]}


def test_a_reward_that_counts_for_right_answers_only_is_none_that_dominates(capsys):
    share = {"kit/rewards/format/variance_share": 0.9, "kit/accuracy": 0.3}
    history = [{**step, **share} for step in healthy(0).steps]
    run_folder("sums", history)
    assert "finding      dominating-reward" in doctor(capsys, "sums")[1]
    recipe = Path("runs/sums/recipe.yaml")
    recipe.write_text(RECIPE.replace("style: boxed", "style: boxed, only_if: accuracy"))
    assert "finding      dominating-reward" not in doctor(capsys, "sums")[1]
