"""Directories are compared as the file system compares them."""

from __future__ import annotations

from conductor.directories import directory_spellings, glob_spellings, same_directory


def test_a_directory_is_the_same_in_every_spelling(tmp_path):
    real, link = f"{tmp_path}/real", f"{tmp_path}/link"
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    for spelling in (real, link, f"{link}/", f"{real}/../link/.", f"{tmp_path}//real"):
        assert same_directory(real, spelling)
        assert directory_spellings(spelling)[-1] == real
    for other in (str(tmp_path), f"{real}/missing", "real", "", "\0"):
        assert not same_directory(real, other)
    assert same_directory("/gone/", "/gone")
    assert directory_spellings(link) == (link, real)


def test_the_links_before_the_first_wildcard_of_a_glob_are_resolved(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")

    glob = f"{tmp_path}/link/*/src"
    assert glob_spellings(glob) == (glob, f"{tmp_path}/real/*/src")
    assert glob_spellings("**/src") == ("**/src",)
    assert glob_spellings("/**") == ("/**",)
