"""Small-sample statistics of accuracies, clustered by prompt. Plain numbers in, plain numbers out; no torch."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean

Z95 = NormalDist().inv_cdf(0.975)

ROUNDING = 1e-6
"""Rewards of a group that differ by less, relative to their size, are equal: float32 keeps about 7 digits."""


def accuracy_interval(pass_rates: Sequence[float], samples: int) -> tuple[float, float]:
    """95 % interval of the mean of per-prompt pass rates (each a mean of `samples` completions).

    Wilson's score interval on the effective number of completions: n*samples divided by the design effect, which
    is the variance between prompts over the variance of independent completions. So completions of one prompt that
    always agree count as one, and an accuracy of 0 or 1 still has an interval. Raises ValueError for no prompts.
    """
    if not pass_rates:
        raise ValueError("an interval needs at least one prompt")
    n, p = len(pass_rates), fmean(pass_rates)
    independent = p * (1 - p) / samples
    between = sum((rate - p) ** 2 for rate in pass_rates) / max(n - 1, 1)
    design_effect = max(between / independent, 1.0) if independent > 0 else float(samples)
    return wilson(p, n * samples / design_effect)


def wilson(p: float, n: float) -> tuple[float, float]:
    """Wilson's 95 % score interval of a share `p` out of `n` (Wilson 1927)."""
    centre = (p + Z95**2 / (2 * n)) / (1 + Z95**2 / n)
    half = Z95 / (1 + Z95**2 / n) * math.sqrt(p * (1 - p) / n + Z95**2 / (4 * n**2))
    return max(centre - half, 0.0), min(centre + half, 1.0)


def paired_gain(before: Sequence[float], after: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Mean difference of paired pass rates and its 95 % interval.

    The interval is Wald's with one gain and one loss of a whole prompt added, after Agresti and Min (2005), so that
    a handful of prompts that happen to agree cannot look certain. Raises ValueError for unpaired lists.
    """
    if len(before) != len(after) or not before:
        raise ValueError(f"{len(before)} and {len(after)} prompts cannot be paired")
    gains = [b - a for a, b in zip(before, after, strict=True)]
    adjusted = [*gains, 1.0, -1.0]
    centre = fmean(adjusted)
    variance = sum((gain - centre) ** 2 for gain in adjusted) / (len(adjusted) - 1)
    half = Z95 * math.sqrt(variance / len(adjusted))
    return fmean(gains), (max(centre - half, -1.0), min(centre + half, 1.0))


def rows_that_would_tell(gain: float, interval: tuple[float, float], rows: int) -> int | None:
    """How many held-out rows would put 0 outside of the interval, if the gain stayed as measured."""
    half = (interval[1] - interval[0]) / 2
    return max(math.ceil(rows * (half / abs(gain)) ** 2), rows) + 1 if gain else None


def is_flat(rewards: Sequence[float | None]) -> bool:
    """Is a group's reward the same for every completion, up to rounding? None (unscored) entries do not count."""
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return True
    return max(scored) - min(scored) <= ROUNDING * max(1.0, max(abs(reward) for reward in scored))
