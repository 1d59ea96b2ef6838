"""What can be measured: a run, a checkpoint, a folder, an adapter, a hub id, or the base model of a recipe."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_kit.errors import RecipeError, first_line
from grpo_kit.model.model import HUB_ID, is_adapter, load_model, load_trained
from grpo_kit.prepare.inputs import Inputs
from grpo_kit.recipe.file import is_file
from grpo_kit.recipe.recipe import Recipe, load_recipe, recipe_of
from grpo_kit.run.checkpoint import BEST, MEASURED, checkpoints_of, damaged_weights, newest_checkpoint
from grpo_kit.run.run_dir import RUNS, RunDir, find_run, runs_called

BASE = "base"
"""The word for the untrained model of the recipe."""


@dataclass(frozen=True)
class Target:
    """A model to measure: `weights` is a folder or hub id, None for the recipe's untrained model.

    `run` is the run that it belongs to, and `step` the step after which it was written.
    """

    name: str
    weights: str | None
    run: RunDir | None = None
    step: int = 0


def find_target(text: str) -> Target:
    """The target that a text names: first what is there as a folder, then a run's name, then a hub id.

    Raises RecipeError.
    """
    folder, text = Path(text), text.rstrip("/")
    if text == BASE:
        return Target(BASE, None)
    if is_file(folder / "recipe.yaml"):
        return _of_run(RunDir(folder))
    if folder.is_dir():
        return _of_folder(folder)
    if runs_called(Path(text).stem if text.endswith((".yaml", ".yml")) else text):
        return _of_run(find_run(text))
    if "/" not in text or not HUB_ID.fullmatch(text):
        have = ", ".join(sorted(path.name for path in RUNS.glob("*"))) or "none"
        raise RecipeError(f"{text}: no run, folder or hub id OWNER/NAME (runs here: {have})")
    return Target(text, text)


def checkpoint_targets(target: Target) -> list[Target]:
    """Every checkpoint of a run, the oldest first. Raises RecipeError where there is none."""
    if target.run is None:
        raise RecipeError(f"{target.name}: is no run, so it has no checkpoints")
    found = checkpoints_of(target.run)
    if not found:
        raise RecipeError(f"{target.run.path}: has no checkpoints; grpo.save_steps says when one is written")
    return [_of_folder(path) for path in found]


def _of_run(run: RunDir) -> Target:
    if run.final.is_dir() and not damaged_weights(run.final):
        return _of_folder(run.final)
    checkpoint, _ = newest_checkpoint(run)
    if checkpoint is None:
        raise RecipeError(f"{run.path}: has neither final/ nor a checkpoint to measure")
    return _of_folder(checkpoint)


def _of_folder(folder: Path) -> Target:
    if not (is_file(folder / "config.json") or is_file(folder / "adapter_config.json")):
        raise RecipeError(f"{folder}: has no config.json and no adapter_config.json, so it is no model, and no run")
    damaged = damaged_weights(folder)
    if damaged:
        raise RecipeError(f"{folder}: cannot be measured, {damaged}")
    around = [*folder.parents, *folder.absolute().parents]
    run = next((RunDir(parent) for parent in around if is_file(parent / "provenance.json")), None)
    return Target(str(folder), str(folder), run, _step(folder, run) if run is not None else 0)


def _step(folder: Path, run: RunDir) -> int:
    """After which step a folder of a run was written."""
    numbered = re.fullmatch(r"checkpoint-(\d+)", folder.name)
    if numbered:
        return int(numbered[1])
    if folder.name == BEST:
        return int((RunDir(folder).read_whole(MEASURED) or {"step": 0})["step"])
    steps = (run.read("summary.json") or {}).get("steps")
    return steps if type(steps) is int else 0


def recipe_for(target: Target, recipe: Path | None, dataset: str | None, overrides: list[str]) -> Recipe:
    """How a target is asked: by a named recipe, else by its own run's, else by accuracy on a named data set.

    A data set takes the place of the recipe's held-out rows. Raises RecipeError.
    """
    source = recipe or (target.run.path if target.run is not None else None)
    if source is not None:
        own = recipe is not None and target.weights is not None and not is_adapter(target.weights)
        model = [f"model={json.dumps(target.weights)}"] if own else []  # its tokenizer is with its weights
        rows = [] if dataset is None else [f"eval_dataset.path={json.dumps(dataset)}"]
        return load_recipe(source, [*model, *rows, *overrides])
    if target.weights is None:
        raise RecipeError(f"{BASE}: of which recipe? Name it with --recipe")
    if dataset is None:
        raise RecipeError(f"{target.name}: how is it to be asked? Name a recipe with --recipe, or rows with --dataset")
    tree: dict[str, Any] = {"model": _base_of(target.weights), "dataset": {"path": dataset}, "rewards": {"accuracy": 1}}
    return recipe_of(tree, {}, Path("--dataset"), overrides)


def _base_of(weights: str) -> str:
    """The model whose tokenizer and weights an adapter is for; of a model itself."""
    if not is_adapter(weights):
        return weights
    from peft import PeftConfig

    base = PeftConfig.from_pretrained(weights).base_model_name_or_path
    if not base:
        raise RecipeError(f"{weights}: an adapter that does not say of which model; name it with --recipe")
    return str(base)


def load_target(target: Target, inputs: Inputs) -> Any:
    """The model on its device, in the precision in which the recipe's run measured it. Raises RecipeError."""
    recipe, device = inputs.recipe, inputs.device
    init_kwargs = inputs.settings.from_recipe.get("model_init_kwargs") or {}
    if target.weights is None or target.weights == inputs.model_path:
        model: Any = load_model(recipe, inputs.model_path, device, init_kwargs)
    else:
        dtype = device.lora_base() if is_adapter(target.weights) else device.weights
        try:
            model = load_trained(target.weights, inputs.model_path, dtype)
        except Exception as error:  # of whatever type: not a model of this kind
            raise RecipeError(f"{target.name}: cannot be loaded, {first_line(error)}") from None
    return model.to(device.kind)
