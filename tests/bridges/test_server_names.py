from __future__ import annotations

from bridges.server_names import ServerNames


def test_a_server_keeps_its_declared_name():
    names = ServerNames()
    assert [names.choose("tools", ()), names.choose("tools", ())] == ["tools", "tools"]


def test_a_name_of_the_same_set_up_is_taken():
    assert ServerNames().choose("tools", {"tools", "tools-2"}) == "tools-3"


def test_sessions_apart_share_no_name():
    names = ServerNames(apart=True)
    assert [names.choose("tools", ()) for _ in range(3)] == ["tools", "tools-2", "tools-3"]


def test_a_session_that_is_set_up_again_has_its_names_again():
    names = ServerNames(apart=True)
    names.choose("tools", ())
    names.choose("tools", ())
    assert names.choose("tools", (), own="tools") == "tools"
    assert names.choose("tools", (), own="tools-2") == "tools-2"


def test_a_name_is_free_again_after_its_last_server():
    names = ServerNames(apart=True)
    names.choose("tools", ())
    names.choose("tools", (), own="tools")
    names.free(["tools"])
    assert names.is_used("tools")
    names.free(["tools"])
    assert names.choose("tools", ()) == "tools"


def test_the_search_for_a_name_does_not_begin_anew_every_time():
    """A session costs the same however many there were."""
    tried = []

    class Counting(dict):
        def __contains__(self, name):
            tried.append(name)
            return super().__contains__(name)

    names = ServerNames(apart=True)
    names._used = Counting()
    given = [names.choose("tools", ()) for _ in range(1000)]

    assert len(set(given)) == 1000
    assert len(tried) < 4000
