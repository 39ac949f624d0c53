"""Package managers: found, run without the conductor's secrets, their failures explained."""

from __future__ import annotations

from pathlib import Path

import pytest

from conductor.errors import RegistryError
from conductor.registry.tools import find_tool, run_tool, tool_environment

from .conftest import path_without_tools


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Put a program with this script on the PATH as `npm`."""

    def write(script: str) -> None:
        program = tmp_path / "bin" / "npm"
        program.parent.mkdir()
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    return write


def test_a_missing_npm_is_named_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", path_without_tools(tmp_path))

    with pytest.raises(
        RegistryError, match="`npm` is not installed, which `npx` packages"
    ) as caught:
        find_tool("npm")
    assert "Node.js" in str(caught.value.help)


def test_a_missing_uv_is_named_with_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", path_without_tools(tmp_path))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))

    with pytest.raises(
        RegistryError, match="`uv` is not installed, which `uvx` packages"
    ) as caught:
        find_tool("uv")
    assert "pip install uv" in str(caught.value.help)


def test_uv_beside_the_conductor_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", path_without_tools(tmp_path))

    assert Path(find_tool("uv")).name == "uv"


def test_a_package_manager_gets_no_secrets():
    environ = {"PATH": "/bin", "ANTHROPIC_API_KEY": "x", "npm_config_registry": "y", "LC_ALL": "C"}
    passed = tool_environment(environ)

    assert "ANTHROPIC_API_KEY" not in passed
    assert passed | {"PATH": "/bin", "npm_config_registry": "y", "LC_ALL": "C"} == passed


def test_npm_gets_the_variables_that_the_configuration_of_the_user_names(
    npm, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("COMPANY_TOKEN", "OTHER_TOKEN"):
        monkeypatch.setenv(name, "secret")
    (tmp_path / ".npmrc").write_text("//npm.example/:_authToken=${COMPANY_TOKEN?}\n")
    npm('echo "$COMPANY_TOKEN,$OTHER_TOKEN"')

    assert run_tool("npm", [], tmp_path, "x") == "secret,\n"


def test_the_last_lines_of_a_failure_are_reported_without_noise(npm, tmp_path):
    npm(
        'echo "npm warn deprecated x" >&2\n'
        'echo "npm error code E404" >&2\n'
        'echo "npm error     at ClientRequest.emit (node:events:524:28)" >&2\n'
        'echo "npm error A complete log of this run" >&2\n'
        "exit 1"
    )

    with pytest.raises(RegistryError) as caught:
        run_tool("npm", ["ci"], tmp_path, "x cannot be installed")
    assert caught.value.message == "x cannot be installed: npm error code E404"
    assert "needs the network once" in str(caught.value.help)


def test_a_wrong_checksum_is_no_problem_of_the_network(npm, tmp_path):
    npm('echo "npm error code EINTEGRITY sha512-aa but got sha512-bb" >&2; exit 1')

    with pytest.raises(RegistryError, match="sha512-aa but got sha512-bb") as caught:
        run_tool("npm", ["ci"], tmp_path, "x cannot be installed")
    assert "not the one that was pinned" in str(caught.value.help)


def test_a_package_manager_reads_nothing_of_stdin(npm, tmp_path):
    npm("cat; echo end")

    assert run_tool("npm", [], tmp_path, "x") == "end\n"


def test_the_users_limits_for_the_network_take_precedence():
    passed = tool_environment({"NPM_CONFIG_FETCH_RETRIES": "5", "UV_HTTP_TIMEOUT": "60"})

    assert "npm_config_fetch_retries" not in passed
    assert passed["npm_config_fetch_timeout"] == "13000"
    assert passed["UV_HTTP_TIMEOUT"] == "60"
