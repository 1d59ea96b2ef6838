"""Every test runs offline and in a folder of its own; `cli` is the command line on a small project there."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_kit.cli import QUIET

_hub = tempfile.TemporaryDirectory(prefix="grpo-kit-tests-")
os.environ.update(QUIET, HF_HOME=_hub.name, HF_HUB_OFFLINE="1")  # read when the libraries are imported

from command_line import VARIETY, CommandLine, questions, write_rows  # noqa: E402


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a test writes to a relative path never lands in the repository."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random model of 27k parameters with 1024 positions, one token per byte and a ChatML template."""
    from random_model import save_random_model

    return save_random_model(tmp_path_factory.mktemp("session") / "model")


@pytest.fixture
def cli(own_folder: None, model_folder: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[CommandLine]:
    """`grpo-kit check` beside `rows.jsonl` (8 rows "What is i+i?"), `rewards/variety.py` and `model/`."""
    Path("model").symlink_to(model_folder)
    write_rows("rows.jsonl", questions(8))
    Path("rewards").mkdir()
    Path("rewards/variety.py").write_text(VARIETY)

    def read() -> tuple[str, str]:
        captured = capsys.readouterr()
        return captured.out, captured.err

    yield CommandLine(read)
    assert not Path("runs").exists(), "`check` writes nothing"
