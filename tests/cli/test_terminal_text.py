import proxies
from conductor.cli.terminal_text import shown_path, table


def test_a_path_is_as_short_as_it_can_be(tmp_path, monkeypatch):
    (tmp_path / "deep" / "er").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "er")

    assert shown_path(proxies.__file__) == "proxies/__init__.py"
    assert shown_path(str(tmp_path / "deep" / "notes.py")) == "../notes.py"
    assert shown_path("/notes.py") == "/notes.py"


def test_a_record_of_a_trace_may_have_no_path():
    assert shown_path("") == ""


def test_columns_are_aligned_and_a_row_may_end_early():
    assert list(table(("name", "count", "size"), [("a long name", "7"), ("b", "1000", "5 B")])) == [
        "name         count  size",
        "a long name      7",
        "b             1000   5 B",
    ]


def test_wide_characters_take_two_columns():
    assert list(table(("name", "count"), [("日本", "7"), ("b", "10")])) == [
        "name  count",
        "日本      7",
        "b        10",
    ]


def test_names_of_a_table_that_is_too_wide_are_cut_in_the_middle():
    rows = [("permissions /src/proxies/permissions.py:75", "7"), ("b", "10")]
    assert list(table(("handler", "count"), rows, width=30)) == [
        "handler                  count",
        "permiss…rmissions.py:75      7",
        "b                           10",
    ]
