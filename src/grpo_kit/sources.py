"""Raw rows from where they lie: a local file, or a data set of the hub. Rows are streamed, never held."""

import csv
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from grpo_kit.errors import RecipeError
from grpo_kit.recipe import DatasetSection, Recipe

Row = dict[str, Any]


@dataclass(frozen=True)
class Source:
    """Something that can be iterated more than once; `label` names it in messages."""

    label: str
    rows: Callable[[], Iterator[Row]]


def is_local(section: DatasetSection) -> bool:
    """Whether the path means a file on this machine, whether or not it is there."""
    return Path(section.path).suffix in READERS


def open_source(recipe: Recipe, section: DatasetSection, key: str) -> Source:
    """The rows of a `dataset` section. `key` is the section's name in messages. Raises RecipeError."""
    if not is_local(section):
        return _hub(recipe, section, key)
    path = find_file(section.path, recipe.source.parent)
    if path is None:
        tried = ", ".join(str(folder / section.path) for folder in (recipe.source.parent, Path.cwd()))
        raise recipe.error(f"{key}.path", f"no such file: {section.path} (looked for {tried})")
    for unused in ("split", "name"):
        if getattr(section, unused) is not None:
            raise recipe.error(f"{key}.{unused}", f"a local file has no {unused}; remove it, or name another file")
    return Source(str(section.path), lambda: READERS[path.suffix](path))


def find_file(text: str, folder: Path) -> Path | None:
    """A path as written in a recipe: beside the recipe first, then from the current folder."""
    candidates = (folder / Path(text).expanduser(), Path.cwd() / Path(text).expanduser())
    return next((path.resolve() for path in candidates if path.exists()), None)


def _jsonl(path: Path) -> Iterator[Row]:
    with _text(path) as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    value = json.loads(line)
                except ValueError as error:
                    raise RecipeError(f"{path}:{number}: not valid JSON ({error})") from None
                yield _object(value, f"{path}:{number}")


def _json(path: Path) -> Iterator[Row]:
    with _text(path) as file:
        try:
            values = json.load(file)
        except ValueError as error:
            raise RecipeError(f"{path}: not valid JSON ({error}); one object per line is .jsonl") from None
    if not isinstance(values, list):
        raise RecipeError(f"{path}: has a {type(values).__name__} at the top; write a list of objects")
    for index, value in enumerate(values):
        yield _object(value, f"{path}: row {index}")


def _csv(path: Path) -> Iterator[Row]:
    csv.field_size_limit(1 << 27)
    with _text(path, newline="") as file:
        reader = csv.DictReader(file, restkey="")
        try:
            for row in reader:
                if "" in row or None in row.values():
                    raise RecipeError(f"{path}:{reader.line_num}: not as many fields as the header has columns")
                yield dict(row)
        except csv.Error as error:
            raise RecipeError(f"{path}:{reader.line_num}: not valid CSV ({error})") from None


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        for batch in parquet.ParquetFile(path).iter_batches(batch_size=1000):
            yield from batch.to_pylist()
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise RecipeError(f"{path}: not a readable parquet file ({str(error).splitlines()[0]})") from None


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
        raise RecipeError(f"{where}: found {type(value).__name__}; every row is an object with columns")
    return value


def _hub(recipe: Recipe, section: DatasetSection, key: str) -> Source:
    """A data set of the hub, or a local folder that `datasets` can read. Raises RecipeError where it cannot be had."""
    from datasets import DownloadConfig, load_dataset
    from datasets.exceptions import DatasetNotFoundError

    folder = find_file(section.path, recipe.source.parent)
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


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
