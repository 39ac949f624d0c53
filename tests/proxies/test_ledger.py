from __future__ import annotations

import datetime
import json

import pytest

from proxies import _ledger
from proxies._ledger import Ledger


class Clock(datetime.date):
    day = "2026-11-21"

    @classmethod
    def today(cls):
        return datetime.date.fromisoformat(cls.day)


@pytest.fixture
def clock(monkeypatch):
    class Own(Clock):
        pass

    monkeypatch.setattr(_ledger.datetime, "date", Own)
    return Own


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(tmp_path / "day.json" if request.param == "file" else None)


def test_amounts_add_up(ledger, clock):
    assert ledger.add({}) == {}
    assert ledger.add({"turns": 1, "cost": 0.5}) == {"turns": 1, "cost": 0.5}
    assert ledger.add({"cost": 0.25}) == {"turns": 1, "cost": 0.75}
    assert ledger.add({}) == {"turns": 1, "cost": 0.75}


def test_a_new_day_begins_at_nothing(ledger, clock):
    ledger.add({"turns": 1})
    clock.day = "2026-11-22"

    assert ledger.add({}) == {}
    assert ledger.add({"turns": 2}) == {"turns": 2}


def test_ledgers_with_the_same_file_share_their_sums(tmp_path, clock):
    one, two = (Ledger(tmp_path / "day.json") for _ in range(2))
    one.add({"turns": 1})
    two.add({"turns": 2})

    assert one.add({}) == {"turns": 3}
    assert json.loads((tmp_path / "day.json").read_text())["day"] == "2026-11-21"
    assert (tmp_path / "day.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["{", "[]", '{"day": "2026-11-21"}', "x" * 1000])
def test_a_file_that_says_nothing_is_begun_anew(tmp_path, clock, content):
    (tmp_path / "day.json").write_text(content)
    ledger = Ledger(tmp_path / "day.json")

    assert ledger.add({"turns": 1}) == {"turns": 1}
    assert ledger.add({}) == {"turns": 1}
