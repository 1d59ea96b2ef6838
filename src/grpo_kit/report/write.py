"""The page as one HTML file: nothing in it is fetched, and nothing that a model wrote can act."""

import base64
import hashlib
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from grpo_kit.console import Console
from grpo_kit.errors import RecipeError, first_line
from grpo_kit.processes import is_main
from grpo_kit.report.completions import completions_of
from grpo_kit.report.foreign import all_shown, shown
from grpo_kit.report.page import Page, read_page
from grpo_kit.run.run_dir import RunDir

HERE = Path(__file__).parent
REPORT = "report.html"
BEGINS = b"<!doctype html>\n<!-- grpo-kit report -->"
MOST_BYTES = 4_990_000
SCRIPTS = ("vendor/uPlot.iife.min.js", "report.js")
STYLES = ("vendor/uPlot.min.css", "report.css")


@contextmanager
def report_written(run: RunDir, console: Console) -> Iterator[None]:
    """However the block ends, the run has its report; where that cannot be written, it is only said."""
    try:
        yield
    except BaseException:
        if _tried(run, console):
            console.say(f"report       {run.path / REPORT}")
        raise
    _tried(run, console)


def _tried(run: RunDir, console: Console) -> bool:
    if not is_main():
        return False
    try:
        write_report(run)
    except Exception as error:  # of whatever type: no run fails for its report
        console.say(f"note       no report was written: {type(error).__name__}: {first_line(error)}")
        return False
    return True


def write_report(run: RunDir, out: Path | None = None) -> Page:
    """Write the report of a run, to `out` or to its own directory. Raises OSError where it cannot be written."""
    page = read_page(run)
    html = rendered(page)
    over = len(html.encode("utf-8", "backslashreplace")) - MOST_BYTES
    if over > 0:  # everything else is bounded, but all of it at once may be too much
        results, room = page.results, max(len(page.completions.packed) - over, 0)
        page = replace(page, completions=completions_of(run, results.first, results.last, room))
        html = rendered(page)
    out = out or run.path / REPORT
    RunDir(out.parent).write_text(out.name, html)
    return page


def check_replaceable(out: Path) -> None:
    """Raises RecipeError where something is there that is no report: a new file, or one that may be replaced."""
    try:
        mode = out.lstat().st_mode
        if stat.S_ISREG(mode):
            with out.open("rb") as file:
                begins = file.read(len(BEGINS))
            if begins == BEGINS or out.suffix in (".html", ".htm"):
                return
    except OSError:
        return  # nothing is there, or what cannot be looked at cannot be written either
    raise RecipeError(f"{out}: is there and is no report, so it is not replaced; name a new file with --out")


def rendered(page: Page) -> str:
    """The page's HTML. Every text is escaped; scripts other than ours are refused by their hash."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: shown(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    scripts = [_own(name) for name in SCRIPTS]
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in scripts)
    return environment.get_template("report.html.j2").render(
        page=page,
        scripts=scripts,
        styles=[_own(name) for name in STYLES],
        policy=f"default-src 'none'; script-src {hashes}; "
        "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'",
        curves=all_shown({**asdict(page.curves), "spans": page.spans}),
    )


def _own(name: str) -> Any:
    """A file of ours, which goes into the page as it is."""
    return Markup((HERE / name).read_text(encoding="utf-8"))
