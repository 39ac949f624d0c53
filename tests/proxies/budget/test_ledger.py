from __future__ import annotations

import datetime
import json
import subprocess
import sys

import pytest

from proxies.budget import ledger as ledger_module
from proxies.budget.ledger import Ledger, LedgerError


class Clock(datetime.date):
    day = "2026-11-21"

    @classmethod
    def today(cls):
        return datetime.date.fromisoformat(cls.day)


@pytest.fixture
def clock(monkeypatch):
    class Own(Clock):
        pass

    monkeypatch.setattr(ledger_module.datetime, "date", Own)
    return Own


@pytest.fixture(params=["memory", "file"])
def ledger(request, tmp_path):
    return Ledger(tmp_path / "day.json" if request.param == "file" else None)


def turns(limit):
    return lambda sums: "full" if sums.get("turns", 0) >= limit else None


def test_amounts_add_up(ledger, clock):
    assert ledger.sums() == {}
    ledger.add({"turns": 1, "cost": 0.5})
    assert ledger.sums() == {"turns": 1, "cost": 0.5}
    ledger.add({"cost": 0.25})
    assert ledger.sums() == {"turns": 1, "cost": 0.75}


def test_nothing_is_reserved_beyond_a_limit(ledger, clock):
    assert [ledger.reserve({"turns": 1}, turns(2)) for _ in range(3)] == [None, None, "full"]
    ledger.refund({"turns": 1}, ledger.today())
    assert [ledger.reserve({"turns": 1}, turns(2)) for _ in range(2)] == [None, "full"]
    assert ledger.sums() == {"turns": 2}


def test_sums_start_at_zero_each_day(ledger, clock):
    ledger.add({"turns": 1})
    yesterday, clock.day = clock.day, "2026-11-22"

    assert ledger.sums() == {}
    ledger.add({"turns": 2})
    ledger.refund({"turns": 1}, yesterday)
    assert ledger.sums() == {"turns": 2}


def test_ledgers_with_the_same_file_share_their_sums(tmp_path, clock):
    one, two = (Ledger(tmp_path / "day.json") for _ in range(2))
    one.add({"turns": 1})
    two.add({"turns": 2})

    assert one.sums() == {"turns": 3}
    assert json.loads((tmp_path / "day.json").read_text())["day"] == "2026-11-21"
    assert (tmp_path / "day.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"day": "2026-11-21"}',
        "x" * 1000,
        "[" * 10_000,
        "\0" * 10,
        '{"day": "2026-11-21", "sums": {"turns": "1"}}',
        '{"day": "2026-11-21", "sums": {"turns": NaN}}',
    ],
)
def test_a_file_that_is_no_ledger_is_an_error_and_stays_as_it_is(tmp_path, clock, content):
    file = tmp_path / "day.json"
    file.write_text(content)

    with pytest.raises(LedgerError, match=r"is not a ledger .* remove it to start a new one"):
        Ledger(file).reserve({"turns": 1}, turns(9))
    assert file.read_text() == content


def test_remains_of_older_content_after_a_crash_are_ignored(tmp_path, clock):
    file = tmp_path / "day.json"
    file.write_text('{"day": "2026-11-21", "sums": {"turns": 3}}": 0.123456}}')
    ledger = Ledger(file)
    ledger.add({"turns": 1})

    assert json.loads(file.read_text())["sums"] == {"turns": 4}


def test_a_link_that_an_agent_has_put_in_its_place_is_neither_read_nor_written(tmp_path):
    file, other = tmp_path / "day.json", tmp_path / "other"
    other.write_text("{}")
    file.symlink_to(other)

    with pytest.raises(LedgerError, match="it is a symbolic link"):
        Ledger(file).reserve({"turns": 1}, turns(9))
    assert other.read_text() == "{}"


def test_a_disk_that_is_full_is_an_error_and_nothing_is_forgotten(tmp_path, clock, monkeypatch):
    ledger = Ledger(tmp_path / "day.json")
    ledger.add({"cost": 1})
    with monkeypatch.context() as patch:
        patch.setattr(ledger_module.os, "pwrite", lambda fd, data, offset: 0)
        with pytest.raises(LedgerError, match="No space left on device"):
            ledger.add({"cost": 2})
        assert ledger.sums() == {"cost": 3}

    assert ledger.reserve({"turns": 1}, lambda sums: None if sums["cost"] == 3 else "?") is None
    assert Ledger(tmp_path / "day.json").sums() == {"cost": 3, "turns": 1}


def test_processes_do_not_exceed_a_limit_together(tmp_path):
    file = tmp_path / "day.json"
    script = (
        "import sys; from pathlib import Path\n"
        "from proxies.budget.ledger import Ledger, LedgerError\n"
        "ledger, taken = Ledger(Path(sys.argv[1])), 0\n"
        "for _ in range(80):\n"
        "    try:\n"
        "        full = ledger.reserve({'turns': 1}, lambda s: s.get('turns', 0) >= 100 or None)\n"
        "        taken += full is None\n"
        "    except LedgerError: pass\n"
        "print(taken)"
    )
    argv = [sys.executable, "-c", script, str(file)]
    others = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    taken = sum(int(other.communicate(timeout=60)[0]) for other in others)

    assert taken == Ledger(file).sums()["turns"] <= 100
