"""Rows on disk: what a run holds of its data in memory does not grow with their text."""

import copy
import os
import pickle
import tempfile
import weakref
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from grpo_kit.data.sources import Row

BLOCK = 2**16
"""Bytes that are written at once, and read at once of rows that follow each other."""


class Rows(Sequence[Row]):
    """Rows that can be read in any order, as often as one likes; in memory are 8 bytes of each.

    They lie in a temporary file without a name, one pickle after the other. Only the process that wrote it, and those
    it forks, can open it, so nothing foreign is ever unpickled. A row that lacks one of the `columns` of all has None
    there. Every reading makes a new dict: `is` says nothing, and a change is not kept. Raises OSError where the
    temporary folder cannot hold them.
    """

    def __init__(self, rows: Iterable[Row] = ()):
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the last that reads it
        self._starts = array("q", [0])
        weakref.finalize(self._starts, self._file.close)  # selections share them
        columns: dict[str, None] = {}
        waiting = bytearray()
        for row in rows:
            columns.update(dict.fromkeys(row))
            packed = pickle.dumps(row, pickle.HIGHEST_PROTOCOL)
            self._starts.append(self._starts[-1] + len(packed))
            waiting += packed
            if len(waiting) >= BLOCK:
                self._write(waiting)
        self._write(waiting)
        self.columns = tuple(columns)
        self._places: Sequence[int] = range(len(self._starts) - 1)

    def select(self, indices: Iterable[int]) -> "Rows":
        """These rows in this order, of the same file and with the same columns."""
        selected = copy.copy(self)
        selected._places = array("q", (self._places[index] for index in indices))
        return selected

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Row]:
        return self._read(self._places)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        if isinstance(index, slice):
            return list(self._read(self._places[index]))
        return next(self._read([self._places[index]]))

    def _write(self, waiting: bytearray) -> None:
        while waiting:
            del waiting[: self._file.write(waiting)]  # a nearly full disk takes a part

    def _read(self, places: Sequence[int]) -> Iterator[Row]:
        least = BLOCK if len(places) > 1 else 0
        block, first = b"", 0
        for place in places:
            start, end = self._starts[place], self._starts[place + 1]
            if start < first or end > first + len(block):
                # not seek and read: a forked process shares the position
                block, first = os.pread(self._file.fileno(), max(end - start, least), start), start
            row: Row = pickle.loads(block[start - first : end - first])
            if len(row) < len(self.columns):
                for name in self.columns:
                    row.setdefault(name, None)
            yield row
