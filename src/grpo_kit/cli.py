"""The command line. Nothing heavy is imported before a command needs it, so that help answers at once."""

import os
import sys
import traceback
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_kit import __version__
from grpo_kit.cli_measure import compare, evaluate, interruptible, preflight
from grpo_kit.cli_rewards import rewards_app
from grpo_kit.errors import RecipeError, RewardError, RunError
from grpo_kit.processes import is_main, leave, together
from grpo_kit.run.stop import ended_at_once
from grpo_kit.terminal import secure_output, show

if TYPE_CHECKING:
    from grpo_kit.prepare.prepare import Prepared

app = typer.Typer(
    name="grpo-kit",
    help="Train a small reasoning model with GRPO on one GPU.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.add_typer(rewards_app, name="rewards")


@app.callback(invoke_without_command=True)
def version(
    asked: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    if asked:
        show(f"grpo-kit {__version__}")
        raise typer.Exit()


RecipePath = Annotated[Path, typer.Argument(help="A recipe (.yaml), or the directory of a run.")]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides, such as grpo.max_steps=100.")
]
RunName = Annotated[str, typer.Argument(help="A run's directory, or a recipe's name (its newest run).")]


@app.command()
@interruptible
def run(
    recipe: RecipePath,
    overrides: Overrides = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the newest unfinished run, or start.")] = False,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Train although no held-out completion was right before.")
    ] = False,
) -> None:
    """Train a recipe, and say whether the model learned.

    Checks the recipe, measures on held-out rows, trains, and measures again.
    """
    with ended_at_once():
        prepared = _prepare(recipe, overrides)
        from grpo_kit.memory.heap import give_memory_back
        from grpo_kit.train import train

    give_memory_back()
    summary = train(prepared, resume=resume, anyway=anyway)
    leave()
    raise typer.Exit(exit_code(summary))


@app.command()
def check(
    recipe: RecipePath,
    overrides: Overrides = None,
    settings: Annotated[bool, typer.Option("--settings", help="Every trainer setting and where it is from.")] = False,
    gpu_memory: Annotated[
        float | None, typer.Option("--gpu-memory", help="GB: predict for a bf16 card of this size.", min=1, max=10_000)
    ] = None,
) -> None:
    """Check a recipe as `run` does, and show the plan."""
    prepared = _prepare(recipe, overrides, gpu_memory)
    from grpo_kit.console import Console, plan_lines, settings_lines
    from grpo_kit.run.disk import check_disk

    check_disk(prepared.plan)
    console = Console()
    for line in settings_lines(prepared) if settings else plan_lines(prepared):
        console.say(line)
    leave()


app.command()(preflight)
app.command("eval")(evaluate)
app.command()(compare)


@app.command()
def samples(
    run: RunName,
    where: Annotated[
        list[str] | None, typer.Option("--where", help="Only completions with REWARD=VALUE (also <, >); repeatable.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", help="How many to show, the newest last.", min=1)] = 10,
) -> None:
    """Read a run's completions, answers and rewards."""
    from grpo_kit.run.browse import matching_samples, sample_lines
    from grpo_kit.run.run_dir import find_run

    found = matching_samples(find_run(run), where or [])
    for sample in found[-limit:]:
        for line in sample_lines(sample):
            show(line)
    show(f"{min(limit, len(found))} of {len(found)} matching completions")


@app.command()
def doctor(
    run: Annotated[str, typer.Argument(help="A run, or a trainer_state.json of plain TRL.")],
    fail_on: Annotated[
        list[str] | None, typer.Option("--fail-on", help="NAME,NAME: exit code 1 where one is found; repeatable.")
    ] = None,
) -> None:
    """What is wrong with a run, why, and what to change."""
    from grpo_kit.diagnosis.diagnose import NAMES, nearest
    from grpo_kit.doctor import examination_lines, examine

    grave = [name.strip() for names in fail_on or [] for name in names.split(",") if name.strip()]
    for unknown in (name for name in grave if name not in NAMES):
        raise RecipeError(f"--fail-on {unknown!r}: no such finding; write {nearest(unknown)}")
    seen = examine(run)
    for line in examination_lines(seen):
        show(line)
    raise typer.Exit(1 if {finding.name for finding in seen.found} & set(grave) else 0)


@app.command()
def report(
    run: RunName,
    out: Annotated[Path | None, typer.Option("--out", help="Where to write it (default: RUN/report.html).")] = None,
) -> None:
    """Write a run's report, one HTML file."""
    from grpo_kit.run.run_dir import find_run

    found = find_run(run)
    from grpo_kit.report.write import REPORT, check_replaceable, write_report

    file = out or found.path / REPORT
    if out is not None:
        check_replaceable(out)
    try:
        page = write_report(found, file)
    except OSError as error:
        raise RecipeError(f"{file}: cannot be written ({error.strerror}); name another place with --out") from None
    show(f"report       {file}")
    show(page.results.sentence)


@app.command()
def ask(
    run: RunName,
    question: Annotated[str, typer.Argument(help="Fills the recipe's prompt template.")],
    greedy: Annotated[bool, typer.Option("--greedy", help="The most likely answer instead of a sampled one.")] = False,
) -> None:
    """Ask a trained model, with the recipe's own prompt."""
    from grpo_kit.run.run_dir import find_run

    found = find_run(run)
    from grpo_kit.ask import ask_model

    show(ask_model(found, question, greedy=greedy))


@app.command()
def env() -> None:
    """Show this machine and the precision of a run here.

    Exit code 1, with the reason, where no run could start.
    """
    from grpo_kit.device import blockers, environment

    found = blockers()
    if not found:
        for label, value in environment():
            show(f"{label:<14} {value}")
    for reason in found:
        show(f"a run could not start: {reason}", error=True)
    raise typer.Exit(1 if found else 0)


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="A new or empty folder.")]) -> None:
    """Start a project: recipes and rewards to edit."""
    import shutil

    from grpo_kit.shipped import shipped

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RecipeError(f"{folder}: already there and not empty; name a new folder")
    try:
        for kind in ("recipes", "rewards"):
            shutil.copytree(shipped(kind), folder / kind, ignore=shutil.ignore_patterns("__pycache__"))
    except OSError as error:
        raise RecipeError(f"{folder}: cannot be made ({error.strerror}); name a folder you may write to") from None
    show(f"{folder}/recipes and {folder}/rewards are yours to edit; try: grpo-kit run {folder}/recipes/smoke.yaml")


def _prepare(recipe: Path, overrides: list[str] | None, card_gb: float | None = None) -> "Prepared":
    from grpo_kit.prepare.prepare import prepare
    from grpo_kit.recipe.recipe import load_recipe

    with together():
        prepared = prepare(load_recipe(recipe, overrides or []), card_gb=card_gb)
    return prepared


def exit_code(summary: dict[str, Any]) -> int:
    """0 done; 1 failed, changed nothing, or made the model worse; 129, 130 and 143 interrupted."""
    if summary["status"] == "stopped":
        return {"SIGTERM": 143, "SIGHUP": 129}.get(summary["reason"], 130)
    return 0 if summary["status"] == "done" and summary["verdict"] != "not learned" else 1


def check_folder() -> None:
    """Raises RecipeError where the current folder has been deleted: paths mean nothing there."""
    try:
        os.getcwd()
    except OSError as error:
        raise RecipeError(f"the current folder is gone ({error.strerror}); go to one that is there") from None


QUIET = {
    "HF_HUB_DISABLE_TELEMETRY": "1",  # read when huggingface_hub is imported
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TOKENIZERS_PARALLELISM": "false",
}
"""Set before the libraries that read them are imported; what the user has set stays."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; raises SystemExit with the code that the README lists."""
    secure_output()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    warnings.filterwarnings("ignore", category=FutureWarning)  # of the libraries, about each other
    sys.warnoptions.append("ignore:resource_tracker")  # it tidies up after a SIGTERM, which is no news: its own process
    try:
        check_folder()
        app(arguments)
    except RecipeError as error:
        if is_main():
            show(f"error: {error}", error=True)
        leave()
        raise SystemExit(2) from None
    except RunError as error:
        speaks = is_main() or not error.everywhere
        if speaks and isinstance(error, RewardError) and error.details:
            show(error.details, error=True)
        elif error.__cause__ is not None:
            show("".join(traceback.format_exception(error.__cause__)).rstrip(), error=True)
        if speaks:
            show(f"error: {error}", error=True)
        if error.everywhere:
            leave()
        raise SystemExit(1) from None
