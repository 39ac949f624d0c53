"""What scalars mean, by type."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conductor.chainfile import units


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (units.seconds, "10s", 10.0),
        (units.seconds, "500ms", 0.5),
        (units.seconds, "2300ms", 2.3),
        (units.seconds, "1.5 m", 90.0),
        (units.seconds, "1h", 3600.0),
        (units.byte_size, "65536", 65536),
        (units.byte_size, "64KiB", 65536),
        (units.byte_size, "10MB", 10_000_000),
        (units.byte_size, "1 GiB", 2**30),
        (units.byte_size, "12 B", 12),
        (units.boolean, "no", False),
        (units.boolean, "On", True),
        (units.whole_number, "-1_000", -1000),
        (units.whole_number, "0x10", 16),
        (units.number, "1e3", 1000.0),
    ],
)
def test_a_scalar_is_read_by_its_type(
    read: Callable[[str], object], text: str, value: object
) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (units.seconds, "10"),
        (units.seconds, "-1s"),
        (units.seconds, "1 day"),
        (units.seconds, "9" * 400 + "s"),
        (units.byte_size, "1.5GB"),
        (units.byte_size, "10 lines"),
        (units.boolean, "1"),
        (units.boolean, ""),
        (units.whole_number, "012"),
        (units.whole_number, "1.0"),
        (units.whole_number, "٣"),
        (units.whole_number, "1" * 5000),
        (units.number, "nan"),
        (units.number, "1e400"),
    ],
)
def test_a_scalar_that_could_mean_something_else_is_refused(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ValueError, match=r"not a|invalid literal|could not convert") as caught:
        read(text)
    assert len(str(caught.value)) < 100
