"""1.0 up to `target_tokens` tokens, then falling in a straight line to 0.0 at `max_tokens`."""

_OPTIONS = {"target_tokens": 4, "max_tokens": 12}
CASES = [
    ("four", {"completion_ids": [7] * 4}, 1.0, _OPTIONS),
    ("five", {"completion_ids": [7] * 5}, 0.875, _OPTIONS),  # (12 - 5) / (12 - 4)
    ("six", {"completion_ids": [7] * 6}, 0.75, _OPTIONS),
    ("eleven", {"completion_ids": [7] * 11}, 0.125, _OPTIONS),
    ("twelve", {"completion_ids": [7] * 12}, 0.0, _OPTIONS),
    ("far too long", {"completion_ids": [7] * 5000}, 0.0, _OPTIONS),
    ("", {"completion_ids": []}, 1.0, {}),  # empty is short: give this reward a small weight beside another one
    ("384 tokens", {"completion_ids": [7] * 384}, 0.5, {}),  # (512 - 384) / (512 - 256)
]


def length(completion: str, completion_ids: list[int], *, target_tokens: int = 256, max_tokens: int = 512) -> float:
    """Between 0.0 and 1.0."""
    if not 0 <= target_tokens < max_tokens:
        raise ValueError(f"max_tokens: {max_tokens}; write a number above target_tokens, which is {target_tokens}")
    return min(1.0, max(0.0, (max_tokens - len(completion_ids)) / (max_tokens - target_tokens)))
