"""Folders that are there whole or not at all, whatever ends the process, or the machine, while they are written."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """The path of a folder to fill, which takes the place of `folder` at the end of the block.

    Its files are on the disk by then, so that a power cut does not empty them. After an exception there is nothing of
    it, and what was in the place is still there.
    """
    aside = aside_of(folder)
    shutil.rmtree(aside, ignore_errors=True)
    try:
        yield aside
        install(aside, folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def install(aside: Path, folder: Path) -> None:
    """Give a folder that is complete its name; `recover` ends what is interrupted between the two renames."""
    sync(aside)
    if folder.is_dir():
        shutil.rmtree(_old(folder), ignore_errors=True)
        folder.rename(_old(folder))
    aside.rename(folder)
    shutil.rmtree(_old(folder), ignore_errors=True)
    _sync_one(folder.parent)


def recover(folder: Path) -> None:
    """Put back what was about to be replaced, and remove what was not completed."""
    if _old(folder).is_dir() and not folder.exists():
        _old(folder).rename(folder)
    for left in (_old(folder), aside_of(folder)):
        shutil.rmtree(left, ignore_errors=True)


def sync(folder: Path) -> None:
    """Return when everything in a folder is on the disk."""
    for path in [*folder.rglob("*"), folder]:
        _sync_one(path)


def aside_of(folder: Path) -> Path:
    """Where a folder is written to before it has its name; no name that anything else looks for."""
    return folder.with_name(f".{folder.name}.new")


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _sync_one(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
