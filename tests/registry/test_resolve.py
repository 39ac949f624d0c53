"""Resolving without network: lock file, store, snapshot, and the command of the installer."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from conductor.chainfile.model import Sandbox
from conductor.errors import RegistryError
from conductor.registry.install import install_unlocked
from conductor.registry.pins import NpxPin, UvxPin, write_lock
from conductor.registry.resolve import INSTALL_SECONDS, registry_status, resolved
from conductor.registry.source import load_registry
from conductor.registry.store import package_directory

from .conftest import AGENT, agent_spec, binary_entry, entry, put_into_store, tar_of

PIN = UvxPin("echo", "1.0.0", "3.12", ("echo==1.0.0 --hash=sha256:0",), args=("--acp",))


def locked(chain, registry_file, agent="echo", pin=PIN):
    registry_file(entry(uvx={"package": "echo==9.9.9"}))
    path = chain(agent)
    write_lock(str(path.with_suffix(".lock")), {"echo": pin})
    return agent_spec(path)


def test_the_lock_file_decides_and_not_the_registry(chain, registry_file):
    spec = locked(chain, registry_file)
    directory = put_into_store(PIN)

    assert resolved(spec).run == (str(directory / "echo"), "--acp")


def test_an_interpreter_comes_before_the_program(chain, registry_file):
    directory = put_into_store(PIN, interpreter=("node", "--no-warnings"))

    assert resolved(locked(chain, registry_file)).run == (
        *("node", "--no-warnings", str(directory / "echo"), "--acp"),
    )


def test_variables_of_the_chain_file_take_precedence(chain, registry_file):
    pin = msgspec.structs.replace(PIN, env={"A": "registry", "B": "registry"})
    put_into_store(pin)
    spec = locked(chain, registry_file, "{registry: echo, env: {A: file}}", pin)

    assert resolved(spec).env == {"A": "file", "B": "registry"}


def test_without_a_lock_file_the_pin_of_the_first_start_is_kept(chain, registry_file, server):
    url = server.put("/echo.tgz", tar_of({"echo": AGENT}))
    path = registry_file(binary_entry(url, args=["acp"]))
    spec = agent_spec(chain())
    _, directory, _ = install_unlocked(load_registry(str(path)).find("echo"), scripts=False)
    server.bodies.clear()

    assert resolved(spec).run == (str(directory / "echo"), "acp")


def test_what_is_not_installed_gets_the_command_of_the_installer(chain, registry_file):
    registry_file(entry(uvx={"package": "echo"}))
    path = chain("{registry: echo, env: {TOKEN: hunter2}, install_scripts: yes}")
    found = resolved(agent_spec(path))

    assert found.run == (
        *(sys.executable, "-P", "-m", "conductor.registry.install_program", "echo"),
        *("--lock", str(path.with_suffix(".lock")), "--scripts", "--keep", "TOKEN"),
    )
    assert found.env["ACP_CONDUCTOR_REGISTRY"] == str(path.parent / "registry.json")
    assert found.start_timeout == 30 + INSTALL_SECONDS


def test_a_registry_at_a_url_that_was_not_fetched_is_left_to_the_installer(chain):
    found = resolved(agent_spec(chain(more="registry: 'https://example.org/?token=hunter2'\n")))

    assert "conductor.registry.install_program" in (found.run or ())
    assert not any("hunter2" in word for word in found.run or ())


@pytest.mark.parametrize("setting", ["sandbox: yes", "inherit_env: no"])
def test_nothing_is_installed_from_a_sandbox_or_an_empty_environment(chain, registry_file, setting):
    registry_file(entry(uvx={"package": "echo"}))
    spec = agent_spec(chain(f"{{registry: echo, {setting}}}"))

    with pytest.raises(RegistryError, match="is not installed") as caught:
        resolved(spec)
    assert "acp-conductor lock" in str(caught.value.help)


def test_a_sandbox_shows_the_package_and_its_interpreter(chain, registry_file):
    directory = put_into_store(PIN, needs=("echo",))
    spec = locked(chain, registry_file, "{registry: echo, sandbox: {read: [/data]}}")

    assert isinstance(spec.sandbox, Sandbox)
    found = resolved(spec).sandbox
    assert found is not None
    assert found.read == ("/data", str(directory), str(directory.parent))


def test_a_lock_file_without_the_installation_scripts_that_the_chain_file_allows_is_refused(
    chain, registry_file
):
    spec = locked(chain, registry_file, "{registry: echo, install_scripts: yes}")

    with pytest.raises(RegistryError, match="`echo` without installation scripts"):
        resolved(spec)


def test_resolving_imports_nothing_that_installs(chain, registry_file):
    packages = {f"node_modules/{n}": {"integrity": "sha512-x"} for n in range(500)}
    pin = NpxPin("echo", "1.0.0", "sha512-x", packages)
    put_into_store(pin)
    path = chain()
    write_lock(str(path.with_suffix(".lock")), {"echo": pin})
    program = (
        "import sys; from conductor.chainfile import load; "
        "from conductor.registry.resolve import resolved; "
        f"spec = resolved(load({str(path)!r}).agent); "
        "print(spec.run[0]); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    run, modules = done.stdout.splitlines()
    assert run == str(package_directory("echo", pin) / "echo")
    heavy = {"httpx2", "trio", "subprocess", "tarfile", "asyncio", "conductor.registry.install"}
    assert heavy & set(modules.split()) == set()


def test_other_packages_than_those_that_are_installed_are_not_installed(chain, registry_file):
    registry_file()
    pin = UvxPin("echo", "1.0.0", "3.11", ("echo==1.0.0 --hash=sha256:0",))
    put_into_store(pin)
    changed = msgspec.structs.replace(pin, requirements=("evil==1.0.0 --hash=sha256:1",))
    path = chain()
    states = []
    for each in (pin, changed):
        write_lock(str(path.with_suffix(".lock")), {"echo": each})
        states.append(str(registry_status(agent_spec(path).registry)))

    detail = "1.0.0 (uvx, 1 package, locked"
    assert states == [f"{detail}, installed)", f"{detail}, not installed)"]
