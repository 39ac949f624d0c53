"""Scalars by type of the field."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conductor.chainfile import values


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (values.seconds, "10s", 10.0),
        (values.seconds, "500ms", 0.5),
        (values.seconds, "2300ms", 2.3),
        (values.seconds, "1.5 m", 90.0),
        (values.seconds, "1h", 3600.0),
        (values.byte_size, "65536", 65536),
        (values.byte_size, "64KiB", 65536),
        (values.byte_size, "10MB", 10_000_000),
        (values.byte_size, "1 GiB", 2**30),
        (values.byte_size, "12 B", 12),
        (values.boolean, "no", False),
        (values.boolean, "On", True),
        (values.whole_number, "-1_000", -1000),
        (values.whole_number, "0x10", 16),
        (values.number, "1e3", 1000.0),
    ],
)
def test_a_scalar_is_read_by_its_type(
    read: Callable[[str], object], text: str, value: object
) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (values.seconds, "10"),
        (values.seconds, "-1s"),
        (values.seconds, "1 day"),
        (values.seconds, "9" * 400 + "s"),
        (values.byte_size, "1.5GB"),
        (values.byte_size, "10 lines"),
        (values.boolean, "1"),
        (values.boolean, ""),
        (values.whole_number, "012"),
        (values.whole_number, "1.0"),
        (values.whole_number, "٣"),
        (values.whole_number, "1" * 5000),
        (values.number, "nan"),
        (values.number, "1e400"),
    ],
)
def test_a_scalar_that_could_mean_something_else_is_refused(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(ValueError, match=r"not a|invalid literal|could not convert") as caught:
        read(text)
    assert len(str(caught.value)) < 100
