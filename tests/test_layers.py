"""Imports go one way and in no cycle, and pure modules need neither trio nor structlog.

A module may import modules of its own layer and of the layers before it. Imports for the type
checker and imports in functions count too, but for the listed exceptions.
"""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.public_api import MODULES

ROOT = Path(__file__).parent.parent

LAYERS = [
    {
        "background_tasks",
        "bounded_dict",
        "directories",
        "error_codes",
        "errors",
        "exit_codes",
        "files",
        "json_values",
        "limits",
        "log",
        "places",
        "secrets",
        "setting_forms",
        "token_bucket",
    },
    {"schema", "chainfile"},
    {"registry"},
    {"jsonrpc"},
    {"acp", "adapters"},
    {"transport"},
    {"routing"},
    {"tracing"},
    {"proxy"},
    {"peer"},
    {"network", "remote"},
    {"supervision"},
    {"plugins"},
    {"bridge_api"},
    {"control"},
    {"chain"},
    {"client", "server"},
    {"telemetry", "testing"},
    {"viewer"},
    {"cli", "standalone"},
]
"""Parts of `conductor`, each allowed to import what is before it."""

EXCEPTIONS = {
    # The Transport protocol: a connection is given one, and needs nothing else of that package.
    ("conductor.jsonrpc.connection", "conductor.transport.base"),
    # `run()` is how the program of a stand-alone proxy starts: it needs the whole runtime.
    ("conductor.proxy", "conductor.standalone"),
}
"""Imports of a later layer, as importer and imported."""

ALONE = {"schema", "chainfile"}
"""Parts that must not import the runtime before them either, but for `OF_ALONE`."""
OF_ALONE = {"directories", "errors", "files", "json_values", "limits", "places"}

PACKAGES = ("conductor", "proxies", "bridges")
FRONTS = ("conductor.proxy", "conductor.bridge_api")
"""Packages from which a pure module of a proxy or of the bridge may import names: they load trio,
which such a module does not use."""

PUBLIC = {
    *MODULES,
    "conductor.bridge_api",
    "conductor.log",
    "conductor.schema",
    "conductor.schema.v1",
    "conductor.schema.v2",
}
"""What proxies and bridges, ready-made or of others, are written on."""


class Import:
    """One import: importer, imported module, place."""

    def __init__(
        self, path: Path, line: int, target: str, names: list[str], when: str = "import"
    ) -> None:
        self.place = f"{path.relative_to(ROOT)}:{line}"
        self.target = target
        self.names = names
        self.when = when
        """`import`; `call` of the function that it stands in; never: `type checking`."""


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports(path: Path) -> list[Import]:
    return _imports_of(path, path.read_text())


@cache
def _imports_of(path: Path, source: str) -> list[Import]:
    return list(_imports(path, ast.parse(source).body, "import"))


def _imports(path: Path, body: list[ast.stmt], when: str) -> Iterator[Import]:
    for node in body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, [], when)
        elif isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            yield Import(path, node.lineno, _absolute(path, node), names, when)
        elif isinstance(node, ast.If) and _has_name(node.test, "TYPE_CHECKING"):
            yield from _imports(path, node.body, "type checking")
            yield from _imports(path, node.orelse, when)
        else:
            is_call = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or _is_main(node)
            for field in ("body", "orelse", "finalbody", "handlers"):
                children = [
                    child for child in getattr(node, field, []) if isinstance(child, ast.AST)
                ]
                yield from _imports(path, children, "call" if is_call else when)  # type: ignore[arg-type]


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and _has_name(node.test, "__name__")


def _has_name(test: ast.expr, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(test))


def _absolute(path: Path, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module_of(path).split(".")
    if path.name != "__init__.py":
        package.pop()
    base = package[: len(package) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])


def part_of(module: str) -> str:
    """The part of `conductor` that a module belongs to; "" for the package itself."""
    return module.split(".")[1] if "." in module else ""


def layer_of(part: str) -> int:
    for index, layer in enumerate(LAYERS):
        if part in layer:
            return index
    raise AssertionError(f"conductor.{part} is in no layer: add it to LAYERS in {__file__}")


def test_imports_go_one_way():
    wrong = []
    for path in modules("conductor"):
        importer = part_of(module_of(path))
        if importer in ("", "__main__"):
            continue
        for each in imports(path):
            imported = part_of(each.target)
            if not each.target.startswith("conductor.") or (
                (module_of(path), each.target) in EXCEPTIONS
            ):
                continue
            backwards = layer_of(imported) > layer_of(importer)
            runtime = importer in ALONE and imported not in {importer, *OF_ALONE}
            if backwards or runtime:
                wrong.append(f"{each.place}: conductor.{importer} imports {each.target}")

    assert not wrong, "\n" + "\n".join(wrong)


def test_every_exception_is_needed():
    found = {
        (module_of(path), each.target) for path in modules("conductor") for each in imports(path)
    }

    assert found >= EXCEPTIONS


def test_no_modules_import_each_other_in_a_circle():
    paths = {
        module_of(path): path
        for package in ("conductor", "proxies", "bridges")
        for path in modules(package)
    }
    imported = {
        module: {
            full if (full := f"{each.target}.{name}") in paths else each.target
            for each in imports(path)
            # The public names of the package itself are imported when a program uses one.
            if (module, each.when) != ("conductor", "type checking")
            for name in each.names or [""]
        }
        & (paths.keys() - {module})
        for module, path in paths.items()
    }

    try:
        TopologicalSorter(imported).prepare()
    except CycleError as error:
        pytest.fail("modules import each other: " + " <- ".join(error.args[1]))


def test_the_conductor_imports_neither_proxies_nor_bridges():
    wrong = [
        f"{each.place}: imports {each.target}"
        for path in modules("conductor")
        for each in imports(path)
        if each.target.split(".")[0] in ("proxies", "bridges")
    ]

    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("package", ["proxies", "bridges"])
def test_proxies_and_bridges_import_only_public_names(package):
    wrong = []
    for path in modules(package):
        for each in imports(path):
            root = each.target.split(".")[0]
            if root in {"proxies", "bridges"} - {package}:
                wrong.append(f"{each.place}: imports {each.target}")
            if root != "conductor":
                continue
            if each.target not in PUBLIC:
                wrong.append(f"{each.place}: {each.target} is not public")
                continue
            public = importlib.import_module(each.target)
            for name in each.names:
                if f"{each.target}.{name}" in PUBLIC or name in getattr(public, "__all__", ()):
                    continue
                wrong.append(f"{each.place}: {name} is not in {each.target}.__all__")

    assert not wrong, "\n" + "\n".join(wrong)


def test_what_proxies_share_imports_no_proxy():
    wrong = [
        f"{each.place}: imports {each.target}"
        for path in modules("proxies/shared")
        for each in imports(path)
        if each.target.split(".")[0] == "proxies" and not each.target.startswith("proxies.shared")
    ]

    assert not wrong, "\n" + "\n".join(wrong)


def _impure(module: str, seen: dict[str, str]) -> list[str]:
    """The imports that make a module impure: its own and those of project modules it imports."""
    if module in seen:
        return []
    seen[module] = module
    path = ROOT / (module.replace(".", "/") + ".py")
    if not path.exists():
        path = ROOT / module.replace(".", "/") / "__init__.py"
    wrong = []
    for each in imports(path):
        if each.when == "type checking":
            continue
        if each.target.split(".")[0] in ("trio", "structlog"):
            wrong.append(f"{each.place}: imports {each.target}")
        if each.target.split(".")[0] == "conductor" and each.target != "conductor":
            wrong += _impure(each.target, seen)
    return wrong


def calls_itself_pure(path: Path) -> bool:
    """A module says so in its docstring; `conductor.jsonrpc` says so of all but one."""
    if path.parent == ROOT / "conductor" / "jsonrpc" and path.stem != "awaited_response":
        return True
    return re.search(r"\bPure\.", ast.get_docstring(ast.parse(path.read_text())) or "") is not None


def test_modules_that_call_themselves_pure_reach_neither_trio_nor_a_clock():
    wrong = []
    for path in [path for package in PACKAGES for path in modules(package)]:
        if not calls_itself_pure(path):
            continue
        for each in imports(path):
            if each.when == "type checking":
                continue
            root = each.target.split(".")[0]
            if root in ("trio", "structlog", "time", "datetime"):
                wrong.append(f"{each.place}: imports {each.target}, take `Pure.` away")
            is_author = module_of(path).split(".")[0] != "conductor"
            if root == "conductor" and not (is_author and each.target in FRONTS):
                wrong += [f"{each.place}: reaches {place}" for place in _impure(each.target, {})]

    assert not wrong, "\n" + "\n".join(wrong)
