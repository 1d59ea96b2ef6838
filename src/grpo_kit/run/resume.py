"""Where a run begins: in a directory of its own, or where it was interrupted, if it is still the same run."""

import shutil
from contextlib import suppress
from itertools import chain
from itertools import count as count_up
from pathlib import Path
from typing import Any

from grpo_kit.errors import RecipeError, RewardError
from grpo_kit.files.durable import recover, remove, sync, sync_one
from grpo_kit.files.lock import InUseError, Lock
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.recipe.plain_values import flat, plain
from grpo_kit.recipe.recipe import Recipe
from grpo_kit.recipe.secrets import HIDDEN
from grpo_kit.run.checkpoint import BEST, MEASURED, checkpoints_of, newest_checkpoint, step_of
from grpo_kit.run.damage import damage_of, lost_steps
from grpo_kit.run.disk import check_disk
from grpo_kit.run.own_recipe import resolved_recipe, write_recipe, written_recipe
from grpo_kit.run.prediction import matching_preflight
from grpo_kit.run.provenance import origin_of, provenance
from grpo_kit.run.run_dir import RunDir, never_begun, new_run, runs_called
from grpo_kit.run.shapes import LOGS

HARMLESS = ("dataset.path", "dataset.pass_rate_file", "eval_dataset.path", "samples", "eval_every", "stop_on",
            "grpo.logging_steps",
            "grpo.report_to", "grpo.save_steps", "grpo.save_strategy", "grpo.save_total_limit")  # fmt: skip
"""Keys that may change when a run goes on: they decide what is written, not what is learned; data go by content."""

MICRO_BATCH = ("grpo.per_device_train_batch_size", "grpo.gradient_accumulation_steps", "grpo.steps_per_generation")
"""Keys that may change together, where a step and a rollout then have as many completions as before."""

STEADY = ("constant", "constant_with_warmup")
"""Schedules whose learning rate does not depend on how many steps there will be."""


def open_run(prepared: Prepared, resume: bool, lock: Lock) -> tuple[RunDir, Path | None, list[str]]:
    """The run directory, the checkpoint to go on from, and what to tell the user about the choice.

    A new directory, or with `resume` the newest unfinished one of this recipe with its newest readable checkpoint.
    Raises RecipeError where that run was another one, is going on, or where none of its checkpoints can be read.
    """
    run = unfinished_run(prepared.recipe) if resume else None
    if run is None:
        check_disk(prepared.plan)
        new = place_for(prepared.recipe.run_name, lock)
        start_run(new, prepared)
        return new, None, ["nothing unfinished to resume, so a new run"] if resume else []
    lock.take(run.path)
    lost = damage_of(run)
    origin = provenance(prepared)
    settings = check_unchanged(run, prepared, origin)
    check_disk(prepared.plan, run)
    checkpoint, said = newest_checkpoint(run)
    done = step_of(checkpoint) if checkpoint else 0
    said = [*lost, *said, *lost_steps(run, done)]
    if done > prepared.plan.steps:
        raise prepared.recipe.error("grpo.max_steps", f"found {prepared.plan.steps}, but {run.path} is at step {done}")
    if checkpoint is None and run.final.is_dir():
        raise RecipeError(
            f"{run.path}: has no checkpoint to go on from (grpo.save_strategy, grpo.save_steps), and its model is in "
            "final/; leave out --resume to start a new run"
        )
    mended = take_over(run, prepared, origin, settings)
    set_aside(run, done)
    recover(run.path / BEST)
    for left in run.checkpoints.glob(".*"):  # of a checkpoint that was being written
        remove(left)
    before = {**ending_of(run), "wall_s": seconds_so_far(run)}
    for file in LOGS:
        run.cut_back(file, done)
    if (run.read_whole(f"{BEST}/{MEASURED}") or {"step": 0})["step"] > done:
        shutil.rmtree(run.path / BEST)
        said.append(f"best/ is of a step after {done}, which is done again, and removed")
    run.event("resumed", done, damaged=said, mended_rewards=mended, settings=settings, **before)
    (run.path / "summary.json").unlink(missing_ok=True)  # its ending is none any more,
    shutil.rmtree(run.final, ignore_errors=True)  # and its model not the run's last
    other = f", with other settings: {'; '.join(settings)}" if settings else ""
    return run, checkpoint, [*said, f"going on with {run.path} after step {done}{other}"]


def ending_of(run: RunDir) -> dict[str, Any]:
    """How the run ended before it is gone on with, as the event keeps it."""
    summary = run.read("summary.json") or {}
    return {f"ended_{key}": summary.get(key) for key in ("status", "reason", "steps") if summary.get(key) is not None}


def seconds_so_far(run: RunDir) -> float:
    """As its ending has it; where there is none, up to its last resume and those of the steps since then."""
    summary = run.read("summary.json") or {}
    if isinstance(recorded := summary.get("wall_s"), int | float):
        return float(recorded)
    resumed = [event for event in run.records("events.jsonl") if event["event"] == "resumed"]
    since, before = (resumed[-1]["step"], resumed[-1].get("wall_s")) if resumed else (0, None)
    spent = [step.get("kit/seconds/step") for step in run.records("metrics.jsonl") if step["step"] > since]
    return round((before or 0.0) + sum(own for own in spent if own), 1)


def place_for(name: str, lock: Lock) -> RunDir:
    """A new directory, or one in which a run was killed before it had begun."""
    for run in chain(never_begun(name), (new_run(name) for _ in count_up())):
        with suppress(InUseError):  # another process has just taken it
            lock.take(run.path)
            return run
    raise AssertionError("there is always another number")


def start_run(run: RunDir, prepared: Prepared) -> None:
    """Write all that is known before the first step; `recipe.yaml` last, so that with it the rest is there."""
    for left in (path for path in run.path.iterdir() if path.name != ".lock"):  # of a start that was killed
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    run.write("grpo_config.json", prepared.args.to_dict())
    origin = provenance(prepared)
    run.write("provenance.json", origin)
    run.write("data_fingerprint.json", origin["data"])
    for note in prepared.notes:
        run.event("warning", 0, message=note)
    if (foretold := matching_preflight(prepared)) is not None:
        run.write("preflight.json", foretold)
    write_recipe(run, prepared)
    sync(run.path)
    sync_one(run.path.parent)


def unfinished_run(recipe: Recipe) -> RunDir | None:
    """The run whose directory is the recipe, else the newest unfinished run of the recipe's name."""
    folder = recipe.source.parent
    is_run = recipe.source.name == "recipe.yaml" and (folder / "provenance.json").is_file()
    runs = [RunDir(folder)] if is_run else runs_called(recipe.run_name)
    started = (run for run in runs if (run.path / "recipe.yaml").is_file())
    return next((run for run in started if (run.read("summary.json") or {}).get("status") != "done"), None)


def check_unchanged(run: RunDir, prepared: Prepared, new: dict[str, Any]) -> list[str]:
    """A run that goes on must be the run that was started: same recipe, and by `new` same rewards, data and model.

    What differs and may. Raises RecipeError that names what must not: else the gain would be measured between two
    different things.
    """
    written, old = flat(written_recipe(run)), origin_of(run)
    if "settings" not in old:
        raise RecipeError(
            f"{run.path}: was started by an earlier version of grpo-kit, which did not note its settings; leave out "
            "--resume to start a new run"
        )
    before = {key: written.get(key) if HIDDEN in str(value) else value for key, value in old["settings"].items()}
    now = flat(plain(resolved_recipe(prepared)))
    differ = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)} - {"name"}
    harmless = may_change(prepared, before, now)
    if all(isinstance(origin["model"].get("sha256"), dict) for origin in (old, new)):
        harmless.add("model")  # a folder goes by content
    said = {key: f"{key} ({_shown(before.get(key))} -> {_shown(now.get(key))})" for key in sorted(differ)}
    changed = [text for key, text in said.items() if key not in harmless]
    order = list(dict.fromkeys(key.split(".")[1] for key in before if key.startswith("rewards.")))
    if order != list(prepared.recipe.rewards) and not changed:
        changed.append(f"the order of the rewards ({', '.join(order)})")  # sums round by it
    if not failed_in_reward(run):  # else the file had to be mended
        other = [k for k in new["rewards"] if old["rewards"].get(k) != new["rewards"][k]]
        changed += [f"the file of reward {label}" for label in other]
    changed += [f"the content of {what}" for what in ("data", "model") if _hashes(old[what]) != _hashes(new[what])]
    if old.get("processes", 1) != new["processes"]:
        changed.append(f"the number of processes ({old.get('processes', 1)} -> {new['processes']})")
    if changed:
        raise RecipeError(
            f"{run.path}: was started differently and cannot go on with other settings: {'; '.join(changed)}; "
            "undo the change, or leave out --resume to start a new run"
        )
    return [*said.values()]


def may_change(prepared: Prepared, before: dict[str, Any], now: dict[str, Any]) -> set[str]:
    """Keys of a resolved recipe whose change leaves the run the same."""
    args = prepared.args
    keys = {*HARMLESS, *(f"rewards.{reward.label}.file" for reward in prepared.rewards)}  # files go by content
    if args.lr_scheduler_type in STEADY and not 0 < args.warmup_steps < 1:  # else the warmup is a share of them
        keys.add("grpo.max_steps")
    if _completions(before) == _completions(now) and args.loss_type != "bnpo":  # it averages over each
        keys.update(MICRO_BATCH)
    return keys


def failed_in_reward(run: RunDir) -> bool:
    """Whether a reward that broke its contract ended the run."""
    return str((run.read("summary.json") or {}).get("reason", "")).startswith(RewardError.__name__)


def take_over(run: RunDir, prepared: Prepared, new: dict[str, Any], settings: list[str]) -> list[str]:
    """Make the run's recipe and its rewards those that it goes on with; the labels of rewards that were mended."""
    before = origin_of(run)
    mended = [label for label, digest in new["rewards"].items() if before["rewards"].get(label) != digest]
    copies = run.path / "rewards"
    if mended and not any(reward.path.is_relative_to(copies.resolve()) for reward in prepared.rewards):
        shutil.rmtree(copies, ignore_errors=True)
    write_recipe(run, prepared)  # it might have been edited meanwhile, and others go by it
    if mended or settings:
        run.write("grpo_config.json", prepared.args.to_dict())
        run.write("provenance.json", {**before, **{key: new[key] for key in ("settings", "rewards", "full_marks")}})
    return mended


def set_aside(run: RunDir, step: int) -> None:
    """Rename what was passed over, damaged as it is: rotation would keep it as the newest, and drop what is whole."""
    for path in checkpoints_of(run):
        if step_of(path) > step:
            aside = path.with_name(f"damaged-{step_of(path)}")
            shutil.rmtree(aside, ignore_errors=True)
            path.rename(aside)


def _hashes(record: Any) -> Any:
    """The SHA-256 sums of a provenance record, wherever they stand in it; paths may have moved."""
    if not isinstance(record, dict):
        return None
    return {key: record["sha256"] if key == "sha256" else _hashes(value) for key, value in record.items()}


def _completions(settings: dict[str, Any]) -> tuple[int, int] | None:
    """How many a step and a rollout of one process have; None where the recipe leaves it to the trainer."""
    rows, steps, per_rollout = (settings.get(key) for key in MICRO_BATCH)
    if type(rows) is not int or type(steps) is not int or type(per_rollout or 1) is not int:
        return None
    return rows * steps, rows * (per_rollout or steps)


def _shown(value: Any) -> str:
    """A setting as it is written: a number of steps is a float to transformers."""
    return repr(int(value)) if isinstance(value, float) and value.is_integer() else repr(value)
