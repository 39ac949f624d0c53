"""Scalars by type of the field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conductor.chainfile import scalars


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (scalars.seconds, "10s", 10.0),
        (scalars.seconds, "500ms", 0.5),
        (scalars.seconds, "2300ms", 2.3),
        (scalars.seconds, "1.5 m", 90.0),
        (scalars.seconds, "1h", 3600.0),
        (scalars.byte_size, "65536", 65536),
        (scalars.byte_size, "64KiB", 65536),
        (scalars.byte_size, "10MB", 10_000_000),
        (scalars.byte_size, "1 GiB", 2**30),
        (scalars.byte_size, "12 B", 12),
        (scalars.boolean, "no", False),
        (scalars.boolean, "On", True),
        (scalars.whole_number, "-1_000", -1000),
        (scalars.whole_number, "0x10", 16),
        (scalars.number, "1e3", 1000.0),
    ],
)
def test_a_scalar_is_read_by_its_type(
    read: Callable[[str], object], text: str, value: object
) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (scalars.seconds, "10"),
        (scalars.seconds, "-1s"),
        (scalars.seconds, "1 day"),
        (scalars.seconds, "9" * 400 + "s"),
        (scalars.byte_size, "1.5GB"),
        (scalars.byte_size, "10 lines"),
        (scalars.boolean, "1"),
        (scalars.boolean, ""),
        (scalars.whole_number, "012"),
        (scalars.whole_number, "1.0"),
        (scalars.whole_number, "٣"),
        (scalars.whole_number, "1" * 5000),
        (scalars.number, "nan"),
        (scalars.number, "1e400"),
    ],
)
def test_a_scalar_that_could_mean_something_else_is_refused(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ValueError, match=r"not a|invalid literal|could not convert") as caught:
        read(text)
    assert len(str(caught.value)) < 100
