"""No shipped recipe rots: each is checked as far as that goes here, with stand-ins for the hub's model and rows."""

import json
import re
from pathlib import Path

import pytest
from random_model import save_random_model

from grpo_kit.data.sources import is_local
from grpo_kit.prepare.prepare import prepare
from grpo_kit.recipe.recipe import load_recipe

ROOT = Path(__file__).parents[1]
RECIPES = sorted((ROOT / "recipes").glob("*.yaml"))

GSM8K = {"question": "Tom has {} apples and buys 3. How many?", "answer": "He has {0} + 3 = {0}3.\n#### {0}"}
MATH = {"problem": "What is $2^{{{}}}$?", "solution": r"It is $\boxed{{2^{{{0}}}}}$.", "answer": "2^{{{}}}"}


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory):
    """A tiny model with room for long answers, and local rows with the columns of the hub's data sets."""
    folder = tmp_path_factory.mktemp("hub")
    model = save_random_model(folder / "model")
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 8192}))
    for name, shape, start in (
        ("gsm8k", GSM8K, 0),
        ("math", MATH, 0),
        ("gsm8k_test", GSM8K, 500),
        ("math_test", MATH, 500),
    ):
        rows = [{key: text.format(start + i) for key, text in shape.items()} for i in range(40)]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_is_prepared_with_its_own_settings(path, stand_ins, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    recipe = load_recipe(path)
    overrides = [] if recipe.model.startswith("builtin:") else [f"model={stand_ins / 'model'}"]
    overrides += ["grpo.use_vllm=false"] if recipe.grpo.get("use_vllm") else []  # test_vllm_rules.py looks at that
    if not is_local(recipe, recipe.dataset):
        kind = "gsm8k" if "gsm8k" in recipe.dataset.path else "math"
        kept = {
            k: v for k, v in recipe.dataset.model_dump().items() if k not in ("path", "name", "split") and v is not None
        }
        held = recipe.eval_dataset.model_dump()
        held = {k: v for k, v in held.items() if k not in ("path", "name", "split")}
        overrides.append(f"dataset={json.dumps({**kept, 'path': f'{stand_ins}/{kind}.jsonl'})}")
        overrides.append(f"eval_dataset={json.dumps({**held, 'path': f'{stand_ins}/{kind}_test.jsonl'})}")
    prepared = prepare(load_recipe(path, overrides))
    assert prepared.plan.steps > 0
    assert prepared.eval_data is not None
    assert not prepared.data.unusable
    assert "{" not in prepared.data.rows[0]["prompt"][-1]["content"].replace("\\boxed{}", "").replace("^{", "")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_shipped_recipe_says_what_it_is_for_needs_and_gives(path):
    head = path.read_text(encoding="utf-8").split("\nmodel:")[0]
    for word in ("What for:", "Needs:", "Expected:"):
        assert re.search(rf"^# {word}", head, flags=re.MULTILINE), word
    expected = head.split("Expected:")[1]
    assert "not yet measured" in expected or re.search(r"\d\.\d+ -> \d\.\d+", expected)


def test_every_gsm8k_answer_is_read_by_the_recipes_pattern(stand_ins, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    overrides = [
        f"dataset.path={stand_ins}/gsm8k.jsonl",
        "dataset.split=null",
        "dataset.name=null",
        "eval_dataset=null",
    ]
    prepared = prepare(load_recipe(ROOT / "recipes" / "math.yaml", [*overrides, f"model={stand_ins / 'model'}"]))
    assert [row["answer"] for row in prepared.data.rows[:3]] == ["0", "1", "2"]
