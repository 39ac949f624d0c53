from datetime import datetime, time

import click
import pytest

from conductor.cli.units import DURATION, SIZE, TIME, shown_duration, shown_size


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (DURATION, "250ms", 0.25),
        (DURATION, "1.5 s", 1.5),
        (DURATION, "2m", 120.0),
        (DURATION, "3", 3.0),
        (SIZE, "20k", 20_000.0),
        (SIZE, "500", 500.0),
        (SIZE, "1.5MB", 1_500_000.0),
        (TIME, "12.5", 12.5),
        (TIME, "14:03", time(14, 3)),
        (TIME, "2026-01-31T14:03:20", datetime(2026, 1, 31, 14, 3, 20)),
    ],
)
def test_quantities_are_read_with_their_units(type, text, value):
    assert type.convert(text, None, None) == value


@pytest.mark.parametrize(("type", "text"), [(DURATION, "5 days"), (SIZE, "-1"), (TIME, "now")])
def test_a_mistake_is_answered_with_an_example(type, text):
    with pytest.raises(click.BadParameter, match="write"):
        type.convert(text, None, None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 ms"),
        (0.000116, "0.116 ms"),
        (0.09, "90 ms"),
        (1.25, "1.25 s"),
        (150, "2.5 min"),
        (25_014, "6.9 h"),
    ],
)
def test_durations_have_three_digits(seconds, text):
    assert shown_duration(seconds) == text


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (999, "999 B"), (2231, "2.23 kB"), (1_300_000, "1.3 MB")]
)
def test_sizes_have_three_digits(size, text):
    assert shown_size(size) == text
