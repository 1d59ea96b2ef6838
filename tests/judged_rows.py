"""Judged rows without a model: completions written down, with the scores that they have."""

from pathlib import Path

from grpo_kit.evaluation.judged import LENIENT, JudgedRow
from grpo_kit.rewards.rewards import Reward


def reward(label: str, weight: float = 1.0, **more) -> Reward:
    """A reward whose function is never called."""
    given = {
        "label": label, "path": Path(f"{label}.py"), "source": b"", "function": lambda completion: 0.0,
        "weight": weight, "only_if": None, "options": {}, "full_marks": 1.0, "batch_form": False, "in_process": False,
        "time_limit_s": 1.0, "required": (), "optional": (), "takes_all": False,
    }  # fmt: skip
    return Reward(**{**given, **more})


ACCURACY, FORMAT = reward("accuracy"), reward("format", 0.5)


def row(scores, *, formats=None, texts=None, truncated=None, leniently=None, tokens=None, number=0) -> JudgedRow:
    """A prompt with one completion for each accuracy in `scores`."""
    n = len(scores)
    own = {"accuracy": list(scores), "format": list(formats) if formats else [0.0] * n}
    if leniently is not None:
        own[LENIENT] = list(leniently)
    texts = texts or [f"The answer is {at}." for at in range(n)]
    return JudgedRow(number, texts, tokens or [10] * n, list(truncated) if truncated else [False] * n, own)
