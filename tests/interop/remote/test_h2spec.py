"""h2spec, the conformance test of HTTP/2, against `acp-conductor serve`.

    go install github.com/summerwind/h2spec/cmd/h2spec@latest

It is found on PATH or named by `ACP_H2SPEC`; without it these tests are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from xml.etree import ElementTree

import pytest

from .programs import PATIENCE, served

H2SPEC = os.environ.get("ACP_H2SPEC") or shutil.which("h2spec")
pytestmark = pytest.mark.skipif(not H2SPEC, reason="no h2spec on PATH, none in ACP_H2SPEC")

BOTH_ON_ONE_PORT = ["http2/3.5 Sends invalid connection preface"]
"""What does not begin as HTTP/2 does is taken for HTTP/1.1, and answered as that (400)."""


@pytest.mark.parametrize("tls", [False, True], ids=["prior knowledge", "TLS"])
def test_the_server_passes_h2spec(request, tmp_path, tls):
    options, flags = [], []
    if tls:
        options = request.getfixturevalue("certificate").options
        flags = ["--tls", "--insecure"]
    report = tmp_path / "report.xml"
    with served(tmp_path, None, *options) as address:
        host, _, port = address.rpartition(":")
        command = [H2SPEC, "--host", host, "--port", port, "--path", "/health", *flags]
        command += ["--junit-report", str(report)]
        subprocess.run(command, capture_output=True, timeout=4 * PATIENCE)

    cases = ElementTree.parse(report).getroot().iter("testcase")
    failed, count = [], 0
    for case in cases:
        count += 1
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('package')} {case.get('classname')}")
    assert count > 100
    assert failed == ([] if tls else BOTH_ON_ONE_PORT)
