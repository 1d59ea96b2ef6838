"""The C library's heap: what a process frees goes back to the system."""

import ctypes
import sys

MMAP_THRESHOLD = 4 << 20
"""Bytes from which on a block is not in the heap; see `give_memory_back`."""


def give_memory_back() -> None:
    """Let the C library return large freed blocks to the system at once. Without this a run on a CPU keeps growing:
    activations of unequal sizes leave holes that nothing fits into. No effect where the C library is not glibc."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, MMAP_THRESHOLD)  # M_MMAP_THRESHOLD; set, it no longer rises by itself


def trim() -> None:
    """Give the holes of the heap back, where the C library can: small blocks of unequal sizes leave them, too."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if malloc_trim is not None:
        malloc_trim(0)
