"""Whether a difference is more than noise: intervals from runs, or from the steps of one run, which are correlated."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CONFIDENCE = 0.95
# Two runs of one program differ by more than their steps show: placement of memory and threads, clocks, temperature. Only several runs per
# side measure it. Where both sides have one run, this share of the step is assumed, or, if it is more, this part of the spread of the steps
# (the middle half, relative to the median): what disturbs the steps of a run differs from run to run (docs/compare.md).
RUN_NOISE = 0.01
_OF_SPREAD = 0.2
_RESAMPLES = 1000
_CELLS = 1 << 24  # random numbers held at a time
_SEED = 20_000_003  # the same data has the same interval


class Estimate(NamedTuple):
    """A value of one side, and what is known about its error."""

    value: float
    error: float | None  # standard error; None if one value is all there is
    freedom: float  # degrees of freedom of the error
    runs: int
    spread: float = 0.0  # from the first to the third quartile of the steps, relative to the median

    def run_noise(self, least: float) -> float:
        """The share by which another run of the same program is assumed to differ; 0 where `least` is."""
        return max(least, _OF_SPREAD * self.spread) if least else 0.0


class Change(NamedTuple):
    """The relative change from the baseline to the candidate."""

    share: float
    low: float | None  # of the interval; None if the noise is unknown
    high: float | None

    @property
    def visible(self) -> float | None:
        """The smallest change that is more than noise: half of the interval."""
        return None if self.low is None or self.high is None else (self.high - self.low) / 2

    @property
    def certain(self) -> bool:
        """Whether the interval excludes no change."""
        return self.low is not None and self.high is not None and not self.low <= 0 <= self.high


class Series(NamedTuple):
    """The median of correlated values in order, and its error."""

    median: float
    error: float | None
    effective: float  # the number of independent values with the same information
    spread: float = 0.0  # as in Estimate


def series(values: Floats) -> Series:
    """The median of the steps of a run. Its error is that of a moving-block bootstrap, whose blocks are as long as the correlation."""
    median, effective = float(np.median(values)), len(values) / correlation_time(values)
    if len(values) < 2:
        return Series(median, None, float(len(values)))
    quartiles = np.quantile(values, [0.25, 0.75])
    relative = float(quartiles[1] - quartiles[0]) / median if median > 0 else 0.0
    length = min(max(math.ceil(2 * correlation_time(values)), math.ceil(len(values) ** (1 / 3))), max(len(values) // 2, 1))
    medians = _block_medians(values, length)
    blocks = len(values) / length
    spread = float(medians.std()) * math.sqrt(blocks / max(blocks - 1, 0.5))
    return Series(median, spread, max(effective, 1.0), relative)


def correlation_time(values: Floats) -> float:
    """Steps per independent value: 1 + 2 times the autocorrelations up to the first that is not positive (Geyer's initial sequence)."""
    count = len(values)
    ranks = np.argsort(np.argsort(values)).astype(np.float64)  # an outlier hides the correlation of the rest
    ranks -= ranks.mean()
    variance = float(ranks @ ranks)
    if count < 4 or variance == 0:
        return 1.0
    size = 1 << (2 * count - 1).bit_length()
    power = np.fft.rfft(ranks, size)
    correlation = np.fft.irfft(power * np.conj(power), size)[:count] / variance
    time = 1.0
    for lag in range(1, count // 2, 2):
        pair = float(correlation[lag] + (correlation[lag + 1] if lag + 1 < count else 0))
        if pair <= 0:
            break
        time += 2 * pair
    return min(max(time, 1.0), count / 2)


def _block_medians(values: Floats, length: int) -> Floats:
    """Medians of series made of random blocks of this length."""
    random = np.random.default_rng(_SEED)
    count, blocks = len(values), math.ceil(len(values) / length)
    per_chunk = max(_CELLS // (blocks * length), 1)
    medians = []
    for first in range(0, _RESAMPLES, per_chunk):
        rows = min(per_chunk, _RESAMPLES - first)
        starts = random.integers(0, count - length + 1, (rows, blocks))
        index = (starts[:, :, None] + np.arange(length)).reshape(rows, -1)[:, :count]
        medians.append(np.median(values[index], axis=1))
    return np.concatenate(medians)


def of_run(each: Sequence[Series]) -> Series:
    """The run of several ranks, whose steps rise and fall together: the mean of their medians, with the mean of their errors."""
    errors = [estimate.error for estimate in each if estimate.error is not None]
    return Series(
        float(np.mean([estimate.median for estimate in each])),
        float(np.mean(errors)) if len(errors) == len(each) else None,
        float(np.mean([estimate.effective for estimate in each])),
        float(np.mean([estimate.spread for estimate in each])),
    )


def of_side(runs: Sequence[Series]) -> Estimate:
    """The mean over the runs of a side. With several runs their spread is the error, or that of their steps, whichever is larger."""
    medians = np.array([run.median for run in runs])
    within = [run.error for run in runs]
    steps = None if None in within else math.sqrt(sum((error or 0) ** 2 for error in within)) / len(runs)
    freedom = max(float(np.mean([run.effective for run in runs])) - 1, 1.0) if steps is not None else 0.0
    if len(runs) == 1:
        return Estimate(float(medians[0]), steps, freedom, 1, runs[0].spread)
    between = float(medians.std(ddof=1)) / math.sqrt(len(runs))
    if steps is not None and steps > between:
        return Estimate(float(medians.mean()), steps, freedom * len(runs), len(runs))
    return Estimate(float(medians.mean()), between, len(runs) - 1.0, len(runs))


def change(baseline: Estimate, candidate: Estimate, confidence: float = CONFIDENCE, run_noise: float = RUN_NOISE) -> Change:
    """The relative change, with the interval of Welch's test on the logarithm: the ratio of two positive values has no negative end.

    If one side has one run, the spread between runs of the other side counts for both; if both have one, `Estimate.run_noise` does.
    """
    share = candidate.value / baseline.value - 1
    several = [side for side in (baseline, candidate) if side.runs > 1]
    terms = []
    for side in (baseline, candidate):
        if side.error is None and not several:
            return Change(share, None, None)
        relative = (side.error or 0.0) / side.value
        if side.runs == 1 and several:
            other = several[0]
            between = (other.error or 0.0) / other.value * math.sqrt(other.runs)
            terms.append((max(relative, between) ** 2, other.freedom if between >= relative else side.freedom))
        elif side.runs == 1:
            terms += [(relative**2, side.freedom), (side.run_noise(run_noise) ** 2, math.inf)]
        else:
            terms.append((relative**2, side.freedom))
    variance = sum(term for term, _ in terms)
    if variance == 0:
        return Change(share, share, share)
    freedom = variance**2 / (sum(term**2 / max(count, 1e-9) for term, count in terms if count < math.inf) or 1e-300)
    half = t_quantile((1 + confidence) / 2, max(freedom, 1.0)) * math.sqrt(variance)
    return Change(share, (1 + share) * math.exp(-half) - 1, (1 + share) * math.exp(half) - 1)


def slower_share(baseline: Floats, candidate: Floats) -> float:
    """The effect size: of all pairs of a step of each side, the share in which that of the candidate is longer; half of equal pairs."""
    ordered = np.sort(baseline)
    below, up_to = np.searchsorted(ordered, candidate, "left"), np.searchsorted(ordered, candidate, "right")
    return float((below + up_to).sum() / (2 * len(baseline) * len(candidate)))


def t_quantile(probability: float, freedom: float) -> float:
    """The quantile of Student's t distribution, for probabilities of at least one half."""
    freedom = min(freedom, 1e7)
    low, high = 0.0, 1.0
    while _t_probability(high, freedom) < probability and high < 1e12:
        low, high = high, high * 2
    for _ in range(100):
        middle = (low + high) / 2
        if _t_probability(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _t_probability(value: float, freedom: float) -> float:
    return 1 - _incomplete_beta(freedom / 2, 0.5, freedom / (freedom + value * value)) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularized incomplete beta function, by its continued fraction (Lentz's method)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    fraction, numerator, denominator = 1.0, 1.0, 0.0
    for step in range(400):
        half = step // 2
        if step == 0:
            term = 1.0
        elif step % 2 == 0:
            term = half * (b - half) * x / ((a + 2 * half - 1) * (a + 2 * half))
        else:
            term = -(a + half) * (a + b + half) * x / ((a + 2 * half) * (a + 2 * half + 1))
        denominator = 1 / _away_from_zero(1 + term * denominator)
        numerator = _away_from_zero(1 + term / numerator)
        fraction *= numerator * denominator
        if abs(1 - numerator * denominator) < 1e-13:
            break
    return front * (fraction - 1)


def _away_from_zero(value: float) -> float:
    return value if abs(value) > 1e-300 else 1e-300
