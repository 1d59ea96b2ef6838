"""Every byte that tensors hold while code runs, by what it is for: the bookkeeping of `trace`."""

import weakref
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


@dataclass
class Peak:
    """The most bytes at once in one stretch of a run, by term. `between`: within layers that have like neighbours.

    `small`: those of the activations that are in blocks too small to be given back to the system by themselves.
    """

    phase: str
    between: bool
    terms: dict[str, int]
    small: int = 0

    @property
    def total(self) -> int:
        return sum(self.terms.values())


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages by the label that was set when each was made, and the peaks of their sum.

    Activations of less than `block` bytes count as small.
    """

    def __init__(self, block: int = 0) -> None:
        super().__init__()
        self.block = block
        self.label, self.phase, self.backward = "weights", "load", False
        self.peaks: list[Peak] = []
        self.cache_length: int | None = None  # tokens of the rollout's keys and values
        self._live: dict[int, tuple[int, str, Any]] = {}  # by the storage's id: bytes, label, weak reference
        self._terms: Counter[str] = Counter()
        self._total = self._most = self._small = 0
        self._answer = False
        self.start()

    def start(self, phase: str = "", between: bool = False) -> None:
        """From here on peaks belong to another stretch, and to another phase if one is named."""
        self.phase = phase or self.phase
        self.peaks.append(Peak(self.phase, between, dict(self._terms), self._small))
        self._most = self._total

    def relabel(self, tensor: Tensor, label: str) -> None:
        storage = tensor.untyped_storage()
        size, before, reference = self._live[id(storage)]
        self._add(before, -size)
        self._add(label, size)
        self._live[id(storage)] = size, label, reference

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # asked for thousands of times
            return args[0].fake_device
        if func is torch.ops.aten._local_scalar_dense.default:  # the code asks for a value, and there is none
            return self._answer if args[0].dtype == torch.bool else 0
        out = func(*args, **(kwargs or {}))
        if func is torch.ops.aten.all.default:  # probabilities are finite, attention masks have zeros
            self._answer = self.label == "vocabulary"
        elif func is torch.ops.aten.any.default:  # and no row goes on
            self._answer = False
        for made in tree_leaves(out):
            if isinstance(made, Tensor):
                self._count(made, self._label_of(func, args, made))
        return out

    def _label_of(self, func: Any, args: Any, made: Tensor) -> str:
        if func is torch.ops.aten._to_copy.default and self._live.get(id(args[0].untyped_storage()), (0, ""))[1] == (
            "weights"
        ):
            return "weights"  # autocast's copy of a weight
        grown = func is torch.ops.aten.cat.default and made.dim() == 4 and made.size(2) == self.cache_length
        return "kv_cache" if grown else self.label

    def _count(self, tensor: Tensor, label: str) -> None:
        storage = tensor.untyped_storage()
        key, size = id(storage), storage.nbytes()
        if key in self._live:
            return
        self._live[key] = size, label, weakref.ref(storage, lambda _: self._forget(key))
        self._add(label, size)
        if self._total > self._most:
            self._most = self._total
            self.peaks[-1].terms, self.peaks[-1].small = dict(self._terms), self._small

    def _forget(self, key: int) -> None:
        size, label, _ = self._live.pop(key)
        self._add(label, -size)

    def _add(self, label: str, size: int) -> None:
        self._terms[label] += size
        self._total += size
        if label == "activations" and abs(size) < self.block:
            self._small += size
