"""Program that installs a component and then executes it (`execve`), so the process id stays.

`resolve` returns this command for a component that is not installed. It runs as the component's
process: the conductor serves meanwhile, stderr is logged and shown if the start fails, and stopping
the component stops the installation. stdin is not read before the component runs.

    python -m conductor.registry.install_program NAME --lock FILE [--scripts] [--keep VARIABLE]…

`ACP_CONDUCTOR_REGISTRY` names the registry. `--keep` names variables that the chain file sets: they
take precedence over those of the registry.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NoReturn

from conductor.chainfile.model import RegistryName
from conductor.errors import RegistryError
from conductor.registry.install import ensure_installed, fetched_registry, install_unlocked
from conductor.registry.pins import REGISTRY_VARIABLE, Pin
from conductor.registry.resolve import command_parts, find_pin
from conductor.registry.store import InstalledPackage

__all__ = ["main"]


def main() -> NoReturn:
    words = _arguments()
    source = os.environ.pop(REGISTRY_VARIABLE, None)
    name = RegistryName(words.name, words.lock, source, words.scripts)
    try:
        pin = find_pin(name)
        if pin is None:
            pin, directory, record = _install_unlocked(name)
        else:
            directory, record = ensure_installed(name.name, pin)
        argv, env = command_parts(name.name, pin, directory, record)
        own = {key: value for key, value in env.items() if key not in words.keep}
        _execute(argv, {**os.environ, **own})
    except RegistryError as exc:
        print(f"acp-conductor: `{name.name}` cannot be installed: {exc}", file=sys.stderr)
        sys.exit(1)


def _install_unlocked(name: RegistryName) -> tuple[Pin, Path, InstalledPackage]:
    entry = fetched_registry(name.source).find(name.name)
    chain = os.path.splitext(name.lock)[0]
    print(
        f"acp-conductor: `{name.name}` is not locked: resolving it, which needs the network once;"
        f" `acp-conductor lock {chain}.yaml` pins it for good",
        file=sys.stderr,
        flush=True,
    )
    return install_unlocked(entry, scripts=name.install_scripts)


def _execute(argv: tuple[str, ...], env: dict[str, str]) -> NoReturn:
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as exc:
        path = env.get("PATH", "empty")
        raise RegistryError(
            f"{argv[0]} cannot be started: {exc.strerror} (PATH is {path})"
        ) from None


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="acp-conductor install")
    parser.add_argument("name")
    parser.add_argument("--lock", required=True)
    parser.add_argument("--scripts", action="store_true")
    parser.add_argument("--keep", action="append", default=[])
    return parser.parse_args()


if __name__ == "__main__":
    main()
