"""The report in a browser: it reads, filters and prints, fetches nothing, and what a model wrote does nothing."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from report_runs import HOSTILE, PROMPTS, evaluation, rates, sample, whole_run

from grpo_kit.report.write import write_report
from grpo_kit.run.run_dir import RunDir

api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (CHROMIUM names one)")

ARGUMENTS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SECTIONS = ("top", "measured", "findings", "curves", "prompts", "completions", "recipe", "provenance")
PIXELS = (
    "c => [...new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)]"
    ".filter((one, at) => at % 7 === 0)"
)
LONG_LINE = "0123456789" * 10_000


@pytest.fixture(scope="module")
def browser() -> Iterator["api.Browser"]:
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory) -> Path:
    """A run whose prompts, gold answers, rewards and events are hostile too."""
    run = whole_run(tmp_path_factory.mktemp("page") / "sums")
    for at, text in enumerate(HOSTILE.values()):
        hostile = sample(1, 500 + at, text, True) | {
            "prompt": f"prompt {at}: {text}",
            "gold": text,
            "answer_read": text,
        }
        run.append("samples.jsonl", hostile | {"rewards": {"accuracy": 0.25, text: 1.0}})
        run.event("finding", 10 + at, name=text, evidence=text, cause=text, change=text, override=text)
        run.event("score lost", 9, reward=text, fault="error", message=text)
    run.append("samples.jsonl", sample(1, 600, LONG_LINE, True), sample(1, 601, "x " * 50_000, True))
    write_report(run)
    return run.path / "report.html"


class Opened:
    """A page that was opened, with everything that it asked for, printed and got wrong."""

    def __init__(self, browser, report: Path, **context):
        self.context = browser.new_context(**context)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.goto(report.as_uri())
        if self.page.locator("#count").count():
            api.expect(self.page.locator("#count")).not_to_be_empty()
        self.uri = report.as_uri()

    def count(self) -> str:
        return self.page.inner_text("#count")

    def close(self) -> None:
        assert self.said == []
        assert set(self.requests) <= {self.uri, "data:,"}, self.requests
        assert self.page.evaluate("window.acted") is None
        self.context.close()


@pytest.fixture
def opened(browser, report):
    pages = []

    def open_page(file: Path = report, **context) -> Opened:
        pages.append(Opened(browser, file, **context))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()


def test_each_section_is_there_and_every_chart_is_drawn(opened):
    page = opened().page
    for name in SECTIONS:
        assert page.locator(f"#{name}").is_visible(), name
    assert page.locator(".figure").count() == 5
    charts = page.locator("[data-chart]")
    assert charts.count() == 8
    for at in range(charts.count()):
        assert charts.nth(at).locator("canvas").count() == 1
        assert "at step" in charts.nth(at).get_attribute("aria-label")
        painted = charts.nth(at).locator("canvas").evaluate(PIXELS)
        assert len(set(painted)) > 5


def test_one_step_is_read_in_all_charts(opened):
    page = opened().page
    page.locator("[data-chart='0'] .u-over").hover(position={"x": 200, "y": 80})
    said = page.locator(".legend .step").all_inner_texts()
    assert len(set(said)) == 1
    assert said[0].startswith("step ")


def test_search(opened):
    report = opened()
    assert report.count() == f"{PROMPTS} of {PROMPTS} held-out prompts"
    report.page.fill("#search", "WHAT IS 7+7")
    assert report.count() == f"1 of {PROMPTS} held-out prompts"
    assert report.page.locator("#list mark").first.inner_text() == "What is 7+7"
    report.page.fill("#search", "nowhere to be found")
    assert report.count() == f"0 of {PROMPTS} held-out prompts"
    assert report.page.locator("#list article").count() == 0
    report.page.click("button[type=reset]")
    api.expect(report.page.locator("#count")).to_have_text(f"{PROMPTS} of {PROMPTS} held-out prompts")


def test_filter_by_reward(opened):
    report = opened()
    # a prompt passes where any of its completions after training does
    after = rates(2, 0.8)
    report.page.select_option("#reward", "r:accuracy")
    report.page.select_option("#how", "le")
    report.page.fill("#value", "0")
    some_wrong = sum(rate < 1 for rate in after)
    assert report.count() == f"{some_wrong} of {PROMPTS} held-out prompts"
    report.page.select_option("#reward", "tokens")
    assert report.count() == f"0 of {PROMPTS} held-out prompts"
    report.page.select_option("#how", "eq")
    report.page.fill("#value", "5")
    assert report.count() == f"{PROMPTS} of {PROMPTS} held-out prompts"


def test_tiles_choose_the_kind_of_prompt(opened):
    report = opened()
    before, after = rates(1, 0.4), rates(2, 0.8)
    learned = sum(b < 0.5 <= a for b, a in zip(before, after, strict=True))
    assert learned
    tile = report.page.locator(".tile", has_text="learned")
    assert tile.inner_text().startswith(str(learned))
    report.page.check("input[value=training]", force=True)
    tile.click()
    assert report.count() == f"{learned} of {PROMPTS} held-out prompts, learned"
    assert report.page.locator("#list .kind").all_inner_texts() == ["learned"] * learned
    assert tile.get_attribute("aria-pressed") == "true"
    tile.click()
    assert report.count() == f"{PROMPTS} of {PROMPTS} held-out prompts"


def test_first_and_last_stand_side_by_side(opened):
    page = opened().page
    page.fill("#search", "What is 20+20?")
    sides = page.locator("#list article .side")
    assert sides.locator("h3").all_inner_texts() == ["before training, 4 completions", "after step 40, 4 completions"]
    left, right = (sides.nth(at).bounding_box() for at in (0, 1))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    assert sides.nth(0).locator("pre").first.inner_text() == "step 0 row 20 completion 0"
    page.check("input[value=training]", force=True)
    page.fill("#search", "What is 3+3?")
    assert page.locator("#list article h3").all_inner_texts() == ["step 3, 2 completions", "step 33, 2 completions"]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_text_is_shown_and_does_nothing(opened, name):
    page = opened().page
    shown = {
        "surrogate": "lone \\ud800 surrogate",
        "direction": "abc \\u202e fed",
        "nul": "nul \\u0000 here",
        "separators": "line \\u2028 and \\u2029 end",
    }.get(name, HOSTILE[name])
    page.check("input[value=training]", force=True)
    prompt = f"prompt {list(HOSTILE).index(name)}: {shown}"
    page.fill("#search", prompt)
    assert page.locator("#list article").count() == 1
    assert page.locator("#list article > pre").text_content() == prompt
    assert page.locator("#list .completion pre").text_content() == shown
    assert shown in page.locator("#list .facts").text_content()
    assert f"gold {shown}" in page.locator("#list .head").text_content()
    in_a_line = {"separators": "line and end"}.get(name, " ".join(shown.split()))
    assert in_a_line in page.locator("#findings").text_content()
    assert (
        page.locator("#list script, #list img, #list svg, #findings script, #findings img, #findings svg").count() == 0
    )
    values = page.eval_on_selector_all("#reward option", "all => all.map(one => one.value)")
    page.select_option("#reward", index=values.index(f"r:{shown}"))
    assert page.locator("#list article").count() == 1


def test_a_long_line_is_cut_and_broken(opened):
    report = opened(viewport={"width": 390, "height": 844})
    report.page.check("input[value=training]", force=True)
    report.page.fill("#search", "What is 600+600?")
    assert "97,952 characters left out" in report.page.locator("#list .completion pre").text_content()
    assert report.page.evaluate("document.scrollingElement.scrollWidth") <= 390


@pytest.mark.parametrize("width", [320, 390, 800])
def test_no_sideways_scroll(opened, width):
    page = opened(viewport={"width": width, "height": 844}).page
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    page.check("input[value=training]", force=True)
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_dark_light_and_back(opened):
    page = opened().page

    def colours() -> tuple[str, list[int]]:
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        return paper, page.locator("[data-chart='0'] canvas").evaluate(PIXELS)

    light = colours()
    page.emulate_media(color_scheme="dark")
    page.wait_for_timeout(100)
    dark = colours()
    assert light[0] == "rgb(255, 255, 255)" != dark[0]
    assert light[1] != dark[1]  # the charts are drawn anew
    page.emulate_media(color_scheme="light")
    page.wait_for_timeout(100)
    assert colours() == light


def test_it_prints_on_white_even_in_the_dark(opened):
    page = opened(color_scheme="dark").page
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert not page.locator("nav").is_visible()
    for name in SECTIONS:
        assert page.locator(f"#{name}").is_visible(), name
    assert page.locator("#provenance table").last.is_visible()
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_pages_of_little(opened, tmp_path):
    """Nothing at all; one step; a measurement without its completions."""
    for name in ("nothing", "one", "measured"):
        (tmp_path / name).mkdir()
    nothing, one, measured = (RunDir(tmp_path / name) for name in ("nothing", "one", "measured"))
    one.append("metrics.jsonl", {"step": 1, "reward": 0.5, "kit/accuracy": None, "grad_norm": 0.0})
    one.append("samples.jsonl", sample(1, 0, "", True))
    measured.append("eval.jsonl", evaluation(0, rates(1, 0.4)), evaluation(9, rates(2, 0.8)))
    for run, charts in ((nothing, 0), (one, 2), (measured, 1)):
        write_report(run)
        page = opened(run.path / "report.html").page
        assert page.locator("canvas").count() == charts
        for name in SECTIONS:
            assert page.locator(f"#{name}").is_visible(), name


UNBROKEN = "W" * 2000


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory) -> Path:
    """A run in which every foreign text is one word of 2,000 characters."""
    run = whole_run(tmp_path_factory.mktemp("wide") / ("w" * 200))
    told = {"name": UNBROKEN, "reward": UNBROKEN, "evidence": UNBROKEN, "change": UNBROKEN, "override": UNBROKEN}
    run.event("finding", 40, **told, completions=[UNBROKEN])
    scores = {"accuracy": 0.5, UNBROKEN: 0.5}
    wide = {"gold": UNBROKEN, "answer_read": UNBROKEN, "prompt": UNBROKEN, "rewards": scores}
    run.append("samples.jsonl", {**sample(40, 999, UNBROKEN, True), **wide})
    run.append("metrics.jsonl", {"step": 41, "reward": 1.0, f"rewards/{UNBROKEN}/mean": 0.5})
    run.append("eval.jsonl", {**evaluation(41, rates(2, 0.8)), "rewards": scores, "unscored": {UNBROKEN: 0.5}})
    ending = run.read("summary.json")
    run.write("summary.json", {**ending, "status": "failed", "reason": UNBROKEN})
    recipe = {"model": UNBROKEN, UNBROKEN: 1, "rewards": {UNBROKEN: {"weight": 0.5}}, "dataset": {"prompt": UNBROKEN}}
    (run.path / "recipe.yaml").write_text(json.dumps(recipe))
    run.write("provenance.json", {"argv": [UNBROKEN], "grpo_kit": UNBROKEN, UNBROKEN: {UNBROKEN: UNBROKEN}})
    write_report(run)
    return run.path / "report.html"


@pytest.mark.parametrize("width", [360, 1280])
def test_an_unbroken_text_in_any_field_is_broken(opened, unbroken, width):
    page = opened(unbroken, viewport={"width": width, "height": 800}).page
    page.eval_on_selector_all("details", "all => all.forEach(one => { one.open = true; })")
    page.check("input[value=training]", force=True)
    page.fill("#search", UNBROKEN)
    assert page.locator("#list article").count() == 1
    wider = page.evaluate(
        "[...document.querySelectorAll('body *')].filter(one => one.getBoundingClientRect().right > innerWidth && "
        "!one.closest('.scroll')).map(one => `${one.tagName}.${one.className} ${one.textContent.slice(0, 20)}`)"
    )
    assert wider == []
    assert page.evaluate("document.scrollingElement.scrollWidth") <= width


def test_what_is_found_is_marked_where_it_stands(opened, tmp_path):
    run = RunDir(tmp_path)
    run.append("samples.jsonl", sample(1, 0, "İİİİ abc Needle.", True))  # in lower case İ is two characters
    write_report(run)
    page = opened(run.path / "report.html").page
    page.fill("#search", "needle")
    assert page.locator("#list mark").all_inner_texts() == ["Needle"]
