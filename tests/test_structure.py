"""The layout keeps its promises: dependencies point down, the command line is light, files stay small."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "grpo_kit"
FILES = sorted(SRC.rglob("*.py"))

LAYERS = [
    {"cli", "__main__"},
    {"cli_rewards", "cli_measure"},
    {"preflight_lines", "recipe_patch", "measure_lines"},
    {"preflight", "measure", "doctor"},
    {"train", "ask", "attack_model"},
    {"summary", "reward_tools", "report"},
    {"targets"},
    {"held_out", "sampler", "compare"},
    {
        "record",
        "browse",
        "evaluate",
        "provenance",
        "trainer",
        "dynamic_sampling",
        "fast_trainer",
        "checkpoint",
        "metrics",
        "preflight_advice",
        "row_records",
    },
    {"difficulty", "prediction"},
    {"console", "run_dir"},
    {"prepare", "judged", "out_of_memory"},
    {"inputs", "generate"},
    {"reward_checks", "gold_scan", "row_filters"},
    {"rollout"},
    {"scoring"},
    {
        "rewards",
        "reward_files",
        "data",
        "trl_args",
        "vllm_rules",
        "chat",
        "model",
        "memory",
        "memory_trace",
        "skeleton",
    },
    {"sources", "rows", "recipe", "device", "trl_rules"},
    {
        "jsonl",
        "plain_values",
        "durable",
        "lock",
        "recipe_file",
        "recipe_sections",
        "schema",
        "hub",
        "errors",
        "not_finite",
        "processes",
        "shipped",
        "stats",
        "answers",
        "reference_loss",
        "workers",
        "reward_call",
        "diagnosis",
        "forms",
        "decode",
        "live_bytes",
        "logps",
    },
]
"""Top to bottom; a module imports from its own layer or below."""


def layer_of(module: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if module in names)


def imports(path: Path) -> set[str]:
    """The grpo_kit modules that a file imports, at any depth of its code but not for type checking alone."""
    found = set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and id(node) not in skipped:
            parts = node.module.split(".")
            if parts[0] == "grpo_kit" and len(parts) > 1:
                found.add(parts[1])
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_dependencies_point_down(path):
    own = path.relative_to(SRC).parts[0].removesuffix(".py")
    if own == "__init__":
        assert not imports(path)
        return
    for module in imports(path):
        assert layer_of(module) >= layer_of(own), f"{own} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_files_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 60, node.name


def test_the_command_line_leaves_torch_alone():
    code = (
        "import sys, grpo_kit.cli; print([m for m in ('torch', 'transformers', 'trl', 'datasets') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
