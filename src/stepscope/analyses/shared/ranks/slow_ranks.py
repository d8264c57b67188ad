"""Ranks that are slower than their peers in a matrix of times: robust to several slow ranks, to jitter and to missing steps.

The usual time of a step is the median over the peers (of two ranks, that of the faster one), so slow ranks do not move it. A rank is
slow in all steps if the median of its excess is above three thresholds: a share of the step, the spread of the medians of its peers, and
the uncertainty of its times median. It is slow in some steps if it is an outlier in more of them than chance explains.
"""

import math
import warnings
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stepscope.model.intervals import Bools

Floats = NDArray[np.float64]
_LEAST, _LEAST_OF_FEW = 0.03, 0.05  # of the step: of many ranks, whose spread is known, and of few
_RANK_SPREADS, _OWN_ERRORS, _STEP_SPREADS = 6.0, 4.0, 4.0  # standard deviations, estimated from medians
_MANY = 8  # ranks whose medians have a spread
_SLOWER = 0.7  # of the steps of a rank that is slow in all of them
_FEW, _CLEAR = 3, 0.1  # with fewer steps than this, the excess is at least this share
_EPISODES, _CHANCE, _RATE = 3, 1e-3, 0.01  # a rank that is slow in some steps: at least; chance; rate of outliers of any rank
_OUTLIER, _OUTLIER_OF_FEW = 0.03, 0.1  # of the step
_TO_DEVIATION = 1.4826  # from the median absolute deviation
_MEDIAN_ERROR = 1.2533  # standard error of a median, in those of a mean


class SlowRanks(NamedTuple):
    """Result for each row of the matrix."""

    excess: Floats  # time above the peers, by rank and step
    persistent: Bools
    transient: Bools
    slow: Bools  # by rank and step
    threshold: Floats  # share of the step above which the rank is slow


def slow_ranks(times: Floats, step: Floats) -> SlowRanks:
    """Slow rows of `times`, by rank and step; `step` is the length of each step. NaN is unknown."""
    count = times.shape[0]
    excess = times - usual(times)
    share = excess / step
    compared = np.sum(np.isfinite(share), axis=1)
    median = known_median(share, axis=1)
    noise = _TO_DEVIATION * known_median(np.abs(share - median[:, None]), axis=1)
    rank_error = _OWN_ERRORS * _MEDIAN_ERROR * noise / np.sqrt(np.maximum(compared, 1))
    spread = _RANK_SPREADS * _TO_DEVIATION * _deviation(median) if count >= _MANY else 0.0
    least = _LEAST if count >= _MANY else _LEAST_OF_FEW
    threshold = np.maximum(max(least, spread), np.nan_to_num(rank_error))
    threshold = np.where(compared < _FEW, np.maximum(threshold, _CLEAR), threshold)
    slower = share > np.minimum(threshold, least + spread)[:, None]
    share_slower = np.sum(slower, axis=1) / np.maximum(compared, 1)
    persistent = (median > threshold) & (share_slower >= _SLOWER)
    transient, outlier = _transient(share, median, persistent, compared)
    slow = np.where(persistent[:, None], slower, outlier & transient[:, None])
    return SlowRanks(excess, persistent, transient, slow, threshold)


def known_median(values: Floats, axis: int) -> Floats:
    """The median of the known values along an axis; NaN where none is known."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        medians: Floats = np.nanmedian(values, axis=axis)
    return medians


def usual(times: Floats) -> Floats:
    """Median of each step over the ranks; of an even number the lower one."""
    ordered = np.sort(times, axis=0)  # NaN comes last
    known = np.sum(np.isfinite(times), axis=0)
    middle = ordered[np.maximum(known - 1, 0) // 2, np.arange(times.shape[1])]
    return np.where(known >= 2, middle, np.nan)


def _deviation(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(np.median(np.abs(known - np.median(known)))) if len(known) else 0.0


def _transient(share: Floats, median: Floats, persistent: Bools, compared: NDArray[np.int64]) -> tuple[Bools, Bools]:
    """Ranks with more outlying steps than chance explains, and the outlying steps."""
    residual = share - np.where(persistent, median, 0.0)[:, None]
    spread = _STEP_SPREADS * _TO_DEVIATION * _deviation(residual[np.isfinite(residual)])
    outlier = residual > max(_OUTLIER if len(share) >= _MANY else _OUTLIER_OF_FEW, spread)
    episodes = np.sum(outlier, axis=1)
    usual_ranks = np.argsort(episodes, kind="stable")[: max(len(share) - max(1, len(share) // 10), 1)]  # the others may be slow themselves
    # Two more outliers than there are: of few steps, the rate is uncertain.
    rate = max(float((episodes[usual_ranks].sum() + 2) / (compared[usual_ranks].sum() + 2)), _RATE)
    chance = np.array([_at_least(int(n), int(k), rate) for n, k in zip(compared, episodes, strict=True)])
    return (episodes >= _EPISODES) & (chance < _CHANCE / len(share)) & ~persistent, outlier


def _at_least(trials: int, successes: int, rate: float) -> float:
    """Probability of this number of successes or more."""
    if successes < _EPISODES:
        return 1.0
    logs = [
        math.lgamma(trials + 1) - math.lgamma(k + 1) - math.lgamma(trials - k + 1) + k * math.log(rate) + (trials - k) * math.log1p(-rate)
        for k in range(successes, trials + 1)
    ]
    return min(sum(math.exp(value) for value in logs), 1.0)
