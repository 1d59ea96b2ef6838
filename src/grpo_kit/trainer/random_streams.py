"""The global random streams: put back where a step is saved late, and around what training must not notice."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from transformers import TrainerCallback

States = tuple[Any, Any, torch.Tensor, list[torch.Tensor] | None]


class RandomStreams(TrainerCallback):
    """The states of all global random streams as they were after the last step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.on_step_end(args, state, control)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._states = random_states()

    def restore(self) -> None:
        set_random_states(self._states)


@contextmanager
def random_streams_kept() -> Iterator[None]:
    """Put all global random streams back at the end of the block.

    A resumed run does not repeat a measurement that it has: its rewards may have drawn from the streams of training.
    """
    before = random_states()
    try:
        yield
    finally:
        set_random_states(before)


def random_states() -> States:
    """Of Python, NumPy, torch and each CUDA device."""
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None
    return random.getstate(), np.random.get_state(), torch.get_rng_state(), cuda


def set_random_states(states: States) -> None:
    python, numpy, torch_cpu, cuda = states
    random.setstate(python)
    np.random.set_state(numpy)
    torch.set_rng_state(torch_cpu)
    if cuda is not None:
        torch.cuda.set_rng_state_all(cuda)
