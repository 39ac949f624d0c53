"""The dict with a maximum number of items."""

from __future__ import annotations

from conductor.bounded_dict import BoundedDict


def test_a_further_key_drops_the_one_that_was_added_first():
    known = BoundedDict[str, int](2)

    dropped = [known.add(key, number) for number, key in enumerate("abc")]

    assert (dropped, dict(known)) == ([None, None, ("a", 0)], {"b": 1, "c": 2})


def test_a_key_that_is_set_again_keeps_its_place():
    known = BoundedDict[str, int](2)
    known["a"] = known["b"] = 0

    known["a"] = 1
    known["c"] = 1

    assert dict(known) == {"b": 0, "c": 1}
