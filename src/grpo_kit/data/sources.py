"""Raw rows from where they lie: a local file, or a data set of the hub. Rows are streamed, never held."""

import csv
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from grpo_kit.errors import RecipeError, first_line, shorten
from grpo_kit.recipe.file import is_file, is_special, named
from grpo_kit.recipe.recipe import DatasetSection, Recipe

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Something that can be iterated more than once; `label` names it in messages."""

    label: str
    rows: Callable[[], Iterator[Row]]


def is_local(recipe: Recipe, section: DatasetSection) -> bool:
    """Whether the path means a file on this machine, whether or not it is there; a folder is for `datasets` to read."""
    found = find_file(section.path, recipe.source.parent)
    return Path(section.path).suffix.lower() in READERS or (found is not None and is_file(found))


def open_source(recipe: Recipe, section: DatasetSection, key: str) -> Source:
    """The rows of a `dataset` section. `key` is the section's name in messages. Raises RecipeError."""
    if "://" in section.path:
        raise recipe.error(f"{key}.path", f"found {section.path!r}; write a hub id, or download the file and name it")
    if not is_local(recipe, section):
        return _hub(recipe, section, key)
    path = find_file(section.path, recipe.source.parent)
    if path is None:
        tried = ", ".join(str(place) for place in _places(section.path, recipe.source.parent))
        raise recipe.error(f"{key}.path", f"no such file: {section.path} (looked for {tried})")
    if is_special(path):
        raise recipe.error(f"{key}.path", f"{path} is no regular file; rows are read more than once: write them to one")
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise recipe.error(f"{key}.path", f"found {section.path!r}; a local file ends in {', '.join(READERS)}")
    for unused in ("split", "name"):
        if getattr(section, unused) is not None:
            raise recipe.error(f"{key}.{unused}", f"a local file has no {unused}; remove it, or name another file")
    return Source(str(section.path), lambda: reader(path))


def find_file(text: str, folder: Path) -> Path | None:
    """A path as written in a recipe: beside the recipe first, then from the current folder."""
    return next((named(path) for path in _places(text, folder) if _exists(path)), None)


def _places(text: str, folder: Path) -> tuple[Path, Path]:
    written = os.path.expanduser(text)
    return folder / written, Path.cwd() / written


def _exists(path: Path) -> bool:
    """Whether it is there; behind a closed folder it may be, so that reading it says what is wrong."""
    try:
        return path.exists()
    except PermissionError:
        return True
    except OSError:  # too long for a name
        return False


def _jsonl(path: Path) -> Iterator[Row]:
    with _text(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise RecipeError(f"{path}:{number}: not valid JSON ({first_line(error)})") from None
                yield _object(value, f"{path}:{number}")


def _json(path: Path) -> Iterator[Row]:
    with _text(path) as file:
        try:
            values = json.load(file)
        except (ValueError, RecursionError) as error:
            hint = "one object per line is .jsonl"
            raise RecipeError(f"{path}: not valid JSON ({first_line(error)}); {hint}") from None
    if not isinstance(values, list):
        raise RecipeError(f"{path}: found {shorten(values)} at the top; write a list of objects")
    for index, value in enumerate(values):
        yield _object(value, f"{path}: row {index}")


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(1 << 27)
    with _text(path, newline="") as file:
        reader = csv.DictReader(file, strict=True)
        try:
            _check_header(path, list(reader.fieldnames or ()))
            for row in reader:
                if None in row or None in row.values():
                    raise RecipeError(f"{path}:{reader.line_num}: not as many fields as the header has columns")
                yield dict(row)
        except csv.Error as error:
            raise RecipeError(f"{path}:{reader.reader.line_num}: not valid CSV ({error})") from None


def _check_header(path: Path, names: list[str]) -> None:
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise RecipeError(f"{path}:1: two columns are called {twice!r}; rename one")
    if "" in names:
        raise RecipeError(f"{path}:1: column {names.index('') + 1} of {len(names)} has no name; name it, or remove it")
    if len(names) == 1 and any(separator in names[0] for separator in ";\t|"):
        raise RecipeError(f"{path}:1: found the one column {names[0]!r}; separate columns with commas")


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=1000):
            yield from batch.to_pylist()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise RecipeError(f"{path}: not a readable parquet file ({first_line(error)})") from None


def _holds_more_than_data(folder: Path, recipes: Path) -> bool:
    """Whether it is a home or a working folder: `datasets` would go through all of it, for minutes."""
    places = [recipes, Path.cwd()]
    with suppress(RuntimeError):  # a user without a home
        places.append(Path.home())
    return any(place.resolve().is_relative_to(folder) for place in places)


READERS: dict[str, Callable[[Path], Iterator[Row]]] = {
    ".jsonl": _jsonl,
    ".json": _json,
    ".csv": _csv,
    ".parquet": _parquet,
}


@contextmanager
def _text(path: Path, newline: str | None = None) -> Iterator[IO[str]]:
    """A UTF-8 text file; what cannot be read or decoded becomes a RecipeError."""
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            yield file
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 text ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror})") from None


def _object(value: Any, where: str) -> Row:
    if not isinstance(value, dict):
        raise RecipeError(f"{where}: found {shorten(value)}; every row is an object with columns")
    return value


def _hub(recipe: Recipe, section: DatasetSection, key: str) -> Source:
    """A data set of the hub, or a local folder that `datasets` can read. Raises RecipeError where it cannot be had."""
    from datasets import DownloadConfig, load_dataset
    from datasets.exceptions import DatasetNotFoundError

    folder = find_file(section.path, recipe.source.parent)
    if folder is not None and _holds_more_than_data(folder, recipe.source.parent):
        raise recipe.error(f"{key}.path", f"found {section.path!r}, a folder of more than data; name the file itself")
    if folder is None and set("*?[") & set(section.path):
        raise recipe.error(f"{key}.path", f"found {section.path!r}; write one file's name, without * ? [, or a hub id")
    path = str(folder) if folder is not None else section.path
    split = section.split or "train"
    label = f"{section.path}{f' ({section.name})' if section.name else ''}, split {split}"
    try:
        data = load_dataset(path, section.name, split=split, download_config=DownloadConfig(max_retries=1))
    except (ConnectionError, DatasetNotFoundError, FileNotFoundError) as error:
        if folder is not None:
            raise recipe.error(f"{key}.path", f"{path}: {first_line(error)}") from None
        raise recipe.error(
            f"{key}.path",
            f"the hub was asked for {label} and gave nothing ({type(error).__name__}), and nothing is cached here; "
            "check the name and the network, name a local file, or try recipes/smoke.yaml, which needs no hub",
        ) from None
    except Exception as error:  # datasets raises many types for a wrong name, split or file: all are the user's to mend
        raise recipe.error(f"{key}.path", f"{label} cannot be loaded: {first_line(error)}") from None
    return Source(label, lambda: iter(data))
