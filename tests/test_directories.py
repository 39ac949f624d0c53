"""Directories are compared as the file system compares them."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
from support.external_programs import program

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


_BOUND = """
import os
from conductor.directories import same_directory
from conductor.places import find_project_file

one, other = (os.path.join(os.environ["HOME"], name) for name in ("one", "other"))
assert same_directory(one, other)
os.environ["HOME"] = one
assert find_project_file(other) is None  # the home directory, at another place
"""


@pytest.mark.external
def test_a_directory_that_is_mounted_twice_is_the_same(tmp_path):
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / ".acp-conductor.yaml").touch()
    mount = 'mount --bind "$HOME/one" "$HOME/other"'
    made = [program("unshare"), "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*made, mount], env={**os.environ, "HOME": str(tmp_path)}).returncode:
        pytest.skip("this user cannot mount directories")

    command = [*made, f'{mount} && exec "$0" -c "$1"', sys.executable, _BOUND]
    subprocess.run(command, env={**os.environ, "HOME": str(tmp_path)}, check=True)
