"""Ask a trained model a question, with the prompt and the sampling parameters of its recipe."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from grpo_kit.data.chat import load_chat
from grpo_kit.data.data import Template
from grpo_kit.device import find_device
from grpo_kit.errors import RecipeError
from grpo_kit.hub import use_cache_if_unreachable
from grpo_kit.measure.targets import find_target
from grpo_kit.model.generate import most_likely, sample_batch, sampling_config
from grpo_kit.model.model import find_model, load_trained
from grpo_kit.prepare.trl_args import build_args, check_settings
from grpo_kit.recipe.file import read_yaml
from grpo_kit.recipe.recipe import Recipe, load_recipe
from grpo_kit.run.run_dir import RunDir


def ask_model(run: RunDir, question: str, *, greedy: bool = False) -> str:
    """The completion of one question as text. Uses `final/`, else the newest checkpoint. Raises RecipeError."""
    recipe = load_recipe(run.path)
    folder = find_target(str(run.path)).weights
    device = find_device()
    args = build_args(recipe, check_settings(recipe), device, Path(run.path))
    base = find_model(recipe)
    if not Path(base).is_dir():
        use_cache_if_unreachable()
    chat = load_chat(recipe, base)
    config = sampling_config(args, chat, args.max_completion_length or 0)
    model: Any = load_trained(str(folder), base)
    model.to(device.kind)
    row = {"prompt": question_messages(recipe, question)}
    plain = replace(device, autocast=None)  # the weights are in the dtype to use
    seed = torch.seed() % 2**32
    config = most_likely(config) if greedy else config
    [sampled] = sample_batch(model, chat, plain, [row], [0], config, samples=1, seed=seed)
    return chat.decode(sampled.completion_ids[0])


def question_messages(recipe: Recipe, question: str) -> list[dict[str, Any]]:
    """The recipe's prompt filled with a question: text, or a YAML mapping where the template has several columns."""
    try:
        question.encode()
    except UnicodeEncodeError:
        raise RecipeError(f"question {question!r}: is no UTF-8 text") from None
    section = recipe.dataset
    content = question
    if section.prompt is not None:
        template = Template(section.prompt)
        names = list(dict.fromkeys(template.names(())))
        values = {names[0]: question} if len(names) == 1 else _mapping(question, names)
        content = template.fill(values)
    system = [] if section.system is None else [{"role": "system", "content": section.system}]
    return [*system, {"role": "user", "content": content}]


def _mapping(question: str, names: list[str]) -> dict[str, Any]:
    example = "{" + ", ".join(f"{name}: ..." for name in names) + "}"
    why = ""
    try:
        values = read_yaml(question)
    except ValueError as error:
        values, why = None, f" ({error})"
    if not isinstance(values, dict) or set(values) != set(names):
        raise RecipeError(f"question {question!r}: the recipe's prompt has several columns; write '{example}'{why}")
    return values
