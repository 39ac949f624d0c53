"""Third-party programs that speak HTTP and WebSocket, at both ends of ours.

What they need beside the peers of the directory above: the extra `http` of the Python SDK; curl and
openssl; Chromium. Where one is missing its tests are skipped with the reason, in CI they fail.
"""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from interop.conftest import unavailable

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def node_peers(node_peers: Path) -> Path:
    """With the peers of this directory, too."""
    for source in HERE.glob("*.mjs"):
        shutil.copy(source, node_peers / source.name)
    return node_peers


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
def certificate(tmp_path_factory: pytest.TempPathFactory, needs: Callable[..., str]) -> Path:
    """The directory of `cert.pem` and `key.pem`, for 127.0.0.1 and localhost."""
    directory = tmp_path_factory.mktemp("certificate")
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    made = [needs("openssl"), "req", "-x509", "-newkey", "ec", "-subj", "/CN=localhost"]
    made += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-addext", names]
    made += ["-keyout", "key.pem", "-out", "cert.pem", "-days", "2"]
    subprocess.run(made, cwd=directory, check=True, capture_output=True)
    return directory
