"""What a preflight foretold, beside what the run that followed came to."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

from grpo_kit.prepare.prepare import Prepared
from grpo_kit.run.own_recipe import resolved_recipe

FOLDER = Path("preflight")
"""Where preflights are, one folder each."""

SAME = ("model", "thinking", "dataset", "rewards", "lora", "fast", "dynamic_sampling")
SAME_GRPO = (
    "per_device_train_batch_size", "gradient_accumulation_steps", "steps_per_generation", "num_iterations",
    "num_generations", "max_completion_length", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "generation_kwargs", "loss_type", "beta",
)  # fmt: skip
"""Keys that decide what the first steps meet and take: where one is another, a preflight foretells nothing."""

FIRST = 3
"""Steps that a prediction from the untrained model can be held to: soon it is not untrained any more."""


def matching_preflight(prepared: Prepared) -> dict[str, Any] | None:
    """The newest preflight here that was made with what decides this run's first steps; None where there is none."""
    wanted = _deciding(resolved_recipe(prepared))
    files = sorted(FOLDER.glob("*/preflight.json"), key=lambda path: path.stat().st_mtime, reverse=True)
    for file in files:
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            if found["cost"] is not None and _deciding(found["recipe"]) == wanted:
                return dict(found)
        except (ValueError, KeyError, TypeError, OSError):
            continue  # not whole, or not one of ours
    return None


def _deciding(recipe: dict[str, Any]) -> str:
    """As text, because what was read from JSON has lists for tuples."""
    grpo = recipe.get("grpo") or {}
    picked = {**{key: recipe.get(key) for key in SAME}, "grpo": {key: grpo.get(key) for key in SAME_GRPO}}
    return json.dumps(picked, sort_keys=True, default=str)


def score_prediction(foretold: dict[str, Any], metrics: list[dict[str, Any]]) -> dict[str, Any]:
    """Predicted and actual: shares over the first FIRST steps, the seconds of a step on average, the first left out."""

    def actual(key: str) -> float | None:
        values = [record[key] for record in metrics if record["step"] <= FIRST and record.get(key) is not None]
        return fmean(values) if values else None

    seconds = [record["kit/seconds/step"] for record in metrics if record.get("kit/seconds/step") is not None]
    warm = seconds[1:] or seconds
    return {
        "flat_group_share": _both(foretold["difficulty"]["flat"]["share"], actual("kit/flat_group_share")),
        "truncated_share": _both(foretold["difficulty"]["truncated_share"], actual("kit/truncated_share")),
        "seconds_per_step": _both(foretold["cost"]["step_s"], fmean(warm) if warm else None),
    }


def _both(predicted: float, actual: float | None) -> dict[str, float | None]:
    return {"predicted": predicted, "actual": actual}
