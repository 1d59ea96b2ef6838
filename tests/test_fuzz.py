"""Damaged recipes and data: the answer is a plan or one line, at once, and nothing is left behind."""

import copy
import json
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import yaml
from peft import LoraConfig
from trl import GRPOConfig

from grpo_kit.cli import main
from grpo_kit.errors import RecipeError
from grpo_kit.prepare.prepare import prepare
from grpo_kit.recipe.recipe import SECTIONS, keys_of, load_recipe

RECIPE: dict[str, Any] = {
    "model": "builtin:tiny",
    "dataset": {"path": "rows.jsonl", "prompt": "{question}", "limit": 8},
    "eval_dataset": {"path": "test.jsonl", "limit": 4},
    "evaluation": {"samples": 2},
    "rewards": {"accuracy": 1.0, "format": {"weight": 0.5, "style": "boxed"}},
    "grpo": {
        "max_steps": 4,
        "learning_rate": 1e-4,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "max_completion_length": 16,
    },
}

KEYS = {section: keys_of(section) for section in SECTIONS} | {
    "grpo": sorted(GRPOConfig.__dataclass_fields__),
    "lora": sorted(LoraConfig.__dataclass_fields__),
}

JUNK: list[Any] = [
    None, "", 0, -1, 1, 2, 3, 8, 64, 0.5, -0.1, 1e308, 1e-320, float("nan"), float("inf"), 10**30, 2**63, True, False,
    [], {}, [1], {"a": 1}, {"weight": 1}, [[[]]], "x" * 3000, "1e-6", "中文", "１２", "{", "{question", "{answer}",
    "{nope}", "../../etc/passwd", "/etc/passwd", "/dev/zero", "/", ".", "~", "\x00", "\x07", "\ud800", "a b", "on",
    "builtin:", "builtin:other", "http://x/y", "s3://b/c", "*", "rows.jsonl", "rewards", "{{7*7}}", "%s%n",
    "$(touch hurt)", "`id`", "a/b/c", "-", "--help", "!!python/object/apply:os.system [touch hurt]", "auto",
]  # fmt: skip

MARKS = "{}[]:-'\"#&*!|>%@`,\t\n \u3000：，\ufeff\u202e"

HANGS_AFTER_S = 60
MOST_OF_A_LINE = 1500


def places(tree: dict[Any, Any]) -> Iterator[tuple[dict[Any, Any], Any]]:
    """Every key of a tree, with the mapping that it is in."""
    for key, value in list(tree.items()):
        yield tree, key
        if isinstance(value, dict):
            yield from places(value)


def mutated(draw: random.Random) -> str:
    """The recipe with one to three faults: values, keys, sections, and now and then characters of its text."""
    tree = copy.deepcopy(RECIPE)
    for _ in range(draw.randint(1, 3)):
        mapping, key = draw.choice([*places(tree), (tree, "model")])
        kind = draw.choice(["value", "value", "remove", "rename", "key", "key", "elsewhere"])
        if kind == "value":
            mapping[key] = draw.choice(JUNK)
        elif kind == "remove":
            mapping.pop(key, None)
        elif kind == "rename":
            other = draw.choice(
                [str(key)[:-1], f"{key}s", str(key).upper(), str(draw.choice(JUNK))[:50], 7, None, True]
            )
            mapping[other] = mapping.pop(key, None)
        elif kind == "key":
            section = draw.choice(list(KEYS))
            home = tree if not section else tree.setdefault(section, {})
            if isinstance(home, dict):
                home[draw.choice(KEYS[section])] = draw.choice(JUNK)
        else:
            source, name = draw.choice([*places(tree), (tree, "model")])
            mapping[key] = copy.deepcopy(source.get(name))
    text = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False)
    return scratched(draw, text) if draw.random() < 0.15 else text


def scratched(draw: random.Random, text: str) -> str:
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text) + 1)
        more = draw.choice(["", draw.choice(MARKS), text[at : at + 20]])
        text = text[:at] + more + text[at + (not more) :]
    return text


def rows(first: int) -> list[dict[str, Any]]:
    return [{"question": f"What is {n}+{n}?", "answer": str(2 * n)} for n in range(first, first + 12)]


def write_rows(name: str, first: int) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows(first)))


@pytest.fixture
def project(own_folder):
    write_rows("rows.jsonl", 0)
    write_rows("test.jsonl", 50)
    before = set(Path().rglob("*"))
    yield
    assert set(Path().rglob("*")) - before <= {Path("r.yaml")}, "nothing else is written, by whatever means"


@contextmanager
def no_longer_than(seconds: int, what: str) -> Iterator[None]:
    def ring(*_: Any) -> None:
        raise AssertionError(f"still busy after {seconds} s: {what}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def ends_well(text: str) -> bool:
    """Whether `check` would show a plan; False where it refuses in one line. Anything else raises."""
    Path("r.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
    refused = None
    try:
        with no_longer_than(HANGS_AFTER_S, text):
            prepare(load_recipe(Path("r.yaml")))
    except RecipeError as error:
        refused = str(error)
    assert refused is None or ("\n" not in refused and len(refused) <= MOST_OF_A_LINE), text
    return refused is None


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_a_mutated_recipe_is_a_plan_or_one_line(project, part):
    assert ends_well(yaml.safe_dump(RECIPE))
    passed = sum(ends_well(mutated(random.Random(f"recipe {part} {seed}"))) for seed in range(500))
    assert 10 <= passed <= 250  # the faults are neither all harmless nor all fatal


def odd_rows(draw: random.Random) -> list[Any]:
    """Rows of which some have other values, other columns, or are no objects at all."""
    found: list[Any] = rows(0)
    for _ in range(draw.randint(1, 6)):
        at = draw.randrange(len(found))
        kind = draw.choice(["value", "value", "key", "remove", "row", "columns"])
        row = found[at]
        if kind == "row" or not isinstance(row, dict):
            found[at] = draw.choice(JUNK)
        elif kind == "value":
            row[draw.choice(["question", "answer"])] = draw.choice(JUNK)
        elif kind == "key":
            row[str(draw.choice(JUNK))[:50]] = draw.choice(JUNK)
        elif kind == "remove":
            row.pop(draw.choice(["question", "answer"]), None)
        else:
            key = draw.choice(["question", "answer", "completion", "prompt", "row"])
            value = draw.choice(JUNK)
            found = [{**one, key: value} if isinstance(one, dict) else one for one in found]
    return found


def data_file(draw: random.Random) -> Path:
    """A data file of any of the four kinds, odd in its rows, its bytes, or both."""
    suffix = draw.choice([".jsonl", ".json", ".csv", ".parquet"])
    found = odd_rows(draw) if suffix in (".jsonl", ".json") or draw.random() < 0.5 else rows(0)
    path = Path(f"data{suffix}")
    if suffix == ".jsonl":
        content = "\n".join(json.dumps(row) for row in found).encode()
    elif suffix == ".json":
        content = json.dumps(found).encode()
    elif suffix == ".csv":
        text = "question,answer\n" + "".join(
            f"{row.get('question')},{row.get('answer')}\n" if isinstance(row, dict) else f"{row}\n" for row in found
        )
        content = text.encode("utf-8", "replace")
    else:
        texts = [
            {k: str(v).encode("utf-8", "replace").decode() for k, v in row.items()} if isinstance(row, dict) else {}
            for row in found
        ]
        columns = {key: [row.get(key) for row in texts] for key in rows(0)[0]}
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table(columns), sink)
        content = sink.getvalue().to_pybytes()
    for _ in range(draw.choice([0, 0, 1, 2, 20])):
        at = draw.randrange(len(content) + 1)
        more = draw.choice([b"", draw.randbytes(3), content[at : at + 40], b"\x00", b"\xff", b"\r", b'"', b"\n\n"])
        content = content[:at] + more + content[at + draw.choice([0, 1, 30]) :]
    if draw.random() < 0.1:
        content = content[: draw.randrange(len(content) + 1)]
    path.write_bytes(content)
    return path


@pytest.mark.slow
def test_a_damaged_data_file_is_a_plan_or_one_line(own_folder):
    write_rows("test.jsonl", 50)
    passed = 0
    for seed in range(500):
        draw = random.Random(f"data {seed}")
        path = data_file(draw)
        text = yaml.safe_dump(RECIPE | {"dataset": {"path": str(path), "prompt": "{question}", "answer": "{answer}"}})
        passed += ends_well(text)
        path.unlink()
    assert {path.name for path in Path().iterdir()} == {"r.yaml", "test.jsonl"}
    assert 50 <= passed <= 450


@pytest.mark.slow
def test_the_command_line_says_it_in_one_line_and_exits_with_2(project, capsys):
    refused = 0
    for seed in range(50):
        text = mutated(random.Random(f"cli {seed}"))
        Path("r.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
        capsys.readouterr()
        with no_longer_than(HANGS_AFTER_S, text), pytest.raises(SystemExit) as ended:
            main(["check", "r.yaml"])
        code, err = ended.value.code or 0, capsys.readouterr().err
        assert code in (0, 2), text
        assert code == 0 or (err.startswith("error: ") and err.count("\n") == 1), text
        refused += code == 2
    assert refused >= 10
