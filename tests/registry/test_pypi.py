"""Packages of PyPI, installed by uv from a directory of wheels: no network."""

from __future__ import annotations

import os
import subprocess

import pytest

from conductor.errors import RegistryError
from conductor.registry.pypi import install_pypi, pin_pypi, split_requirement
from conductor.registry.source import PackageDistribution

from .conftest import wheel


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A directory of wheels that uv looks in, and nowhere else."""
    directory = tmp_path / "wheels"
    directory.mkdir()
    monkeypatch.setenv("UV_FIND_LINKS", str(directory))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return directory


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("notes", ("notes", "notes")),
        ("notes==1.2.3", ("notes", "notes==1.2.3")),
        ("notes@1.2.3", ("notes", "notes==1.2.3")),
        ("notes@latest", ("notes", "notes")),
        ("notes[acp,web]==1.2", ("notes", "notes[acp,web]==1.2")),
    ],
)
def test_a_requirement_has_a_name_and_a_version(text, expected):
    assert split_requirement(text) == expected


@pytest.mark.parametrize(
    "text", ["", "-r x", "./notes", "notes @ https://example.org/x.whl", "git+https://a/b", "a;b"]
)
def test_what_is_no_package_of_pypi_is_refused(text):
    with pytest.raises(RegistryError, match="is not the name of a PyPI package"):
        split_requirement(text)


@pytest.mark.slow
def test_a_package_and_what_it_needs_are_pinned_and_installed(wheels, tmp_path):
    wheel(wheels, "notes_acp", "1.2.0", "import helper; print('hello', helper.VALUE)", "helper")
    wheel(wheels, "helper", "3.0", "VALUE = 42")
    pin = pin_pypi(PackageDistribution("notes-acp"), scripts=False)

    assert (pin.version, len(pin.requirements)) == ("1.2.0", 2)
    assert all("--hash=sha256:" in line for line in pin.requirements)

    directory = tmp_path / "staging"
    directory.mkdir()
    record = install_pypi(pin, directory)
    directory = directory.rename(tmp_path / "installed")  # as the store does
    done = subprocess.run(
        record.command(directory), capture_output=True, text=True, env={"PATH": os.defpath}
    )
    assert done.stdout == "hello 42\n", done.stderr


@pytest.mark.parametrize("place", [".", "data/acp-conductor/agents/staging"])
def test_the_configuration_of_a_directory_above_does_not_count_and_that_of_the_user_does(
    place, tmp_path, monkeypatch
):
    for owner, version in (("user", "1.0"), ("other", "2.0")):
        (tmp_path / owner / "uv").mkdir(parents=True)
        wheel(tmp_path / owner, "notes", version, "")
        settings = f'find-links = ["{tmp_path / owner}"]\nno-index = true\n'
        (tmp_path / owner / "uv" / "uv.toml").write_text(settings)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    above = tmp_path / place
    above.mkdir(parents=True, exist_ok=True)
    (above / "uv.toml").write_text(settings)
    (above / "pyproject.toml").write_text(
        '[project]\nname = "x"\nversion = "1"\n[tool.uv.workspace]\nmembers = ["**"]\n'
    )
    monkeypatch.setenv("TMPDIR", str(above))
    monkeypatch.chdir(above)

    assert pin_pypi(PackageDistribution("notes"), scripts=False).version == "1.0"


@pytest.mark.slow
def test_another_wheel_than_the_pinned_one_is_refused_with_both_hashes(
    wheels, tmp_path, monkeypatch
):
    wheel(wheels, "notes", "1.0", "print('good')")
    pin = pin_pypi(PackageDistribution("notes==1.0"), scripts=False)
    wheel(wheels, "notes", "1.0", "print('bad')")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "another"))  # which has no good one
    (pinned,) = [word[14:] for word in pin.requirements[0].split() if word.startswith("--hash")]

    with pytest.raises(RegistryError, match="not the one that was pinned") as caught:
        install_pypi(pin, tmp_path)
    assert pinned in caught.value.message
    assert caught.value.message.count("sha256:") >= 2


def test_a_package_that_must_be_built_is_refused_unless_it_is_allowed(wheels):
    (wheels / "notes-1.0.tar.gz").write_bytes(b"")

    with pytest.raises(RegistryError, match="notes cannot be resolved"):
        pin_pypi(PackageDistribution("notes"), scripts=False)


@pytest.mark.slow
def test_a_package_without_a_program_of_its_name_is_refused(wheels, tmp_path):
    wheel(wheels, "notes", "1.0", "", program="other")
    pin = pin_pypi(PackageDistribution("notes"), scripts=False)

    with pytest.raises(RegistryError, match="has no program 'notes'"):
        install_pypi(pin, tmp_path)
