"""A folder is the old one or the new one, at every moment in between."""

import shutil
from pathlib import Path

import pytest

from grpo_kit.files import durable
from grpo_kit.files.durable import aside_of, recover, written_whole


def fill(folder: Path, text: str) -> None:
    folder.mkdir(parents=True)
    (folder / "inner").mkdir()
    (folder / "a.txt").write_text(text)
    (folder / "inner/b.txt").write_text(text)


def content(folder: Path) -> set[str]:
    return {path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_it_has_its_name_when_it_is_complete(own_folder):
    with written_whole(Path("best")) as aside:
        fill(aside, "new")
        assert not Path("best").exists()
    assert content(Path("best")) == {"new"}
    assert [path.name for path in Path().iterdir()] == ["best"]


def test_what_fails_leaves_what_was_there(own_folder):
    def fail():
        with written_whole(Path("best")) as aside:
            fill(aside, "new")
            raise OSError("full")

    fill(Path("best"), "old")
    with pytest.raises(OSError, match="full"):
        fail()
    assert content(Path("best")) == {"old"}
    assert [path.name for path in Path().iterdir()] == ["best"]


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("after", range(8))
def test_at_every_moment_it_is_the_old_one_or_the_new_one(own_folder, monkeypatch, after):
    fill(Path("best"), "old")
    calls = 0

    def cut(act):
        def counted(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > after:
                raise PowerCut  # and for all that would come later, too: nothing runs any more
            return act(*args, **kwargs)

        return counted

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", cut(Path.rename))
        patched.setattr(durable.shutil, "rmtree", cut(shutil.rmtree))
        try:
            with written_whole(Path("best")) as aside:
                fill(aside, "new")
            done = True
        except PowerCut:
            done = False
    recover(Path("best"))
    # removed aside, removed old, renamed twice, removed twice: six steps that change something, in this order
    assert content(Path("best")) == ({"new"} if after >= 4 else {"old"})
    assert done == (after >= 6)
    assert [path.name for path in Path().iterdir()] == ["best"]
    assert not aside_of(Path("best")).exists()


def test_nothing_to_recover_is_nothing_to_do(own_folder):
    recover(Path("best"))
    assert not list(Path().iterdir())
