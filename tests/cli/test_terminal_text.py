import proxies
from conductor.cli.terminal_text import shown_path


def test_a_path_is_as_short_as_it_can_be(tmp_path, monkeypatch):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")

    assert shown_path(proxies.__file__) == "proxies/__init__.py"
    assert shown_path(str(tmp_path / "deep" / "notes.py")) == "../notes.py"
    assert shown_path("/notes.py") == "/notes.py"


def test_a_record_of_a_trace_may_have_no_path():
    assert shown_path("") == ""
