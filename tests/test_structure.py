"""The layout keeps its promises: dependencies point down, the command line is light, files stay small."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "grpo_kit"
FILES = sorted(SRC.rglob("*.py"))

LAYERS = [
    {"__main__"},
    {"cli"},
    {"cli_rewards", "cli_measure"},
    {"preflight"},
    {"train", "ask", "reward_tools"},
    {"measure", "doctor", "report"},
    {"run"},
    {"evaluation", "trainer"},
    {"prepare"},
    {"memory"},
    {"model"},
    {"data", "rewards"},
    {"recipe", "console", "device"},
    {"diagnosis", "files", "processes"},
    {"answers", "errors", "hub", "reference_loss", "shipped", "stats", "terminal", "__init__"},
]
"""The packages and modules of `grpo_kit`, top to bottom: each imports only from those below it."""


def layer_of(room: str) -> int:
    return next(level for level, names in enumerate(LAYERS) if room in names)


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SRC).with_suffix("").parts)


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
            root, _, module = node.module.partition(".")
            if root == "grpo_kit":
                found.add(module or "__init__")
    return found


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_dependencies_point_down(path):
    own = module_of(path).split(".")[0]
    for module in imports(path):
        room = module.split(".")[0]
        assert room == own or layer_of(room) > layer_of(own), f"{own} imports {module}"


def test_within_a_package_no_two_modules_need_each_other():
    TopologicalSorter({module_of(path): imports(path) for path in FILES}).prepare()  # raises CycleError


@pytest.mark.parametrize("path", FILES, ids=module_of)
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
