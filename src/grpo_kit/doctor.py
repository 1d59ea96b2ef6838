"""`grpo-kit doctor`: what is wrong with a run, going on or ended, ours or a plain TRL trainer's."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpo_kit.diagnosis.diagnose import diagnose
from grpo_kit.diagnosis.findings import Facts, Finding, Metrics
from grpo_kit.errors import RecipeError
from grpo_kit.recipe import Recipe, load_recipe
from grpo_kit.rewards import load_rewards
from grpo_kit.run_dir import RunDir, find_run

STATE = "trainer_state.json"


def examine(text: str) -> tuple[list[Metrics], list[Finding]]:
    """The steps of a run, and what is wrong at their end.

    A run is named by its directory or its recipe's name; a plain TRL one by its trainer_state.json, or a folder that
    holds one. Raises RecipeError where there is nothing to read.
    """
    state = _trainer_state(Path(text))
    if state is not None:
        history = _log_history(state)
        facts = _facts_of_keys(history)
    else:
        run = find_run(text)
        history = [record for record in run.lines("metrics.jsonl") if isinstance(record.get("step"), int)]
        if not history:
            raise RecipeError(f"{run.path}: has no steps in metrics.jsonl yet")
        facts = _facts_of_run(run)
    return history, diagnose(history, facts)


def examination_lines(history: Sequence[Metrics], found: Sequence[Finding]) -> Iterator[str]:
    """What was looked at, and each finding in a few lines."""
    last = history[-1]
    shown = {"reward": "reward", "kit/accuracy": "accuracy", "grad_norm": "grad norm"}
    now = "  ".join(f"{name} {last[key]:.3g}" for key, name in shown.items() if isinstance(last.get(key), int | float))
    yield f"steps        {len(history)}, the last is {last['step']}  {now}"
    if not found:
        yield "nothing wrong is seen; what cannot be: whether the reward means what it should (grpo-kit rewards test)"
    for finding in found:
        yield f"finding      {finding.name}, since step {finding.since}"
        yield f"  seen       {finding.evidence}"
        yield f"  why        {finding.cause}"
        yield f"  change     {finding.change}"


def _trainer_state(path: Path) -> Path | None:
    """The trainer's state that a path names; of a folder with checkpoints the newest one's. A run of ours has none."""
    if path.is_file():
        if path.name != STATE:
            raise RecipeError(f"{path}: name a run, or a {STATE}")
        return path
    if (path / "recipe.yaml").is_file() or not path.is_dir():
        return None
    found = [path / STATE, *sorted(path.glob(f"checkpoint-*/{STATE}"), key=lambda file: file.stat().st_mtime)]
    return next((file for file in reversed(found) if file.is_file()), None)


def _log_history(file: Path) -> list[Metrics]:
    try:
        entries = json.loads(file.read_text(encoding="utf-8"))["log_history"]
        history = [entry for entry in entries if "loss" in entry and isinstance(entry["step"], int)]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RecipeError(f"{file}: cannot be read as a trainer's state ({type(error).__name__})") from None
    if not history:
        raise RecipeError(f"{file}: has no logged steps")
    return history


def _facts_of_keys(history: Sequence[Metrics]) -> Facts:
    """What the keys of a plain TRL log say: the names of its rewards, and the longest completion."""
    labels = {key.split("/")[1] for metrics in history for key in metrics if key.startswith("rewards/")}
    longest = max((int(metrics.get("completions/max_length") or 0) for metrics in history), default=0)
    return Facts(longest, dict.fromkeys(sorted(labels), 1.0))


def _facts_of_run(run: RunDir) -> Facts:
    recipe = load_recipe(run.path)
    args: Mapping[str, Any] = run.read("grpo_config.json") or {}
    weights = {label: section.weight for label, section in recipe.rewards.items() if section.weight}
    tokens = int(args.get("max_completion_length") or 0)
    return Facts(tokens, _full_marks(recipe), recipe.goal_label, weights, args.get("loss_type"))


def _full_marks(recipe: Recipe) -> dict[str, float]:
    """Of each reward that counts; the usual 1.0 where its file cannot be imported any more."""
    try:
        return {reward.label: reward.full_marks for reward in load_rewards(recipe) if reward.weight}
    except RecipeError:
        return {label: 1.0 for label, section in recipe.rewards.items() if section.weight}
