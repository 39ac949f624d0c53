"""How the proxy is named, loaded and started."""

from __future__ import annotations

import sys

import pytest

from conductor.cli.try_proxy.target import TargetError, load_target


@pytest.mark.parametrize(
    ("target", "shown"),
    [
        ("context", "Context, with the test agent"),
        ("notes.py:Second", "Second, with the test agent"),
        ("notes:Second", "Second, with the test agent"),
    ],
)
def test_the_proxy_is_named_in_three_ways(run, write, target, shown):
    write("class First(Proxy):\n    pass\n\n\nclass Second(Proxy):\n    pass\n")
    settings = ["--with", "text=x"] if target == "context" else []

    result = run("try", target, "--prompt", "say x", *settings)

    assert shown in result.stdout
    assert result.returncode == 0


def test_a_file_of_the_working_directory_takes_the_place_of_nothing_installed(
    monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    (tmp_path / "context").write_text("")
    (tmp_path / "tabnanny.py").write_text("raise SystemExit('of the repository')")

    assert type(load_target("context", {"text": "x"})).__name__ == "PromptContext"
    with pytest.raises(TargetError, match="tabnanny has no class 'Context'"):
        load_target("tabnanny:Context", {})


@pytest.mark.parametrize(
    ("text", "target", "problem"),
    [
        ("", "other.py", "no such file: other.py"),
        ("", "note.py", "no such file: note.py; did you mean notes.py?"),
        ("", "review.yaml", "`acp-conductor prompt review.yaml TEXT` runs the chain"),
        ("", "other", "other is neither a file nor a name for `use:`"),
        ("", "other:X", "ModuleNotFoundError: No module named 'other'"),
        ("", "notes.py", "notes.py has no proxy class; write\n\n    from conductor.proxy import"),
        ("class Notes:\n    pass\n", "notes.py", "(Notes: not derived from Proxy); write"),
        ("class N(Agent):\n    pass\n", "notes.py", "notes.py:N is an agent; try runs a proxy"),
        (
            "class A(Proxy):\n    pass\n\n\nclass B(Proxy):\n    pass\n",
            "notes.py",
            "notes.py has several proxies; write one of notes.py:A, notes.py:B",
        ),
        ("class A(Proxy):\n    pass\n", "notes.py:B", "notes.py has no class 'B'; it has A"),
        (
            "class A(Proxy)\n    pass\n",
            "notes.py",
            "notes.py:5\n      class A(Proxy)\n                    ^\n  SyntaxError: ",
        ),
        (
            "def make():\n    return 1 / 0\n\n\nmake()\n",
            "notes.py",
            "  ZeroDivisionError: division by zero\n    notes.py:9 in <module>: make()\n"
            "    notes.py:6 in make: return 1 / 0\n",
        ),
        (
            'class A(Proxy):\n    @on("session/promt")\n    async def f(self, params): pass\n',
            "notes.py",
            "A.f handles 'session/promt', which is not an ACP method: did you mean "
            "'session/prompt'?",
        ),
    ],
)
def test_a_proxy_that_cannot_be_loaded_is_explained(
    monkeypatch, tmp_path, write, text, target, problem
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    write(text)
    (tmp_path / "review.yaml").write_text("version: 1\n")

    with pytest.raises(TargetError) as caught:
        load_target(target, {})

    shown = "".join(f"{line}\n" for line in caught.value.lines)
    assert problem in shown
    assert "conductor/plugins" not in shown


def test_a_constructor_that_raises_is_told_with_its_line(run, write):
    """In a class with options, too; a `ValueError` is about them and needs none."""
    text = """@attrs.define
class Notes(Proxy):
    path: str = "/no/such/file"

    def __attrs_post_init__(self):
        %s
"""
    done = run("try", write(text % "open(self.path)"))
    assert done.returncode == 3
    assert "No such file or directory: '/no/such/file' (notes.py, line 10)\n" in done.stdout
    done = run("try", write(text % "raise ValueError('path is relative')"))
    assert "Notes: path is relative\n" in done.stdout


def test_without_a_proxy_the_exit_code_is_3(run, write):
    result = run("try", write("class A(Proxy)\n    pass\n"))

    assert result.stdout.startswith("notes.py cannot be imported:")
    assert (result.stderr, result.returncode) == ("", 3)


def test_a_proxy_that_does_not_start_is_explained(run, write):
    name = write(
        """from contextlib import asynccontextmanager


class Broken(Proxy):
    @asynccontextmanager
    async def lifespan(self):
        raise OSError("no database")
        yield
"""
    )
    result = run("try", name)

    assert "OSError: no database" in result.stdout
    assert 'notes.py:11 in lifespan: raise OSError("no database")' in result.stdout
    assert result.returncode == 3
