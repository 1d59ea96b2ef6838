"""Rows on disk read like the list that was written, in whatever order and selection."""

import gc
import os
from datetime import date
from pathlib import Path

import pytest
from command_line import RECIPE, questions, write_rows

from grpo_kit.data.rows import BLOCK, Rows
from grpo_kit.errors import RecipeError
from grpo_kit.prepare.prepare import prepare
from grpo_kit.recipe.recipe import load_recipe

GIVEN = [
    {"place": at, "text": text} for at, text in enumerate(["a", "十二 个苹果", "", "x" * (2 * BLOCK), "\ud800", "b"])
]


def test_they_read_like_the_list():
    rows = Rows(iter(GIVEN))
    assert len(rows) == 6
    assert list(rows) == list(rows) == GIVEN
    assert list(reversed(rows)) == GIVEN[::-1]
    for index in range(-6, 6):
        assert rows[index] == GIVEN[index]
    for part in (slice(2), slice(1, -1), slice(None, None, 2), slice(None, None, -1), slice(5, 2), slice(-2, 99)):
        assert rows[part] == GIVEN[part]
    for index in (6, -7):
        with pytest.raises(IndexError):
            rows[index]


def test_many_rows_across_blocks():
    """20,000 rows of more than 100 bytes are over 30 blocks."""
    rows = Rows({"place": at, "text": "t" * 100} for at in range(20_000))
    assert [row["place"] for row in rows] == list(range(20_000))
    assert [row["place"] for row in rows[::-777]] == list(range(19_999, -1, -777))


def test_none():
    for rows in (Rows(), Rows(GIVEN).select([])):
        assert not rows
        assert list(rows) == rows[:5] == []
    assert Rows().columns == ()


def test_selections_outlive_what_they_are_of():
    rows = Rows(GIVEN).select([5, 1, 3, 1]).select([-1, 0])
    gc.collect()
    assert list(rows) == rows[:] == [GIVEN[1], GIVEN[5]]
    assert rows[1] == rows[-1] == GIVEN[5]


def test_the_file_goes_with_the_last_of_them():
    rows = Rows(GIVEN)
    selected, descriptor = rows.select([0]), rows._file.fileno()
    del rows
    os.fstat(descriptor)
    del selected
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_a_column_that_a_row_lacks_is_none():
    rows = Rows([{"a": 1}, {"b": date(2024, 2, 29), "a": None}, {"c": [1.5]}])
    assert rows.columns == rows.select([0]).columns == ("a", "b", "c")
    assert [list(row.items()) for row in rows] == [
        [("a", 1), ("b", None), ("c", None)],
        [("b", date(2024, 2, 29)), ("a", None), ("c", None)],
        [("c", [1.5]), ("a", None), ("b", None)],
    ]


def test_a_change_is_not_kept():
    rows = Rows([{"a": [1]}])
    rows[0]["a"].append(2)
    assert rows[0] == {"a": [1]}


def test_a_forked_process_reads_them_too():
    rows = Rows(GIVEN)
    if (child := os.fork()) == 0:
        os._exit(0 if list(rows) == GIVEN else 1)
    assert list(rows) == GIVEN
    assert os.waitpid(child, 0)[1] == 0


def test_no_folder_for_them(cli, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(Path("missing").resolve()))
    Path("r.yaml").write_text(RECIPE)
    write_rows("rows.jsonl", questions(8))
    with pytest.raises(RecipeError, match=r"^the temporary folder cannot hold the rows of rows.jsonl \(No such file"):
        prepare(load_recipe(Path("r.yaml")))
