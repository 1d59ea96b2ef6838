"""Folders that are there whole or not at all, whatever ends the process, or the machine, while they are written."""

import json
import os
import shutil
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

SUMS = "sums.json"
"""The CRC-32 of each other file of a folder, as it was written."""


@contextmanager
def written_whole(folder: Path) -> Iterator[Path]:
    """The path of a folder to fill, which takes the place of `folder` at the end of the block.

    Its files are on the disk by then, so that a power cut does not empty them. After an exception there is nothing of
    it, and what was in the place is still there.
    """
    aside = aside_of(folder)
    remove(aside)
    try:
        yield aside
        install(aside, folder)
    finally:
        remove(aside)


def install(aside: Path, folder: Path) -> None:
    """Give a folder that is complete its name; `recover` ends what is interrupted between the two renames."""
    sync(aside)
    if folder.is_dir():
        remove(_old(folder))
        folder.rename(_old(folder))
    aside.rename(folder)
    remove(_old(folder))
    sync_one(folder.parent)


def recover(folder: Path) -> None:
    """Put back what was about to be replaced, and remove what was not completed."""
    if _old(folder).is_dir() and not folder.exists():
        _old(folder).rename(folder)
    for left in (_old(folder), aside_of(folder)):
        remove(left)


def remove(folder: Path) -> None:
    """Remove a folder as far as that goes; of a link, which leads elsewhere, the link alone."""
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def sync(folder: Path) -> None:
    """Return when everything in a folder is on the disk."""
    for path in [*folder.rglob("*"), folder]:
        sync_one(path)


def sync_one(path: Path) -> None:
    """Return when a file's content, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_sums(folder: Path) -> None:
    """Keep the sums of a folder's files in it, for `changed_since_written`."""
    (folder / SUMS).write_text(json.dumps(_sums(folder), indent=2), encoding="utf-8")


def changed_since_written(folder: Path, needed: Collection[str] = ()) -> str | None:
    """What is no longer as `write_sums` found it, or None: a file is missing, cut off, or has other content.

    Files that are `needed` must have a sum.
    """
    try:
        written: dict[str, str] = dict(json.loads((folder / SUMS).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return f"{SUMS} cannot be read"
    unknown = [name for name in needed if name not in written]
    if unknown:
        return f"{SUMS} does not have {unknown[0]}"
    now = _sums(folder)
    changed = [name for name, value in sorted(written.items()) if now.get(name) != value]
    return next((f"{name} is not what was written" if name in now else f"no {name}" for name in changed), None)


def aside_of(folder: Path) -> Path:
    """Where a folder is written to before it has its name; no name that anything else looks for."""
    return folder.with_name(f".{folder.name}.new")


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.old")


def _sums(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file() and path != folder / SUMS]
    return {path.relative_to(folder).as_posix(): f"{_crc32(path):08x}" for path in sorted(files)}


def _crc32(file: Path) -> int:
    value = 0
    with file.open("rb") as stream:
        while part := stream.read(1 << 20):
            value = zlib.crc32(part, value)
    return value
