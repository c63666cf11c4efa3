"""Gains as intervals."""

from __future__ import annotations

import pytest

from raymx.results.gains import Gain, gain, quantile


def test_the_interval_holds_nine_in_ten_rows() -> None:
    found = gain(0.5, [0.4, 0.5, 0.6])
    assert found == Gain(pytest.approx(2.0), pytest.approx(1 / 0.59), pytest.approx(1 / 0.41))
    assert str(found) == "about 2.00x as fast (1.69 to 2.44)"


def test_one_row_has_no_interval() -> None:
    assert gain(0.5, [0.5]) == Gain(2.0)
    assert str(gain(0.5, [])) == "about 2.00x as fast (of one row, so with no interval)"


def test_a_change_that_may_take_away_less() -> None:
    found = gain(0.5, [0.5, 0.5], least=0.0, likely=0.25, most=0.5)
    assert (found.low, found.times, found.high) == pytest.approx((1.0, 1 / 0.875, 1 / 0.75))


def test_the_interval_holds_the_middle() -> None:
    """A median of other rows than those of the interval may lie outside of theirs."""
    found = gain(0.7, [0.5, 0.6])
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.times <= found.high


def test_all_of_a_step_is_no_division_by_zero() -> None:
    assert gain(1.0, [1.0, 1.0]).times > 1e6


@pytest.mark.parametrize(("at", "expected"), [(0.0, 1.0), (0.25, 2.0), (0.5, 3.0), (0.6, 3.4), (1.0, 5.0)])
def test_quantiles(at: float, expected: float) -> None:
    assert quantile([5.0, 3.0, 1.0, 2.0, 4.0], at) == pytest.approx(expected)
    assert quantile([7.0], at) == 7.0
