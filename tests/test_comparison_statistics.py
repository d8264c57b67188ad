import math

import numpy as np
import pytest

from stepscope.comparison import statistics
from stepscope.comparison.statistics import Estimate, Series, change, of_side, series, slower_share, t_quantile


@pytest.mark.parametrize(("freedom", "expected"), [(1, 12.706), (2, 4.303), (4, 2.776), (10, 2.228), (30, 2.042), (1e9, 1.960)])
def test_quantiles_of_t_are_those_of_printed_tables(freedom: float, expected: float) -> None:
    assert t_quantile(0.975, freedom) == pytest.approx(expected, abs=5e-4)


def test_quantiles_of_t_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    for probability in (0.6, 0.9, 0.975, 0.9995):
        for freedom in (1.0, 1.7, 3.9643, 25.0, 4000.0):
            assert t_quantile(probability, freedom) == pytest.approx(stats.t.ppf(probability, freedom), rel=1e-9)


def test_the_interval_of_three_runs_against_three_is_that_of_welch_on_relative_errors() -> None:
    # By hand: 100 +- 2 and 110 +- 2 have relative errors 0.011547 and 0.010497; their sum has the error 0.015605 and 3.964 degrees of
    # freedom, whose 97.5 % quantile is 2.7864: a factor of exp(0.043483) to each side of 1.1.
    a, b = (of_side([Series(value, 0.0, 50.0) for value in values]) for values in ([98, 100, 102], [108, 110, 112]))
    found = change(a, b)
    assert found.share == pytest.approx(0.1)
    assert found.low == pytest.approx(1.1 * math.exp(-0.043483) - 1, abs=2e-5)
    assert found.high == pytest.approx(1.1 * math.exp(0.043483) - 1, abs=2e-5)
    assert found.certain


def test_several_runs_that_differ_hide_a_change_that_their_steps_would_show() -> None:
    runs = [Series(value, 0.01, 100.0) for value in (95.0, 100.0, 105.0)]
    slower = [Series(value * 1.03, 0.01, 100.0) for value in (95.0, 100.0, 105.0)]
    assert change(of_side(runs[1:2]), of_side(slower[1:2]), run_noise=0).certain
    assert not change(of_side(runs), of_side(slower)).certain


def test_runs_that_agree_by_chance_keep_the_error_of_their_steps() -> None:
    side = of_side([Series(100.0, 3.0, 20.0), Series(100.0, 3.0, 20.0)])
    assert side.error == pytest.approx(3.0 / math.sqrt(2))


def test_a_single_run_has_the_noise_between_the_runs_of_the_other_side() -> None:
    # The runs of A differ by 5: B with one run is assumed to, so its error is 5 %, and not 5 % / sqrt(3).
    a = of_side([Series(value, 0.01, 100.0) for value in (95.0, 100.0, 105.0)])
    b = of_side([Series(100.0, 0.01, 100.0)])
    found = change(a, b)
    error = math.sqrt(0.05**2 / 3 + 0.05**2)
    freedom = error**4 / ((0.05**2 / 3) ** 2 / 2 + 0.05**4 / 2)
    assert found.high == pytest.approx(math.exp(t_quantile(0.975, freedom) * error) - 1, rel=1e-6)


def test_two_single_runs_are_assumed_to_differ_by_the_given_noise() -> None:
    quiet = Estimate(100.0, 0.0, 50.0, 1)
    assert change(quiet, quiet, run_noise=0).visible == 0
    assert change(quiet, quiet).visible == pytest.approx(1.96 * math.sqrt(2) * 0.01, rel=1e-3)


def test_steps_that_vary_much_within_a_run_raise_the_noise_assumed_between_runs() -> None:
    disturbed = Estimate(100.0, 0.0, 50.0, 1, spread=0.5)  # the middle half of the steps spans half of the median
    assert disturbed.run_noise(0.01) == pytest.approx(0.1)
    assert Estimate(100.0, 0.0, 50.0, 1, spread=0.02).run_noise(0.01) == 0.01
    assert disturbed.run_noise(0.0) == 0.0


def test_one_step_has_no_interval() -> None:
    one = of_side([series(np.array([100.0]))])
    found = change(one, of_side([series(np.array([110.0, 111.0, 109.0]))]))
    assert found.share == pytest.approx(0.1)
    assert found.low is None
    assert not found.certain


def test_independent_steps_count_alone_and_repeated_steps_together() -> None:
    values = np.random.default_rng(1).normal(100, 1, 400)
    assert statistics.correlation_time(values) < 1.5
    assert statistics.correlation_time(np.repeat(values[:100], 4)) > 3


@pytest.mark.parametrize("correlation", [0.0, 0.7])
def test_the_interval_contains_the_truth_about_as_often_as_it_says(correlation: float) -> None:
    random, wrong = np.random.default_rng(7), 0
    for _ in range(60):
        sides = []
        for _ in range(2):
            noise = random.normal(size=160)
            for at in range(1, len(noise)):
                noise[at] += correlation * noise[at - 1]
            sides.append(of_side([series(100 * np.exp(0.02 * noise))]))
        wrong += change(sides[0], sides[1], run_noise=0).certain
    assert wrong <= 8  # of 60: 3 are expected, and more where blocks are short against the correlation


def test_an_outlier_moves_neither_the_median_nor_its_error() -> None:
    values = np.random.default_rng(3).normal(100, 1, 200)
    with_outlier = np.append(values[:-1], 1e6)
    assert series(with_outlier).median == pytest.approx(series(values).median, rel=1e-3)
    assert series(with_outlier).error == pytest.approx(series(values).error, rel=0.2)


def test_the_effect_size_is_the_share_of_slower_pairs() -> None:
    # Pairs (1, 2), (1, 3) and (2, 3) are slower, (2, 2) is equal.
    assert slower_share(np.array([1.0, 2.0]), np.array([2.0, 3.0])) == (1 + 0.5 + 1 + 1) / 4
    assert slower_share(np.array([1.0, 2.0]), np.array([1.0, 2.0])) == 0.5
