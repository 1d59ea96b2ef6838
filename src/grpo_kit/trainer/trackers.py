"""Trackers (`report_to`) that end no run: one that fails is left alone from then on, and that is said."""

from collections.abc import Callable
from functools import partial
from typing import Any

from transformers import TrainerCallback

from grpo_kit.errors import first_line
from grpo_kit.processes import is_main


class Tolerated:
    """A tracker's callback in the place of the tracker's own: it hands every event on until one of them raises."""

    def __init__(self, tracker: TrainerCallback, warn: Callable[[str], None]):
        self._tracker, self._warn, self._failed = tracker, warn, False

    def __getattr__(self, event: str) -> Any:
        if not event.startswith("on_"):
            raise AttributeError(event)
        return partial(self._call, event)

    def _call(self, event: str, *args: Any, **kwargs: Any) -> Any:
        if self._failed:
            return None
        try:
            return getattr(self._tracker, event)(*args, **kwargs)
        except Exception as error:  # of whatever type: a network, an account, a disk of somebody else's
            self._failed = True
            if is_main():
                name = type(self._tracker).__name__.removesuffix("Callback")
                self._warn(f"the tracker {name} failed, and the run goes on without it: {first_line(error)}")
            return None
