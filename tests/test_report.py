"""What the report says of a run, whatever state its files are in, and how large it becomes."""

import base64
import gzip
import json
import os
import random
import string
import time
from pathlib import Path

import pytest
import yaml
from report_runs import HOSTILE, PROMPTS, evaluation, sample, whole_run, write_lines

from grpo_kit.cli import main
from grpo_kit.console import Console
from grpo_kit.recipe.secrets import command_without_secrets, hidden_in
from grpo_kit.report import completions
from grpo_kit.report.completions import MOST_TEXT, prompts_of
from grpo_kit.report.page import read_page
from grpo_kit.report.write import rendered, report_written, write_report
from grpo_kit.run.run_dir import RunDir


def page_of(run: RunDir):
    """The page, which can also be rendered."""
    page = read_page(run)
    assert rendered(page).endswith("</html>\n")
    return page


def unpacked(page) -> list[dict]:
    return json.loads(gzip.decompress(base64.b64decode(page.completions.packed)))


def test_a_whole_run(tmp_path):
    before = [0.25, 0.25, 1.0, 0.5] * (PROMPTS // 4)
    after = [0.25, 0.75, 0.25, 1.0] * (PROMPTS // 4)
    page = page_of(whole_run(tmp_path / "sums", before=before, after=after))
    # means: (0.25 + 0.25 + 1 + 0.5) / 4 = 0.5, (0.25 + 0.75 + 0.25 + 1) / 4 = 0.5625
    assert page.results.sentence.startswith(
        "The model learned: held-out accuracy went from 0.500 to 0.562, a gain of +0.062 (95% interval "
    )
    assert [(f.label, f.before, f.after) for f in page.results.figures[:3]] == [
        ("held-out accuracy", "0.500", "0.562"), ("gain", None, "+0.062"), ("training reward", "0.500", "1.000"),
    ]  # fmt: skip
    # of each four prompts one is below a half both times, one rises above it, one falls below it, one stays above
    quarter = PROMPTS // 4
    assert {kind.name: len(kind.rows) for kind in page.ledger.kinds} == dict.fromkeys(
        ("forgotten", "never solved", "learned", "always solved"), quarter
    )
    assert [(b.label, b.before, b.after) for b in page.ledger.bins] == [
        ("0", 0, 0), ("0.25", 2 * quarter, 2 * quarter), ("0.5", quarter, 0), ("0.75", 0, quarter),
        ("1", quarter, quarter),
    ]  # fmt: skip
    assert [c.title for c in page.curves.charts] == [
        "Reward", "Accuracy", "Flat groups", "Truncation", "Length", "Entropy", "Gradient norm", "Seconds per step",
    ]  # fmt: skip
    assert page.curves.absent == ["KL"]
    assert [one.label for one in page.curves.charts[0].series] == ["total", "accuracy", "format"]
    assert [(lane.name, lane.when) for lane in page.timeline.lanes] == [
        ("truncation", "step 8 to 20, since step 28"), ("warning", "step 0"), ("score lost accuracy", "step 5"),
    ]  # fmt: skip
    assert page.spans == [{"name": "truncation", "from": 8, "to": 20}, {"name": "truncation", "from": 28, "to": 40}]


def test_a_chart_in_words_and_numbers(tmp_path):
    run = RunDir(tmp_path)
    run.append("metrics.jsonl", *({"step": at, "grad_norm": abs(at - 30) / 10} for at in range(1, 101)))
    curves = page_of(run).curves
    assert curves.described(curves.charts[0]) == (
        "Gradient norm: norm 2.9 at step 1, 7 at step 100, lowest 0 (step 30), highest 7 (step 100)."
    )
    table = curves.table(curves.charts[0])
    assert len(table) == 10
    assert (table[0], table[-1]) == ((1, [2.9]), (100, [7.0]))


def test_a_flat_share_is_split_by_reason(tmp_path):
    run = RunDir(tmp_path)
    run.append(
        "metrics.jsonl", {"step": 1, "kit/flat_group_share": 0.75, "kit/all_right": 0.25, "kit/all_wrong": 0.125}
    )
    [chart] = page_of(run).curves.charts
    assert {one.label: one.values for one in chart.series} == {  # 0.75 - 0.25 - 0.125
        "all right": [0.25], "all wrong": [0.125], "alike otherwise": [0.375],
    }  # fmt: skip


def test_a_long_run_is_drawn_by_means_of_neighbouring_steps(tmp_path):
    run = RunDir(tmp_path)
    run.append("metrics.jsonl", *({"step": at, "reward": at % 2} for at in range(1, 2401)))
    curves = page_of(run).curves
    assert (curves.merged, len(curves.steps)) == (2, 1200)
    assert set(curves.charts[0].series[0].values) == {0.5}


def ended(folder: Path, **summary) -> str:
    run = RunDir(folder)
    run.append("metrics.jsonl", *({"step": at, "reward": at / 10} for at in range(1, 11)))
    run.write("summary.json", {"steps": 10, "wall_s": 3.0, **summary})
    return page_of(run).results.sentence


NO_GAIN = "; no held-out gain was measured; mean reward went from 0.100 to 1.000."
UNTOLD = "Not ended, or ended without a word: "


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (
            {"status": "failed", "reason": "NotFiniteError: step 9: the weights\nare lost."},
            "Failed after 10 steps: step 9: the weights are lost.",
        ),
        ({"status": "failed"}, "Failed after 10 steps: no reason was written."),
        ({"status": "stopped", "reason": "SIGINT"}, f"Stopped by SIGINT after 10 steps{NO_GAIN}"),
        ({"status": "done", "verdict": "not measured"}, f"Not measured after 10 steps{NO_GAIN}"),
        ({}, f"{UNTOLD}10 steps so far{NO_GAIN}"),
    ],
)
def test_other_ends_in_one_sentence(tmp_path, summary, said):
    assert ended(tmp_path, **summary) == said


@pytest.mark.parametrize(
    ("verdict", "change", "said"),
    [
        (
            "unclear", 0.01,
            "Unclear whether the model learned: held-out accuracy went from 0.500 to 0.510, a gain of +0.010 (95% "
            "interval -0.010 to +0.030); about 900 held-out rows would tell.",
        ),
        (
            "not learned", -0.1,
            "The model got worse: held-out accuracy went from 0.500 to 0.400, a change of -0.100 (95% interval -0.120 "
            "to -0.080).",
        ),
        (
            "not learned", 0.0,
            "The model did not learn: held-out accuracy went from 0.500 to 0.500, a gain of +0.000 (95% interval "
            "-0.020 to +0.020).",
        ),
    ],
)  # fmt: skip
def test_verdicts_in_one_sentence(tmp_path, verdict, change, said):
    gain = {
        "value": change,
        "ci95": [change - 0.02, change + 0.02],
        "rows_needed": 900 if verdict == "unclear" else None,
    }
    ends = {"eval_before": {"accuracy": 0.5}, "eval_after": {"accuracy": 0.5 + change}}
    assert ended(tmp_path, status="done", verdict=verdict, gain=gain, **ends) == said


def test_a_run_that_goes_on_shows_its_gain_so_far(tmp_path):
    run = whole_run(tmp_path / "sums")
    (run.path / "summary.json").unlink()
    page = page_of(run)
    assert page.results.sentence.startswith(f"{UNTOLD}40 steps so far; held-out accuracy went from")
    assert page.results.figures[1].label == "gain"


def test_an_empty_folder_has_a_page(tmp_path):
    page = page_of(RunDir(tmp_path))
    assert page.results.sentence == f"{UNTOLD}0 steps so far."
    assert (page.curves.charts, page.timeline.lanes, page.ledger, page.differences, page.provenance) == (
        [],
        [],
        None,
        [],
        [],
    )


LINES = ("metrics.jsonl", "samples.jsonl", "eval.jsonl", "events.jsonl", "evals/step-0/samples.jsonl")
FILES = (*LINES, "summary.json", "provenance.json", "recipe.yaml")


@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_missing_half_or_garbage(tmp_path, file):
    path = whole_run(tmp_path / "sums").path / file
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"[]\n", b"5\n", b"\x00\xff" * 100, b'{"step": NaN}\n', b"{" * 50):
        path.write_bytes(damaged)
        page_of(RunDir(tmp_path / "sums"))
    path.unlink()
    page_of(RunDir(tmp_path / "sums"))
    path.mkdir()
    page_of(RunDir(tmp_path / "sums"))


WRONG = (None, "text", -1, [1, "x", None], {"a": {"b": []}}, True, float("nan"), 1e308, 10**400, "\ud800")


@pytest.mark.parametrize("file", [*LINES, "summary.json", "provenance.json"])
def test_values_of_a_wrong_kind(tmp_path, file):
    run = whole_run(tmp_path / "sums")
    records = list(run.lines(file)) if file.endswith("jsonl") else [run.read(file)]
    for turn, key in enumerate(dict.fromkeys(key for record in records for key in record)):
        for wrong in (WRONG[turn % len(WRONG)], WRONG[(turn + 5) % len(WRONG)]):
            changed = [{**record, key: wrong} if key in record else record for record in records]
            write_lines(run.path / file, changed)
            page_of(run)


def test_a_recipe_beside_the_defaults(tmp_path):
    found = {one.key: (one.value, one.default, one.whose) for one in page_of(whole_run(tmp_path / "x")).differences}
    assert found["grpo.learning_rate"] == ("1e-05", "2e-06", "kit")
    assert found["rewards.format.weight"] == ("0.3", "1.0", "kit")
    assert found["grpo.max_completion_length"][2] == "TRL"
    assert found["model"] == ("builtin:tiny", "", "")
    assert found["grpo.hub_token"][0] == "(not shown)"
    # as by default: save_steps, seed, accuracy's weight; taken over from `dataset`: eval_dataset.prompt
    assert not found.keys() & {"grpo.save_steps", "seed", "rewards.accuracy.weight", "eval_dataset.prompt", "name"}


@pytest.mark.parametrize(("goal", "shown"), [("accuracy", None), ("format", ("format", "accuracy", "kit"))])
def test_a_goal_is_shown_where_it_is_not_the_first_reward(tmp_path, goal, shown):
    run = whole_run(tmp_path / "x")
    tree = yaml.safe_load((run.path / "recipe.yaml").read_text())
    assert next(iter(tree["rewards"])) == "accuracy"
    (run.path / "recipe.yaml").write_text(yaml.safe_dump({**tree, "goal": goal}, sort_keys=False))
    found = {one.key: (one.value, one.default, one.whose) for one in page_of(run).differences}
    assert found.get("goal") == shown


def test_provenance_without_secrets(tmp_path):
    page = page_of(whole_run(tmp_path / "x"))
    facts = {key: value for origin in page.provenance for key, value in origin.facts}
    assert facts["command"] == "grpo-kit run 'grpo.hub_token=(not shown)' 'a b.yaml'"
    assert facts["uncommitted changes"] == "1 lines of diff in provenance.json"
    html = rendered(page)
    assert "hf_abc" not in html
    assert "secret line" not in html


def test_hostile_text_is_nowhere_in_the_html_as_it_is(tmp_path):
    run = whole_run(tmp_path / "x")
    run.event("finding", 35, name="<img src=x onerror=alert(1)>", evidence="</script><script>alert(1)</script>\ud800")
    html = rendered(page_of(run))
    assert "onerror=alert" not in html.replace("&lt;img src=x onerror=alert(1)&gt;", "").replace(
        "\\u003cimg src=x onerror=alert(1)\\u003e", ""
    )
    assert html.count("<script") == 4  # two of data, two of ours
    assert "31% &lt;b&gt;cut&lt;/b&gt;" in html
    html.encode("utf-8")


def test_completions_side_by_side(tmp_path):
    items = unpacked(page_of(whole_run(tmp_path / "x")))
    held_out = [item for item in items if item["data"] == "held-out"]
    assert len(held_out) == PROMPTS
    assert [side["step"] for side in held_out[0]["sides"]] == [0, 40]
    assert held_out[0]["sides"][0]["completions"][0]["text"] == HOSTILE["script"]
    alike = [(one["rewards"]["accuracy"], one["times"]) for one in held_out[0]["sides"][0]["completions"]]
    assert alike == [(1.0, 2), (0.0, 2)]  # of 4 completions half are right
    texts = [item["sides"][0]["completions"][0]["text"] for item in held_out]
    assert "lone \\ud800 surrogate" in texts
    assert "abc \\u202e fed" in texts
    assert HOSTILE["chinese"] in texts  # its wide space, too
    training = {item["row"]: [side["step"] for side in item["sides"]] for item in items if item["data"] == "training"}
    # row step % 30 comes at steps 1 to 40, so rows 1 to 10 twice; rows 101 to 140 once
    assert training[3] == [3, 33]
    assert training[20] == [20]
    assert training[103] == [3]


def test_a_long_completion_keeps_its_beginning_and_its_end():
    [prompt], _ = prompts_of([sample(1, 0, "a" * 100_000 + "the answer is 7", True)])
    [(text, _)] = prompt.first.completions
    assert text.startswith("aaa")
    assert text.endswith("the answer is 7")
    assert f"{100_015 - MOST_TEXT:,} characters left out" in text
    assert len(text) < MOST_TEXT + 60


def test_of_many_prompts_a_fair_choice_is_kept_whole():
    steps = 3000
    records = (sample(step, row, "x", True) for step in range(steps) for row in (step, step % 100))
    found, seen = prompts_of(records, most=400)
    assert seen == steps
    assert 200 <= len(found) <= 400
    assert all(p.last is not None for p in found if p.row < 100 and p.row)  # row 0 to 99 come again and again
    late = sum(p.row >= steps / 2 for p in found)
    assert 0.35 < late / len(found) < 0.65


@pytest.mark.parametrize("prompts", [400, 4000])
def test_the_size_of_a_long_run(tmp_path, prompts):
    """500 steps of 64 completions of 1 kB that cannot be compressed."""
    draw = random.Random(0)
    letters = string.ascii_letters + string.digits
    run = RunDir(tmp_path)
    with (tmp_path / "samples.jsonl").open("w") as out:
        for step in range(500):
            for group in range(8):
                row = (8 * step + group) % prompts
                for _ in range(8):
                    out.write(json.dumps(sample(step + 1, row, "".join(draw.choices(letters, k=1000)), True)) + "\n")
    started = time.perf_counter()
    page = write_report(run, tmp_path / "report.html")
    assert time.perf_counter() - started < 60
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
    assert page.completions.seen["training"] == prompts
    assert page.completions.shown["training"] > 0.8 * prompts


def test_the_command(tmp_path, capsys):
    whole_run(tmp_path / "runs" / "sums")
    with pytest.raises(SystemExit) as done:
        main(["report", "sums", "--out", "elsewhere.html"])
    assert not done.value.code
    first, second = capsys.readouterr().out.splitlines()
    assert first == "report       elsewhere.html"
    assert second.startswith("The model learned")
    assert Path("elsewhere.html").is_file()
    with pytest.raises(SystemExit) as done:
        main(["report", "sums", "--out", "no/folder/here.html"])
    assert done.value.code == 2
    assert "no/folder/here.html: cannot be written (No such file or directory)" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_a_note(tmp_path, capsys):
    run = whole_run(tmp_path / "x")
    (run.path / "report.html").mkdir()
    with report_written(run, Console()):
        pass
    assert capsys.readouterr().out.startswith("note       no report was written: IsADirectoryError")


def test_a_run_that_raises_has_its_report_and_says_so(tmp_path, capsys):
    run = whole_run(tmp_path / "x")
    with pytest.raises(KeyError), report_written(run, Console()):
        raise KeyError
    assert capsys.readouterr().out == f"report       {run.path}/report.html\n"


def test_a_measurement_that_judged_nothing(tmp_path):
    run = RunDir(tmp_path)
    run.append(
        "eval.jsonl", {**evaluation(0, [0.5] * PROMPTS), "accuracy": None, "ci95": None, "pass_rates": [None] * PROMPTS}
    )
    run.append("eval.jsonl", evaluation(3, [0.5] * PROMPTS))
    page = page_of(run)
    assert page.ledger.unjudged == PROMPTS
    assert page.results.rows[0].sides[0] == ("–", "")


SECRETS = [
    "rewards={judge: {weight: 1, api_key: AAA1, headers: {Authorization: Bearer AAA2, X-Api-Key: AAA3}, "
    "url: 'https://u:AAA4@h/x?token=AAA5&a=b'}}",
    "rewards.judge.servers=[{aws_secret_access_key: AAA6}, [Authorization, AAA7], {name: Cookie, value: AAA8}]",
    "rewards.judge.passwd=AAA9", "rewards={broken: {private_key: AAA10", "--token", "AAA11", "--api-key=AAA12",
    "rewards.judge.header='Authorization: Bearer AAA13xyz'", "rewards.judge.x=hf_AAA14bcdef",
    "rewards.judge.k=sk-AAA15bcd", "rewards.judge.k=ghp_AAA16bcd", "rewards.judge.apiKey=AAA17", "grpo.hub_token=AAA18",
    "rewards={judge: {key: '-----BEGIN RSA PRIVATE KEY----- AAA19'}}", "rewards.judge.db=postgres://AAA20:p@h/d",
]  # fmt: skip
OPEN = [
    "grpo.max_completion_length=128", "rewards={token_count: {weight: 0.5, max_tokens: 512, eos_token: </s>}}",
    "rewards.judge.pad_token=<pad>", "rewards.judge.token_ids=[1, 2]", "eval_dataset=null",
    "grpo.average_tokens_across_devices=false", "dataset.prompt={question} Use the key: value form.",
]  # fmt: skip


def test_a_command_line_without_secrets_and_with_all_else():
    assert "AAA" not in " ".join(command_without_secrets(["grpo-kit", "run", *SECRETS]))
    assert command_without_secrets(OPEN) == OPEN
    shown = command_without_secrets(["rewards={judge: {weight: 0.1, api_key: x, servers: [{url: 'https://u:p@h/x'}]}}"])
    assert shown == [
        'rewards={"judge": {"weight": 0.1, "api_key": "(not shown)", "servers": [{"url": "https://(not shown)@h/x"}]}}'
    ]


def test_no_part_of_the_page_shows_a_secret(tmp_path):
    run = whole_run(tmp_path / "x")
    judge = {
        "weight": 0.1, "max_tokens": 77, "api_key": "AAA1", "headers": {"Authorization": "Bearer AAA2"},
        "servers": [{"url": "https://me:AAA3@host/x", "key": "AAA4"}],
        "credentials": {"user": "AAA5", "more": ["AAA6"]},
    }  # fmt: skip
    recipe = {"model": "https://u:AAA7@h/m", "rewards": {"judge": judge, "secret_number": {"weight": 0.25}}}
    (run.path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    run.write("provenance.json", {"argv": SECRETS, "data": {"train": {"url": "s3://id:AAA8@b", "cookie": ["AAA9"]}}})
    run.event("failed", 40, reason="RewardError: 401 for Authorization: Bearer AAA10abc")
    run.write("summary.json", {"status": "failed", "reason": "RunError: https://u:AAA11@host said no"})
    page = page_of(run)
    assert "AAA" not in rendered(page).replace(page.completions.packed, "")
    shown = {one.key: one.value for one in page.differences}
    assert (shown["rewards.judge.max_tokens"], shown["rewards.secret_number.weight"]) == ("77", "0.25")
    assert shown["rewards.judge.servers"] == '[{"key": "(not shown)", "url": "https://(not shown)@host/x"}]'


def test_a_search_for_secrets_takes_time_by_the_length_of_the_text():
    started = time.perf_counter()
    for text in ("x" * 200_000, "a:" * 100_000, "-" * 200_000, "://" * 60_000, "eyJ." * 50_000):
        hidden_in(text)
    assert time.perf_counter() - started < 5


def test_what_lasts_at_the_end_are_the_diagnoses_of_the_summary(tmp_path):
    run = RunDir(tmp_path)
    run.append("metrics.jsonl", *({"step": at, "reward": 0.5} for at in range(1, 41)))
    run.event("finding", 10, name="kl", since=8)
    run.event("finding", 12, name="unscored", reward="r", since=12)
    run.event("finding", 20, name="clipping", since=15)
    run.event("finding gone", 25, name="clipping")

    def told() -> dict[str, str]:
        return {lane.name: lane.when for lane in page_of(run).timeline.lanes}

    assert told() == {"kl": "since step 8", "unscored": "since step 12", "clipping": "step 15 to 25"}
    found = [{"name": "kl", "since": 9}, {"name": "clipping", "since": 39}, {"name": "overfitting", "since": 30}]
    run.write("summary.json", {"status": "done", "steps": 40, "diagnoses": found})
    assert told() == {
        "kl": "since step 8", "unscored": "step 12 to 40", "clipping": "step 15 to 25, since step 39",
        "overfitting": "since step 30",
    }  # fmt: skip


@pytest.mark.parametrize(
    "text", ["model: &a {b: *a}", "model: &a [*a]", "lora: [{2020-01-01: 1}]", "{1: 2, null: 3}", "[" * 1500]
)
def test_odd_yaml_and_deep_json(tmp_path, text):
    run = whole_run(tmp_path / "x")
    (run.path / "recipe.yaml").write_text(text)
    for file in ("summary.json", "provenance.json"):
        (run.path / file).write_text("[" * 100_000 + "]" * 100_000)
        page_of(run)
        (run.path / file).write_text('{"a": ' * 400 + "1" + "}" * 400)
        page_of(run)


def test_less_than_no_steps(tmp_path):
    assert ended(tmp_path, status="failed", steps=-5).startswith("Failed after 10 steps")


def test_every_part_of_a_long_run_is_bounded(tmp_path):
    """12 rewards, measured every 10th of 12,000 steps, 100 findings that come and go 60 times, in wide characters."""
    draw = random.Random(0)
    run = RunDir(tmp_path)
    labels = [f"reward_{at}" for at in range(12)]
    curves = ("reward", "grad_norm", "kl", "kit/accuracy", "kit/entropy", "completions/mean_length")
    keys = [*curves, "kit/flat_group_share", *(f"rewards/{label}/mean" for label in labels)]
    write_lines(tmp_path / "metrics.jsonl", (
        {"step": at, **{key: draw.random() for key in keys}, **({"kl": 77.0} if at == 6001 else {})}
        for at in range(1, 12_001)
    ))  # fmt: skip
    write_lines(tmp_path / "eval.jsonl", (
        {"step": at, "accuracy": 0.5, "ci95": [0.4, 0.9 if at == 600 else 0.6], "samples": 4, "pass_rates": [0.5] * 40}
        for at in range(0, 12_001, 10)
    ))  # fmt: skip
    text = dict.fromkeys(("evidence", "cause", "change", "override"), "文" * 700)
    write_lines(tmp_path / "events.jsonl", (
        {"event": kind, "name": f"f{lane}", "step": 100 * turn + at, "since": 100 * turn, **text}
        for turn in range(60) for lane in range(100) for at, kind in enumerate(("finding", "finding gone"))
    ))  # fmt: skip
    with (tmp_path / "samples.jsonl").open("w") as out:
        for step in range(1, 4001):
            text_of = base64.b64encode(draw.randbytes(1200)).decode()
            out.write(json.dumps(sample(step, step, text_of, True)) + "\n")
    (tmp_path / "recipe.yaml").write_text(
        yaml.safe_dump({"rewards": {"r": {f"o{at}": "字" * 600 for at in range(3000)}}})
    )
    started = time.perf_counter()
    page = write_report(run)
    assert time.perf_counter() - started < 60
    assert (tmp_path / "report.html").stat().st_size < 5_000_000
    assert (len(page.timeline.lanes), page.timeline.left_out) == (30, 70)
    assert page.differences[-1].key == "and 2800 more keys"
    assert "And 70 more kinds" in (tmp_path / "report.html").read_text()
    assert page.curves.merged > 10
    kl = next(chart for chart in page.curves.charts if chart.name == "kl").series[0]
    most, means = ([value for value in values if value is not None] for values in (kl.most, kl.values))
    assert max(most) == 77 > 10 > max(means)  # a mean of more than ten values hides it, its envelope does not
    [held_out] = [one for chart in page.curves.charts for one in chart.series if one.label == "held-out"]
    assert sum(value is not None for value in held_out.values) <= 120
    assert max(end for end in held_out.high if end) == 0.9


def test_of_heavy_prompts_fewer_are_kept_in_memory(monkeypatch):
    monkeypatch.setattr(completions, "MOST_HELD", 200_000)
    found, seen = prompts_of(sample(step, step, "x" * 2000 + str(step), True) for step in range(1000))
    assert seen == 1000
    assert 20 <= len(found) <= 110  # 200,000 / 2,000, and what comes before they are weighed again


def test_only_a_new_file_or_a_report_is_written_over(tmp_path, capsys):
    run = whole_run(tmp_path / "runs" / "sums")
    recipe = (run.path / "recipe.yaml").read_bytes()
    Path("link.html").symlink_to("target.html")
    Path("target.html").write_text("mine")
    os.mkfifo("fifo.html")
    Path("folder.html").mkdir()

    def written(out: str) -> bool:
        capsys.readouterr()
        with pytest.raises(SystemExit) as done:
            main(["report", "sums", "--out", out])
        if done.value.code:
            assert capsys.readouterr().err == (
                f"error: {out}: is there and is no report, so it is not replaced; name a new file with --out\n"
            )
        return not done.value.code

    for refused in ("/dev/null", "runs/sums/recipe.yaml", "link.html", "fifo.html", "folder.html"):
        assert not written(refused), refused
    assert (run.path / "recipe.yaml").read_bytes() == recipe
    assert Path("target.html").read_text() == "mine"
    for taken in ("new", "new", "target.html", "runs/sums/report.html"):  # "new" is a report the second time
        assert written(taken), taken
