"""Import of plugin files (`use: ./file.py:Class`), and of the modules beside them.

The import statements of a plugin file find the modules in its directory first, as those of
`python file.py` do. Several plugin files live in one process, so their directories cannot go to
`sys.path`: two of them may have a `helpers.py`. Instead, each directory is a package in
`sys.modules` (`acp_plugin_files_1`, …) with the plugin file and its neighbours as submodules, and
these modules have an `__import__` of their own, which looks there first.

The source itself is compiled at each import. Compiled code in `__pycache__` is neither read nor
written: it may be of other code.

Of a project that the user trusts, the sources are given: what is compiled are the bytes that the
user trusts, at each import, also in a process that is started again. Other modules of the
directory are not found then. Other sources of one directory are another package.

Never taken from the directory: modules of the standard library, and the packages of the conductor,
since `Proxy` has to be the class that the conductor checks for. `importlib.import_module` is not
affected.
"""

from __future__ import annotations

import builtins
import importlib.util
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any, Final

from conductor.chainfile.model import NEVER_BESIDE_PLUGINS
from conductor.files import check_found, read_regular
from conductor.proxy.import_guard import importing_plugin

__all__ = ["forget_imported_files", "import_file"]

_PREFIX: Final = "acp_plugin_files_"
_packages: dict[tuple[str, frozenset[tuple[str, bytes]] | None], str] = {}
"""Package name by directory, and by the sources if they are given."""
_sources: dict[str, Mapping[str, bytes]] = {}
"""The given sources by package name."""


def import_file(path: str, sources: Mapping[str, bytes] | None = None) -> ModuleType:
    """The module of a plugin file; each file is imported once.

    `sources`: Python files by path that may be imported, in place of those on the disk.

    After a failure, its modules are removed again, so that the next attempt reads the files again.
    Raises any exception of the file, and `ImportError` if it is not a Python file.
    """
    real = os.path.realpath(path) if sources is None else path
    directory, file = os.path.split(real)
    package = _package(directory, sources)
    name = f"{package}.{os.path.splitext(file)[0].replace('.', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, real)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    loader = _with_local_import(spec)
    before = set(sys.modules)
    try:
        with importing_plugin():
            module = sys.modules[name] = importlib.util.module_from_spec(spec)
            loader.exec_module(module)
    except BaseException:
        for added in set(sys.modules) - before:
            if added.startswith(f"{package}."):
                del sys.modules[added]
        raise
    return module


def forget_imported_files() -> None:
    """Forget the modules of plugin files; the next import reads the files again."""
    importlib.invalidate_caches()
    for name in [name for name in sys.modules if name.startswith(_PREFIX) and "." in name]:
        del sys.modules[name]


def _package(directory: str, sources: Mapping[str, bytes] | None) -> str:
    key = directory, None if sources is None else frozenset(sources.items())
    name = _packages.get(key)
    if name is None:
        if not _packages:
            sys.meta_path.insert(0, _Finder())
        name = _packages[key] = f"{_PREFIX}{len(_packages) + 1}"
        module = sys.modules[name] = ModuleType(name, f"Plugin files in {directory}.")
        module.__path__ = [directory]
        if sources is not None:
            _sources[name] = sources
            module.__path__ = []  # nothing else finds a module in it
            module.__file__ = os.path.join(directory, "__init__.py")
    return name


class _Finder(MetaPathFinder):
    """Finds the modules of the directory packages."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, inner = name.partition(".")
        if package in _sources:
            return _given_spec(package, inner)
        if not name.startswith(_PREFIX):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            if spec.origin is not None:
                is_package = spec.submodule_search_locations is not None
                check_found(os.path.dirname(spec.origin) if is_package else spec.origin)
            _with_local_import(spec)
        return spec


class _SourceLoader(SourceFileLoader):
    """Compiles the source, and gives a module the `__import__` of its package."""

    def get_code(self, fullname: str) -> CodeType:
        sources = _sources.get(fullname.partition(".")[0])
        data = read_regular(self.path) if sources is None else sources[self.path]
        return self.source_to_code(data, self.path)

    def exec_module(self, module: ModuleType) -> None:
        package = module.__name__.partition(".")[0]

        def import_beside(
            name: str,
            globals: Mapping[str, Any] | None = None,
            locals: Mapping[str, Any] | None = None,
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> ModuleType:
            top = name.partition(".")[0]
            if level or not _is_local(package, top):
                return __import__(name, globals, locals, fromlist or (), level)
            found = importlib.import_module(f"{package}.{name}")
            if not fromlist:
                return sys.modules[f"{package}.{top}"]
            return __import__(found.__name__, globals, locals, fromlist, 0)

        module.__dict__["__builtins__"] = {**vars(builtins), "__import__": import_beside}
        super().exec_module(module)


def _with_local_import(spec: ModuleSpec) -> Any:
    """The loader of a spec; for Python source it is replaced by `_SourceLoader`."""
    if type(spec.loader) is SourceFileLoader:
        spec.loader = _SourceLoader(spec.loader.name, spec.loader.path)
    return spec.loader


def _is_local(package: str, top: str) -> bool:
    """Whether the directory has such a module; a directory without `__init__.py` is none."""
    if top in NEVER_BESIDE_PLUGINS:
        return False
    name = f"{package}.{top}"
    if name in sys.modules:
        return True
    if package in _sources:
        return _given_spec(package, top) is not None
    spec = PathFinder.find_spec(name, sys.modules[package].__path__)
    return spec is not None and spec.loader is not None


def _given_spec(package: str, inner: str) -> ModuleSpec | None:
    """The spec of a module among the given sources of a package; `inner` is its name in it."""
    directory = os.path.dirname(sys.modules[package].__file__ or "")
    base = os.path.join(directory, *inner.split("."))
    for path in (os.path.join(base, "__init__.py"), f"{base}.py"):
        if path in _sources[package]:
            name = f"{package}.{inner}"
            locations: list[str] | None = [] if path.startswith(f"{base}{os.sep}") else None
            return importlib.util.spec_from_file_location(
                name, path, loader=_SourceLoader(name, path), submodule_search_locations=locations
            )
    return None
