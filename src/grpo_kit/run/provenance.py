"""Where a run came from: enough to tell two runs apart, and no secret of the environment."""

import hashlib
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

from grpo_kit import __version__
from grpo_kit.device import PACKAGES, environment
from grpo_kit.errors import RecipeError
from grpo_kit.prepare.prepare import Prepared
from grpo_kit.processes import count
from grpo_kit.recipe.plain_values import flat, plain
from grpo_kit.recipe.secrets import HIDDEN, without_environment, without_secrets
from grpo_kit.run.own_recipe import resolved_recipe
from grpo_kit.run.run_dir import RunDir

MAX_DIFF = 200_000

OF_A_MODEL = (".safetensors", ".json", ".jinja", ".txt", ".model")
"""Weights, configurations, vocabulary and chat template."""


def provenance(prepared: Prepared) -> dict[str, Any]:
    """Versions, code state, command line, machine, seed, settings, and hashes of model, data and rewards."""
    data = {"train": prepared.data.fingerprint()}
    if prepared.eval_data is not None:
        data["held_out"] = prepared.eval_data.fingerprint()
    return {
        "grpo_kit": __version__,
        "packages": {package: metadata.version(package) for package in (*PACKAGES, "numpy", "tokenizers", "pydantic")},
        "git": _git(prepared.recipe.source.resolve().parent),
        "argv": [without_environment(word) for word in sys.argv],
        "recipe": str(prepared.recipe.source.resolve()),
        "machine": dict(environment()),
        "processes": count(),
        "seed": prepared.recipe.seed,
        "model": {"path": prepared.model_path, "sha256": _model_hash(prepared.model_path)},
        "data": data,
        "rewards": {reward.label: _file_hash(reward.path) for reward in prepared.rewards},
        "full_marks": {reward.label: reward.full_marks for reward in prepared.rewards},
        "settings": settings_of(prepared),
    }


def settings_of(prepared: Prepared) -> dict[str, Any]:
    """The resolved recipe by dotted keys: what the run was started with, whatever becomes of its `recipe.yaml`."""
    tree = plain(resolved_recipe(prepared))
    shown = flat(without_secrets(tree))
    return {key: shown.get(key, HIDDEN) for key in flat(tree)}


def origin_of(run: RunDir) -> dict[str, Any]:
    """What its `provenance.json` holds. Raises RecipeError where that cannot be read."""
    origin = run.read_whole("provenance.json")
    if origin is None:
        raise RecipeError(
            f"{run.path / 'provenance.json'}: cannot be read, so nothing says whether rewards, data and model are the "
            "same; leave out --resume to start a new run"
        )
    return origin


def _git(folder: Path) -> dict[str, str] | None:
    """Commit and uncommitted changes of the repository that the recipe lies in, if it lies in one."""

    def git(*arguments: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout.decode(errors="replace") if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if commit is None:
        return None
    diff = without_environment(git("diff", "HEAD") or "")  # before it is cut: half a secret is no longer found
    return {"commit": commit.strip(), "diff": diff[:MAX_DIFF]}


def _model_hash(path: str) -> dict[str, str] | str:
    """SHA-256 of each file of a local model that it is made of; the cached commit of a hub model."""
    folder = Path(path)
    if folder.is_dir():
        return {file.name: _file_hash(file) for file in sorted(folder.iterdir()) if file.suffix in OF_A_MODEL}
    from transformers import AutoConfig

    return str(getattr(AutoConfig.from_pretrained(path, trust_remote_code=False), "_commit_hash", "unknown"))


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
