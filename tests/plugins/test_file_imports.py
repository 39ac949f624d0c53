"""Import of plugin files, and of the modules beside them."""

from __future__ import annotations

import os
import py_compile
import sys
import threading

import pytest

from conductor.chainfile import ComponentSpec
from conductor.errors import StartError
from conductor.plugins import loading
from conductor.plugins.loading import ENTRY_POINT_GROUP, load_class
from conductor.proxy import Proxy
from tests.support.plugins import load_plugin

PLUGIN = """
from conductor.proxy import Proxy
{more}

class Mine(Proxy):
    said = {said}

    def say(self):
        {say}
"""


@pytest.fixture
def plugin(tmp_path):
    """Write files, and make the class `Mine` of one of them."""

    def plugin(file, **files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('_in_', '/')}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        use = f"{tmp_path}/{file}:Mine"
        return load_plugin(ComponentSpec(name="mine", use=use))

    return plugin


def source(more="", said="None", say="pass"):
    return PLUGIN.format(more=more, said=said, say=say)


def test_a_module_beside_the_plugin_can_be_imported(plugin):
    made = plugin("a.py", a=source("import helper", "helper.WORD"), helper="WORD = 'beside'")

    assert made.said == "beside"


def test_each_directory_has_its_own_modules(plugin):
    text = source("import helper\nfrom helper import WORD", "(WORD, helper.WORD)")
    files = {
        "one_in_a": text,
        "one_in_helper": "WORD = 1",
        "two_in_a": text,
        "two_in_helper": "WORD = 2",
    }
    first = plugin("one/a.py", **files)
    second = plugin("two/a.py")

    assert (first.said, second.said) == ((1, 1), (2, 2))
    assert "helper" not in sys.modules


def test_modules_beside_import_each_other_and_packages_too(plugin):
    made = plugin(
        "a.py",
        a=source("import pack.inner, helper\nfrom pack import inner as other", "pack.inner.WORD"),
        helper="from pack.inner import WORD",
        pack_in___init__="",
        pack_in_inner="import helper2\nfrom . import deep\nWORD = helper2.WORD + deep.WORD",
        pack_in_deep="WORD = 1",
        helper2="WORD = 2",
    )

    assert made.said == 3


def test_an_import_in_a_function_finds_the_module_beside(plugin):
    say = "import helper; return helper.WORD"
    files = {f"{d}_in_a": source(say=say) for d in ("one", "two")}
    files |= {"one_in_helper": "WORD = 1", "two_in_helper": "WORD = 2"}
    first, second = plugin("one/a.py", **files), plugin("two/a.py")

    assert (first.say(), second.say(), first.say()) == (1, 2, 1)


def test_plugin_files_of_one_directory_share_the_modules_beside(plugin):
    text = source("import helper", "helper")
    first = plugin("a.py", a=text, b=text, helper="")

    assert plugin("b.py").said is first.said


def test_a_relative_import_works(plugin):
    assert plugin("a.py", a=source("from .helper import W", "W"), helper="W = 1").said == 1


def test_the_standard_library_and_the_conductor_are_never_taken_from_beside(plugin):
    wrong = "raise RuntimeError('not this one')"
    more = "import json, conductor.errors, trio\nfrom conductor.proxy import on"
    files = {"json": wrong, "conductor_in___init__": wrong, "trio_in_readme": ""}
    made = plugin("a.py", a=source(more, "json.__name__"), **files)

    assert isinstance(made, Proxy)
    assert made.said == "json"


def test_a_module_that_is_missing_is_named(plugin):
    with pytest.raises(StartError) as caught:
        plugin("a.py", a=source("import helper_x"))

    assert "ModuleNotFoundError: No module named 'helper_x'" in caught.value.reason


def test_after_a_failure_the_files_are_read_again(plugin):
    with pytest.raises(StartError):
        plugin("a.py", a=source("import helper", "helper.WORD"), helper="")

    assert plugin("a.py", helper="WORD = 'now it is there'").said == "now it is there"


@pytest.mark.parametrize("name", ["my-plugin.py", "my.plugin.py"])
def test_a_file_may_have_any_name(plugin, tmp_path, name):
    (tmp_path / name).write_text(source("import helper", "1"))

    assert plugin(name, helper="").said == 1


def test_dataclasses_and_hints_resolve_in_the_module(plugin):
    more = (
        "from __future__ import annotations\nimport attrs, typing\nfrom helper import Kind\n"
        "@attrs.define\nclass Options:\n    kind: Kind\n"
    )
    text = source(said="typing.get_type_hints(Options)['kind']")
    made = plugin("a.py", a=more + text, helper="class Kind: pass")

    assert made.said.__name__ == "Kind"


def test_run_at_the_end_of_a_plugin_file_does_nothing(plugin):
    text = source("from conductor.proxy import run") + "\nrun(Mine)\n"

    assert type(plugin("a.py", a=text)).__name__ == "Mine"


@pytest.mark.parametrize(
    ("raised", "reason"),
    [
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("class E(BaseException): pass\nraise E('x')", "E: x"),
        ("def f(): f()\nf()", "RecursionError: maximum recursion depth exceeded"),
        ("open('/no/such')", "FileNotFoundError: [Errno 2] No such file or directory: '/no/such'"),
        ("(", "SyntaxError: '(' was never closed"),
    ],
)
def test_an_exception_of_a_module_is_a_start_error(tmp_path, raised, reason):
    (tmp_path / "a.py").write_text(raised)

    with pytest.raises(StartError) as caught:
        load_class(ComponentSpec(name="mine", use=f"{tmp_path}/a.py:Mine"))

    assert f"{tmp_path}/a.py cannot be imported: {reason}" in str(caught.value)
    assert caught.value.component == "mine"


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Adds a package with one component to those that are installed."""

    def install(package, name, value):
        info = tmp_path / package / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {value}\n")
        monkeypatch.syspath_prepend(tmp_path / package)
        clear()

    def clear():
        loading.entry_points.cache_clear()
        loading._all_entry_points.cache_clear()

    yield install
    monkeypatch.undo()
    clear()


def test_one_name_of_two_packages_is_an_error_that_names_both(installed):
    installed("acp-one", "mine", "one:One")
    installed("acp-two", "mine", "two:Two")
    installed("acp-usage", "usage", "theirs:Usage")

    for name, classes in (
        ("mine", "two:Two of acp-two and one:One of acp-one"),
        ("usage", "theirs:Usage of acp-usage and proxies.usage:Usage of acp-conductor"),
    ):
        with pytest.raises(StartError) as caught:
            load_class(ComponentSpec(name="x", use=name))
        assert f"several installed packages have a component {name!r}: {classes}" in str(
            caught.value
        )


def test_one_class_in_two_packages_is_no_clash(installed):
    installed("acp-old", "mine", "proxies.usage:Usage")
    installed("acp-new", "mine", "proxies.usage:Usage")

    assert load_class(ComponentSpec(name="x", use="mine")).__name__ == "Usage"


def test_compiled_code_in_the_directory_is_neither_run_nor_written(plugin, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(PLUGIN.format(more="", said="'compiled'", say="pass"))
    helper = tmp_path / "helper.py"
    helper.write_text("text = 'compiled'")
    for each in (file, helper):
        py_compile.compile(
            str(each), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH
        )
    compiled = {each: each.read_bytes() for each in (tmp_path / "__pycache__").iterdir()}

    made = plugin(
        "mine.py",
        mine=PLUGIN.format(more="import helper, other", said="'source'", say="return helper.text"),
        helper="text = 'source'",
        other="",
    )

    assert (made.said, made.say()) == ("source", "source")
    assert compiled == {each: each.read_bytes() for each in (tmp_path / "__pycache__").iterdir()}


def test_a_pipe_in_the_place_of_a_plugin_file_is_not_waited_for(plugin, tmp_path):
    """An agent may have put it there; the import runs on the event loop after a change."""
    path = tmp_path / "mine.py"
    os.mkfifo(path)
    source = PLUGIN.format(more="", said="1", say="pass")
    writer = threading.Thread(target=path.write_text, args=[source], daemon=True)
    writer.start()  # so that an import that waits ends

    with pytest.raises(StartError, match="it is a named pipe"):
        plugin("mine.py")
    with path.open() as pipe:
        assert pipe.read() == source
    writer.join()


@pytest.mark.parametrize("place", ["helper.py", "helper.pyc", "helper/__init__.py"])
def test_a_module_that_another_user_has_put_into_a_shared_directory_is_refused(
    plugin, tmp_path, monkeypatch, place
):
    path = tmp_path / place
    path.parent.mkdir(exist_ok=True)
    path.touch()
    if os.geteuid() == 0:
        os.chown(tmp_path / place.partition("/")[0], 4321, -1)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    tmp_path.chmod(0o1777)

    with pytest.raises(StartError, match="belongs to another user"):
        plugin("mine.py", mine=source("import helper"))
