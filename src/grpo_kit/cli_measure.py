"""`grpo-kit preflight`, `eval` and `compare`: what is measured before and after a run, and beside it."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from grpo_kit.errors import RecipeError
from grpo_kit.processes import count

if TYPE_CHECKING:
    from grpo_kit.evaluation.row_records import Measurement
    from grpo_kit.measure.measure import Departure
    from grpo_kit.measure.targets import Target
    from grpo_kit.prepare.inputs import Inputs

Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Overrides, such as grpo.max_completion_length=256.")
]
RowCount = Annotated[int, typer.Option("--rows", help="Training prompts to sample.", min=1)]


def interruptible(command: Callable[..., None]) -> Callable[..., None]:
    """Ctrl-C where nothing can be kept ends a command with exit code 130, and says nothing."""

    @functools.wraps(command)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return wrapped


@interruptible
def preflight(
    recipe: Annotated[Path, typer.Argument(help="A recipe (.yaml), or the directory of a run.")],
    overrides: Overrides = None,
    rows: RowCount = 100,
    samples: Annotated[
        int | None, typer.Option("--samples", help="Completions of each (default 8, or a group).", min=2)
    ] = None,
    held_out: Annotated[bool, typer.Option("--held-out", help="Also sample as many held-out prompts.")] = False,
    apply: Annotated[
        Path | None, typer.Option("--apply", metavar="NEW.yaml", help="Write the recipe with the changes.")
    ] = None,
) -> None:
    """Sample the untrained model, and say whether a run can learn.

    The last line is `verdict: go`, `adjust` (with what to change in the recipe) or `stop` (exit code 1).
    """
    _one_process()
    from grpo_kit.recipe.recipe import load_recipe

    loaded = load_recipe(recipe, overrides or [])
    if apply is not None:
        _writable(apply)
    from grpo_kit.prepare.prepare import prepare

    prepared = prepare(loaded)
    from grpo_kit.console import Console
    from grpo_kit.memory.heap import give_memory_back
    from grpo_kit.preflight.lines import preflight_lines
    from grpo_kit.preflight.preflight import preflight as sample_untrained

    give_memory_back()
    console = Console()
    result = sample_untrained(prepared, console, rows=rows, samples=samples, held_out=held_out)
    *lines, verdict = preflight_lines(result)
    for line in lines:
        console.say(line)
    if apply is not None and result.decision.changes:
        from grpo_kit.preflight.recipe_patch import write_patched

        write_patched(recipe, overrides or [], result.decision.changes, apply)
        console.say(f"written      {apply}")
    elif apply is not None:
        console.say(f"not written  {apply}: there is nothing to change in the recipe")
    console.say(verdict)
    raise typer.Exit(130 if result.interrupted else 1 if result.decision.verdict == "stop" else 0)


TargetName = Annotated[
    str, typer.Argument(help="A run, a checkpoint, a model's or an adapter's folder, a hub id, base.")
]
RecipeOption = Annotated[
    Path | None, typer.Option("--recipe", help="How to ask and to judge (default: the run's own).")
]
DatasetOption = Annotated[str | None, typer.Option("--dataset", help="Other held-out rows: a file or a hub data set.")]
SamplesOption = Annotated[int | None, typer.Option("--samples", help="Completions of each prompt.", min=1)]
GreedyOption = Annotated[bool, typer.Option("--greedy", help="The most likely completion instead of sampled ones.")]
TemperatureOption = Annotated[
    float | None, typer.Option("--temperature", help="Another one than in training.", min=0.01)
]


@interruptible
def evaluate(
    target: TargetName,
    overrides: Overrides = None,
    recipe: RecipeOption = None,
    dataset: DatasetOption = None,
    samples: SamplesOption = None,
    greedy: GreedyOption = False,
    temperature: TemperatureOption = None,
    all_checkpoints: Annotated[
        bool, typer.Option("--all-checkpoints", help="A table of all checkpoints of a run.")
    ] = False,
) -> None:
    """Measure a model on held-out rows, as its run samples.

    `base` is the recipe's untrained model. What is measured is appended to eval.jsonl; prompts and completions are
    written to a folder.
    """
    _one_process()
    from grpo_kit.measure.targets import checkpoint_targets, find_target

    found = find_target(target)
    inputs, departure = _asked(found, recipe, dataset, overrides, samples, greedy, temperature)
    from grpo_kit.console import Console
    from grpo_kit.measure.lines import checkpoint_lines, measured_lines
    from grpo_kit.measure.measure import measure_target

    console = Console()
    console.say(f"sampling     {departure.describe(inputs)}")
    measured = []
    for one in checkpoint_targets(found) if all_checkpoints else [found]:
        measured.append(measure_target(one, inputs, departure, console))
        if measured[-1].interrupted:
            break
    for line in checkpoint_lines(measured) if all_checkpoints else measured_lines(measured[0]):
        console.say(line)
    raise typer.Exit(130 if measured[-1].interrupted else 0)


@interruptible
def compare(
    a: Annotated[str, typer.Argument(metavar="A", help="As for eval; or a folder that eval wrote.")],
    b: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    overrides: Overrides = None,
    recipe: RecipeOption = None,
    dataset: DatasetOption = None,
    samples: SamplesOption = None,
    greedy: GreedyOption = False,
    temperature: TemperatureOption = None,
) -> None:
    """Is B better than A, how surely, and where from?

    Both are asked the same rows, as the recipe of B's run (else of A's) asks them, and paired by prompt. `compare base
    RUN` says what a run has gained.
    """
    _one_process()
    from grpo_kit.console import Console
    from grpo_kit.evaluation.row_records import read_rows
    from grpo_kit.measure.measure import measure_target
    from grpo_kit.measure.targets import find_target

    files = [_rows_file(name) for name in (a, b)]
    targets = [None if file is not None else find_target(name) for file, name in zip(files, (a, b), strict=True)]
    measured = [target for target in targets if target is not None]
    asks = next((one for one in reversed(measured) if one.run is not None), measured[-1] if measured else None)
    console = Console()
    if asks is not None:
        inputs, departure = _asked(asks, recipe, dataset, overrides, samples, greedy, temperature)
        console.say(f"sampling     {departure.describe(inputs)}")
    rows: list[Measurement] = []
    for file, target in zip(files, targets, strict=True):
        if target is None:
            assert file is not None
            rows.append(read_rows(file))
            continue
        one = measure_target(target, inputs, departure, console)
        rows.append(one.rows)
        if one.interrupted:
            console.say(f"interrupted: {len(one.rows.rows)} prompts of {target.name} are in {one.folder}")
            raise typer.Exit(130)
    from grpo_kit.measure.compare import compare_measurements
    from grpo_kit.measure.lines import comparison_lines

    for line in comparison_lines(compare_measurements(*rows), a, b):
        console.say(line)


def _writable(new: Path) -> None:
    """Raises RecipeError where a new file cannot be put there: better now than after everything is sampled."""
    if new.exists():
        raise RecipeError(f"{new}: is there already; name a new file")
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        new.touch()
        new.unlink()
    except OSError as error:
        raise RecipeError(f"{new}: cannot be written ({error.strerror}); name a file where you may write") from None


def _one_process() -> None:
    if count() > 1:
        raise RecipeError("preflight, eval and compare are for one process; leave out the launcher")


def _rows_file(text: str) -> Path | None:
    """The rows that a measurement or a preflight wrote, where a text names them. Raises RecipeError."""
    path = Path(text)
    if path.suffix == ".jsonl" and not path.is_file():
        raise RecipeError(f"{text}: no such file; eval writes a rows.jsonl")
    file = path if path.suffix == ".jsonl" else path / "rows.jsonl"
    return file if file.is_file() else None


def _asked(
    target: "Target",
    recipe: Path | None,
    dataset: str | None,
    overrides: list[str] | None,
    samples: int | None,
    greedy: bool,
    temperature: float | None,
) -> tuple["Inputs", "Departure"]:
    """How targets are asked: everything that is needed but the weights, and how the sampling departs from training."""
    if greedy and (samples or temperature is not None):
        raise RecipeError("--greedy: has one completion of each prompt and no temperature; leave out the other option")
    from grpo_kit.measure.targets import recipe_for
    from grpo_kit.memory.heap import give_memory_back
    from grpo_kit.prepare.inputs import load_inputs

    inputs = load_inputs(recipe_for(target, recipe, dataset, overrides or []), Path("runs"))
    give_memory_back()
    from grpo_kit.measure.measure import Departure

    return inputs, Departure(samples, greedy, temperature)
