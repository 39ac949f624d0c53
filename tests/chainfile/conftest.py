"""Chain files written for one test, in a directory that is the working directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from conductor.chainfile import ChainFile, load
from conductor.errors import ChainFileError


@pytest.fixture
def chain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ChainFile]:
    """Load `chain.yaml` with this text; more files are given as a mapping."""

    def load_text(
        text: str | bytes,
        environ: dict[str, str] | None = None,
        files: dict[str, str] | None = None,
    ) -> ChainFile:
        monkeypatch.chdir(tmp_path)
        for name, other in (files or {}).items():
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text(dedent(other), encoding="utf-8")
        data = text if isinstance(text, bytes) else dedent(text).encode()
        Path("chain.yaml").write_bytes(data)
        return load("chain.yaml", environ=environ or {})

    return load_text


@pytest.fixture
def diagnostics(chain: Callable[..., ChainFile]) -> Callable[..., str]:
    """What is printed about a chain file that has mistakes."""

    def print_problems(*args: object, **kwargs: object) -> str:
        with pytest.raises(ChainFileError) as caught:
            chain(*args, **kwargs)
        return "\n" + str(caught.value) + "\n"

    return print_problems
