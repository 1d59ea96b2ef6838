"""`grpo-kit doctor`: what is wrong with a run, going on or ended, ours or a plain TRL trainer's."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_kit.console import finding_lines
from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.findings import FLAT, Facts, Finding, facts_of_settings
from grpo_kit.diagnosis.history import STEPS, History, number
from grpo_kit.diagnosis.notes import notes
from grpo_kit.errors import RecipeError
from grpo_kit.recipe.file import is_file
from grpo_kit.recipe.recipe import Recipe, load_recipe
from grpo_kit.run.browse import telling_completions
from grpo_kit.run.checkpoint import checkpoint_before
from grpo_kit.run.run_dir import RunDir, find_run
from grpo_kit.stats import ROUNDING

STATE = "trainer_state.json"

FLAT_BY_INFERENCE = (
    "the log has no frac_reward_zero_std; reward_std and grad_norm are 0 in every step, so every group is taken to be "
    "flat"
)


@dataclass(frozen=True)
class Examination:
    """A run that was looked at: `last` are the metrics of its last step, `run` is None where it is not one of ours."""

    history: History
    facts: Facts
    found: list[Finding]
    last: Mapping[str, Any]
    run: RunDir | None
    inferred: str | None = None
    "What is taken to be so because a plain log does not say it."


def examine(text: str) -> Examination:
    """Look at a run and at what is wrong at its end.

    A run is named by its directory or its recipe's name; a plain TRL one by its trainer_state.json, or a folder that
    holds one. Raises RecipeError where there is nothing to read.
    """
    state, inferred = _trainer_state(Path(text)), None
    if state is not None:
        entries = _log_history(state)
        steps = [entry for entry in entries if "loss" in entry]
        if (other := _other_trainer(steps)) is not None:
            raise RecipeError(f"{state}: logs no rewards, so it is not of a GRPO run{other}")
        steps = [_with_todays_names(entry) for entry in steps]
        if _flat_throughout(steps):
            inferred, steps = FLAT_BY_INFERENCE, [{**entry, FLAT[-1]: 1.0} for entry in steps]
        history = History(steps, [entry for entry in entries if "eval_reward" in entry])
        facts, run = _facts_of_log(history), None
    else:
        run = find_run(text)
        steps = list(run.steps())
        history = History(steps, run.own_evaluations())
        facts = _facts_of_run(run)
    if not steps and not facts.ended:
        raise RecipeError(f"{state or (run and run.path)}: has no steps yet")
    return Examination(history, facts, diagnose(history, facts), steps[-1] if steps else {}, run, inferred)


def examination_lines(seen: Examination) -> Iterator[str]:
    """What was looked at, each finding in a few lines, and what could not be seen."""
    shown = {"reward": "reward", "kit/accuracy": "accuracy", "grad_norm": "grad norm"}
    last = {name: seen.last.get(key) for key, name in shown.items()}
    now = "  ".join(f"{k} {own:.3g}" for k, own in last.items() if isinstance(own, float) or number(own) is not None)
    steps = seen.history.steps
    yield f"steps        {len(steps)}{f', the last is {steps[-1]}' if steps else ''}  {now}".rstrip()
    if seen.facts.ended:
        yield f"ended        {seen.facts.ended}"
    if not seen.found:
        yield "nothing wrong is seen; what cannot be: whether the reward means what it should (grpo-kit rewards test)"
    for finding in seen.found:
        yield from finding_lines(finding, telling_completions(seen.run, finding, seen.facts) if seen.run else ())
        if seen.run is not None and (good := checkpoint_before(seen.run, finding.since)) is not None:
            yield f"  before it  {good}"
    for note in [*([seen.inferred] if seen.inferred else []), *notes(seen.history, seen.facts)]:
        yield f"note         {note}"


def _trainer_state(path: Path) -> Path | None:
    """The trainer's state that a path names; of a folder that of the latest step. A run of ours has none."""
    if is_file(path):
        if path.name == STATE:
            return path
        if path.suffix in (".yaml", ".yml"):
            return None
        raise RecipeError(f"{path}: name a run, or a {STATE}")
    if is_file(path / "recipe.yaml") or not os.path.isdir(path):  # unlike Path's, for any text
        return None
    there = [file for file in (*sorted(path.glob(f"checkpoint-*/{STATE}")), path / STATE) if is_file(file)]
    if len(there) < 2:
        return there[0] if there else None
    return max(reversed(there), key=_step_of_state)


def _step_of_state(file: Path) -> int:
    """Its `global_step`; -1 where it cannot be read."""
    try:
        step = json.loads(file.read_text(encoding="utf-8"))["global_step"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return -1
    return step if type(step) is int else -1


def _log_history(file: Path) -> list[dict[str, Any]]:
    """The entries of a trainer's log that are of a step."""
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["log_history"]
        entries = [entry for entry in entries if isinstance(entry, dict) and type(entry.get("step")) is int]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise RecipeError(f"{file}: cannot be read as a trainer's state ({type(error).__name__})") from None
    if not any("loss" in entry for entry in entries):
        raise RecipeError(f"{file}: has no logged steps")
    return entries


def _other_trainer(steps: list[dict[str, Any]]) -> str | None:
    """Of a log that is not GRPO's, what it looks like, or nothing; None for GRPO's."""
    keys = {key for entry in steps for key in entry}
    if {"rewards/chosen", "rewards/rejected"} <= keys:
        return f": rewards/chosen and rewards/rejected are {'DPO' if 'rewards/accuracies' in keys else 'KTO'}'s"
    scored = any(key.startswith("rewards/") for key in keys)
    if scored or {"reward", "reward_std"} <= keys:
        return None
    return ": mean_token_accuracy is SFT's" if "mean_token_accuracy" in keys else ""


def _with_todays_names(entry: dict[str, Any]) -> dict[str, Any]:
    """TRL called a reward's mean `rewards/NAME` before it logged a spread beside it."""
    old = [key for key in entry if key.startswith("rewards/") and key.count("/") == 1]
    return {**entry, **{f"{key}/mean": entry[key] for key in old}} if old else entry


def _flat_throughout(steps: list[dict[str, Any]]) -> bool:
    """Whether a log without a flat share can only be of flat groups: conservative, so every step must say so."""

    def nothing(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < ROUNDING

    told = any(key in entry for entry in steps for key in FLAT)
    return not told and len(steps) >= STEPS and all(
        nothing(entry.get("reward_std")) and nothing(entry.get("grad_norm")) for entry in steps
    )  # fmt: skip


def _facts_of_log(history: History) -> Facts:
    """What a plain TRL log says: its rewards, the longest completion, and whether its steps are scaled as fp16's are.

    Weights are not logged: they are taken to be 1 where the rewards then add up to the total. The goal is the only
    reward there is, or the one with "accuracy" in its name. A norm that is finite again after one that was not belongs
    to a step that was left out, as fp16's loss scaling does; else the weights were lost.
    """
    labels = sorted({key.split("/")[1] for key in history.columns if key.startswith("rewards/")})
    longest = max(history.column("completions/max_length").values, default=0.0)
    total = history.column("reward").values[-1:]
    parts = [value for label in labels for value in history.column(f"rewards/{label}/mean").values[-1:]]
    weights = dict.fromkeys(labels, 1.0) if total and abs(sum(parts) - total[0]) < 0.01 else {}
    named = [label for label in labels if "accuracy" in label] if len(labels) > 1 else labels
    marks = dict.fromkeys(labels, 1.0)
    goal = named[0] if len(named) == 1 and weights else None
    lost = bool(history.broken) and history.broken[-1][0] == history.steps[-1]
    return Facts(int(longest), marks, goal, weights, fp16=not lost)


def _facts_of_run(run: RunDir) -> Facts:
    recipe = load_recipe(run.path)
    settings, summary = run.read("grpo_config.json"), run.read("summary.json")
    end = summary if isinstance(summary, dict) else {}
    return facts_of_settings(
        settings if isinstance(settings, dict) else {},
        _full_marks(run, recipe),
        goal=recipe.goal_label,
        weights={label: section.weight for label, section in recipe.rewards.items() if section.weight},
        gates={label: section.only_if for label, section in recipe.rewards.items() if section.only_if},
        lora=recipe.lora is not None,
        held_out=recipe.eval_dataset is not None,
        ended=str(end["reason"]) if end.get("status") == "failed" and end.get("reason") else None,
    )


def _full_marks(run: RunDir, recipe: Recipe) -> dict[str, float]:
    """Of each reward that counts, as its run noted them: the file of a reward is code, and not for a doctor to run."""
    noted = (run.read("provenance.json") or {}).get("full_marks")
    marks = {k: own for k, own in noted.items() if type(own) in (int, float)} if isinstance(noted, dict) else {}
    counted = [label for label, section in recipe.rewards.items() if section.weight]
    return {label: float(marks.get(label, 1.0)) for label in counted}
