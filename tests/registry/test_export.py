"""The entry of a chain in a registry."""

from __future__ import annotations

import json

import pytest

from conductor import __version__
from conductor.chainfile import load
from conductor.errors import RegistryError
from conductor.registry.entries import parse_registry
from conductor.registry.export import export_entry, export_warnings, portable_arguments

PLAIN = "version: 1\nproxies:\n  - run: [uvx, notes, --db, my notes]\nagent:\n  run: [some-agent]\n"


@pytest.fixture
def chain(tmp_path):
    def chain(text):
        path = tmp_path / "My Review.yaml"
        path.write_text(text)
        return load(path)

    return chain


def test_a_chain_of_programs_is_in_the_arguments(chain):
    found = chain(PLAIN)

    assert portable_arguments(found) == ["agent", "uvx notes --db 'my notes'", "some-agent"]
    assert list(export_warnings(found, "/srv/review.yaml")) == []


@pytest.mark.parametrize(
    "text",
    [
        PLAIN + "  env: {TOKEN: secret}\n",
        PLAIN + "  start_timeout: 1s\n",
        PLAIN + "mcp_bridge: off\n",
        PLAIN.replace("some-agent", "./some-agent"),
        "version: 1\nagent:\n  use: test-agent\n",
    ],
)
def test_any_other_chain_is_named_by_its_path(chain, text):
    found = chain(text)
    entry = export_entry(found, "/srv/review.yaml")

    assert entry["distribution"]["uvx"]["args"] == ["run", "/srv/review.yaml"]
    assert "secret" not in json.dumps(entry)
    (warning,) = export_warnings(found, "/srv/review.yaml")
    assert warning == "the entry is for machines that have the chain file at /srv/review.yaml"


def test_the_reader_of_registries_reads_the_entry(chain):
    entry = export_entry(chain(PLAIN), "/srv/review.yaml")

    read = parse_registry(json.dumps({"agents": [entry]}).encode(), "test", "today")
    found = read.find("my-review")
    assert list(found.kinds("linux-x86_64")) == ["uvx"]
    assert found.distribution.uvx.package == f"acp-conductor=={__version__}"
    assert found.description == "notes → some-agent, run by acp-conductor"


def test_id_name_and_description_can_be_given(chain):
    entry = export_entry(chain(PLAIN), "/a", id="mine", name="Mine", description="Reviews")

    assert (entry["id"], entry["name"], entry["description"]) == ("mine", "Mine", "Reviews")


@pytest.mark.parametrize("id", ["", "1a", "Mine", "a b"])
def test_an_id_that_registries_refuse_is_an_error(chain, id):
    with pytest.raises(RegistryError, match="is not a registry id\nhelp: an id begins"):
        export_entry(chain(PLAIN), "/a", id=id)
