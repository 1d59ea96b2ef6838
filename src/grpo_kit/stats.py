"""Small-sample statistics of accuracies, clustered by prompt. Plain numbers in, plain numbers out; no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist, fmean

import numpy as np

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


@dataclass(frozen=True)
class Difference:
    """Of two accuracies on the same prompts: the mean of what each prompt gained, its 95 % interval, and p.

    `p` is the two-sided probability of a difference at least as large where there is none.
    """

    value: float
    ci95: tuple[float, float]
    p: float

    def is_below_zero(self, level: float) -> bool:
        """At a one-sided level other than the interval's: a normal distribution with the interval's width."""
        low, high = self.ci95
        return self.value < NormalDist().inv_cdf(level) * (high - low) / (2 * Z95)


RESAMPLES = 4000


def paired_difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """The paired bootstrap over prompts of two lists of per-prompt pass rates. Raises ValueError for unpaired lists.

    The percentile interval, widened by t(n-1)/z * sqrt(n/(n-1)) as Hesterberg (2015) does it, because the percentiles
    alone are too narrow for few prompts. One prompt that gained and one that lost are added, each by as much as the
    most that any did (a whole prompt where none did), so that a handful of prompts that happen to agree cannot look
    certain; for pass rates of 0 and 1 this is Agresti and Min's (2005) adjustment.
    """
    if len(before) != len(after) or not len(before):
        raise ValueError(f"{len(before)} and {len(after)} prompts cannot be paired")
    gains = np.asarray(after, dtype=float) - np.asarray(before, dtype=float)  # (n,)
    most = float(np.abs(gains).max()) or 1.0
    adjusted = np.append(gains, [most, -most])
    n, centre = len(adjusted), float(adjusted.mean())
    means = _bootstrap_means(adjusted)
    means = centre + (means - centre) * _t975(n - 1) / Z95 * math.sqrt(n / (n - 1))
    low, high = np.quantile(means, [0.025, 0.975])
    below, above = int((means <= 0).sum()), int((means >= 0).sum())
    p = min(2 * (min(below, above) + 1) / (len(means) + 1), 1.0)
    return Difference(float(gains.mean()), (max(float(low), -1.0), min(float(high), 1.0)), p)


def _bootstrap_means(values: np.ndarray) -> np.ndarray:
    """(RESAMPLES,) means of as many values drawn with replacement, the same at every call."""
    draw = np.random.default_rng(0)
    at_once = max(2_000_000 // len(values), 1)  # a few megabytes of indices
    parts = [
        values[draw.integers(len(values), size=(min(at_once, RESAMPLES - done), len(values)))].mean(axis=1)
        for done in range(0, RESAMPLES, at_once)
    ]
    return np.concatenate(parts)


def _t975(degrees: int) -> float:
    """97.5 % quantile of Student's t: the Cornish-Fisher expansion (Abramowitz and Stegun 26.7.5), 1 % off at 4."""
    z, v = Z95, degrees
    return (
        z
        + (z**3 + z) / (4 * v)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * v**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * v**3)
    )


def mcnemar(won: int, lost: int) -> float:
    """Exact two-sided p of so many prompts won and lost, where both are as likely (McNemar 1947, binomial form)."""
    n = won + lost
    tail = sum(math.comb(n, k) for k in range(min(won, lost) + 1)) / 2**n
    return min(2 * tail, 1.0)


def pass_at_k(right: int, n: int, k: int) -> float:
    """Unbiased estimate of the share of k completions of which at least one is right, from `right` of n (k <= n).

    1 - C(n - right, k) / C(n, k): Chen et al. 2021, equation 1. Raises ValueError for k above n.
    """
    return 1 - all_alike(n - right, n, k)


def all_alike(count: int, n: int, k: int) -> float:
    """Unbiased estimate of the chance that k completions are of a kind that `count` of n are: C(count, k) / C(n, k)."""
    if not 1 <= k <= n:
        raise ValueError(f"{k} of {n} completions cannot be drawn")
    return math.comb(count, k) / math.comb(n, k)


def useful_share(pass_rates: Sequence[float], group: int) -> float:
    """E[1 - p^G - (1 - p)^G]: the share of groups of G completions that are neither all right nor all wrong."""
    if not pass_rates:
        raise ValueError("a share needs at least one prompt")
    return fmean(1 - p**group - (1 - p) ** group for p in pass_rates)


def rows_that_would_tell(gain: float, interval: tuple[float, float], rows: int) -> int | None:
    """How many held-out rows would put 0 outside of the interval, if the gain stayed as measured."""
    half = (interval[1] - interval[0]) / 2
    return max(math.ceil(rows * (half / abs(gain)) ** 2), rows) + 1 if gain else None


def is_flat(rewards: Sequence[float | None]) -> bool:
    """Is a group's reward the same for every completion, up to rounding? None (unscored) entries do not count."""
    return spread_of(rewards) == 0


def spread_of(rewards: Sequence[float | None]) -> float:
    """Between the highest and the lowest reward of a group; 0 where that is rounding. None entries do not count."""
    scored = [reward for reward in rewards if reward is not None]
    if len(scored) < 2:
        return 0.0
    spread = max(scored) - min(scored)
    return 0.0 if spread <= ROUNDING * max(1.0, max(abs(reward) for reward in scored)) else spread


def percentile(ascending: Sequence[int], q: int) -> int:
    """The smallest value that q % do not exceed (nearest rank)."""
    return ascending[max(math.ceil(len(ascending) * q / 100), 1) - 1]
