"""`grpo-kit eval`: a model's accuracy on held-out rows, sampled as its run sampled, or as one asks."""

import copy
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from grpo_kit.console import Console
from grpo_kit.errors import RecipeError
from grpo_kit.evaluation.difficulty import Difficulty, difficulty_of
from grpo_kit.evaluation.evaluate import Evaluation, summarise_rows
from grpo_kit.evaluation.judged import Task, held_out_task
from grpo_kit.evaluation.row_records import Measurement, read_rows
from grpo_kit.measure.sampler import Sampler
from grpo_kit.measure.targets import Target, load_target
from grpo_kit.model.generate import most_likely
from grpo_kit.prepare.inputs import Inputs
from grpo_kit.run.damage import refuse_links
from grpo_kit.run.run_dir import RunDir, new_folder

FOLDER = Path("evals")
"""Where the measurements of models that belong to no run are kept."""


@dataclass(frozen=True)
class Departure:
    """How an evaluation samples, where not as training does."""

    samples: int | None = None
    greedy: bool = False
    temperature: float | None = None

    def describe(self, inputs: Inputs) -> str:
        """The sampling parameters in force, and which of them are not those of training."""
        args = inputs.args
        if self.greedy:
            return f"greedy, one completion each (training: temperature {args.temperature:g})"
        samples = self.samples or inputs.recipe.evaluation.samples
        temperature = args.temperature if self.temperature is None else self.temperature
        other = "" if self.temperature is None else f" (training: {args.temperature:g})"
        return f"{samples} completions each at temperature {temperature:g}{other}, top_p {args.top_p:g}"


@dataclass(frozen=True)
class Measured:
    """One measurement: `rows` as they were written; `interrupted` where it is of a part of the rows."""

    target: Target
    evaluation: Evaluation
    difficulty: Difficulty
    rows: Measurement
    folder: Path
    speed: str
    interrupted: bool


def measure_target(target: Target, inputs: Inputs, departure: Departure, console: Console) -> Measured:
    """Sample a target on the held-out rows, and keep what came of it.

    A record goes to the `eval.jsonl` of the run, or of `./evals/`; prompts and completions to a folder beside it.
    Ctrl-C keeps what was sampled so far. Raises RecipeError where there are no rows to measure on.
    """
    task = task_for(target, inputs, departure)
    home = RunDir(target.run.path if target.run is not None else FOLDER)
    refuse_links(home, ("eval.jsonl", "evals"))
    model = load_target(target, inputs)
    parent = home.path / "evals" if target.run is not None else FOLDER
    folder = RunDir(new_folder(parent, _slug(target, departure)))
    sampler = Sampler(model, inputs, console)
    judged = sampler.judge(task, target.name, folder)
    evaluation = summarise_rows(task, judged)
    difficulty = difficulty_of(judged, inputs.rewards, inputs.goal, inputs.args.num_generations or 1)
    home.append(
        "eval.jsonl",
        {
            **evaluation.record(),
            "target": target.name,
            "sampling": departure.describe(inputs),
            "pass_at": difficulty.pass_at,
            "rows": str(folder.path / "rows.jsonl"),
            "interrupted": sampler.interrupted,
        },
    )
    rows = read_rows(folder.path / "rows.jsonl")
    return Measured(target, evaluation, difficulty, rows, folder.path, sampler.speed(), sampler.interrupted)


def task_for(target: Target, inputs: Inputs, departure: Departure) -> Task:
    """The held-out rows of the inputs; a recipe that was made for a data set alone has them as its training rows."""
    data = inputs.eval_data
    if data is None and inputs.recipe.source == Path("--dataset"):
        data = inputs.data
    if data is None:
        raise RecipeError(f"{inputs.recipe.source}: has no eval_dataset to measure on; name rows with --dataset")
    task = held_out_task(inputs, data, target.step)
    return replace(task, **sampling_of(task, departure))


def sampling_of(task: Task, departure: Departure) -> dict[str, Any]:
    """What of a task a departure replaces."""
    config, samples = copy.deepcopy(task.config), departure.samples or task.samples
    if departure.greedy:
        config, samples = most_likely(config), 1
    elif departure.temperature is not None:
        config.temperature = departure.temperature
    at_once = max(task.prompts_at_once * task.samples // samples, 1)
    return {"config": config, "samples": samples, "prompts_at_once": at_once}


def _slug(target: Target, departure: Departure) -> str:
    """A folder's name for a measurement."""
    last = Path(target.name).name if target.run is not None else target.name
    name = re.sub(r"[^\w.-]+", "-", last).strip("-.") or "model"
    return name + ("-greedy" if departure.greedy else "")
