"""Third-party HTTP and WebSocket programs, as clients and as servers.

What they need beside the peers of the directory above: the extra `http` of the Python SDK, curl,
and Chromium. Where one is missing its tests are skipped with the reason, in CI they fail.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest
import trustme
from interop.conftest import unavailable


@attrs.frozen
class Certificate:
    """Files of a server, and of the authority that has signed it."""

    directory: Path

    @property
    def authority(self) -> str:
        return str(self.directory / "ca.pem")

    @property
    def cert(self) -> str:
        return str(self.directory / "cert.pem")

    @property
    def key(self) -> str:
        return str(self.directory / "key.pem")

    @property
    def options(self) -> list[str]:
        """Of `acp-conductor serve`."""
        return ["--tls-cert", self.cert, "--tls-key", self.key]


@pytest.fixture(scope="session")
def needs() -> Callable[..., str]:
    """The path of the first of some programs that is there."""

    def needs(*names: str) -> str:
        found = [path for path in map(shutil.which, names) if path]
        if not found:
            unavailable(f"these tests need {' or '.join(names)}, which is not on PATH")
        return found[0]

    return needs


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """For 127.0.0.1 and localhost."""
    made = Certificate(tmp_path_factory.mktemp("certificate"))
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    authority.cert_pem.write_to_path(made.authority)
    issued.private_key_pem.write_to_path(made.key)
    for number, blob in enumerate(issued.cert_chain_pems):
        blob.write_to_path(made.cert, append=number > 0)
    return made
