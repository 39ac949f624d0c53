import click
import pytest

from conductor.cli.units import DURATION, shown_duration, shown_size


@pytest.mark.parametrize(
    ("text", "value"), [("250ms", 0.25), ("1.5 s", 1.5), ("2m", 120.0), ("3", 3.0)]
)
def test_durations_are_read_with_their_units(text, value):
    assert DURATION.convert(text, None, None) == value


def test_a_mistake_is_answered_with_an_example():
    with pytest.raises(click.BadParameter, match="write"):
        DURATION.convert("5 days", None, None)


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
