"""Use the compiled modules where a library of them is there and fits; pure Python otherwise.

`systemd/compiled/build.py` puts the library for each Python into the folder `native` beside this module. All its
modules are used or none: calls between compiled classes assume both sides. ROCKETBOX_PURE=1 switches the library off.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

HERE = Path(__file__).parent
LIBRARY = HERE / f"native/rocketbox{EXTENSION_SUFFIXES[0]}"


class CompiledModules:
    """Imports `modules` out of `library`, a file, which is loaded when the first of them is imported.

    A finder and a loader without their base classes: importlib.abc takes 0.3 MiB.
    """

    def __init__(self, library: Path, modules: Sequence[str]) -> None:
        self._library = library
        self._modules = frozenset(modules)
        self._loaded: Any = None  # an extension module with load(name of an initialiser) -> module, and `group`
        self.broken = ""  # why the library could not be loaded

    @property
    def used(self) -> bool:
        """Whether the library is loaded."""
        return self._loaded is not None

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        if fullname not in self._modules or path is None or not self._is_loaded():
            return None
        return ModuleSpec(fullname, cast("Loader", self), origin=f"{path[0]}/{fullname.rpartition('.')[2]}.py")

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        made: ModuleType = self._loaded.load("init_" + spec.name.replace(".", "___"))
        made.__spec__, made.__loader__, made.__file__ = spec, cast("Loader", self), spec.origin  # in place of mypyc's
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: a compiled module has run when it was made."""

    def _is_loaded(self) -> bool:
        if self._loaded is None and not self.broken:
            try:
                spec = ModuleSpec(
                    "rocketbox", ExtensionFileLoader("rocketbox", str(self._library)), origin=str(self._library)
                )
                self._loaded = module_from_spec(spec)
                self._loaded.group.__file__ = str(self._library)  # where compiled modules look for it
                sys.modules["rocketbox__mypyc"] = self._loaded.group
            except ImportError as exc:  # of another C library or machine
                self.broken = f"{self._library.name} cannot be loaded: {exc}"
        return not self.broken


def install() -> None:
    """Make imports from now on use the library, if it is there and fits; `why_pure` tells why it does not."""
    if not _why_unfit() and _finder() is None:
        sys.meta_path.insert(0, CompiledModules(LIBRARY, _told()["modules"]))


def leave_out() -> None:
    """Let imports from now on use no library, ours (3 MB) or ISA-L (0.6), unless a module of it is imported already."""
    sys.modules.setdefault("isal", None)  # type: ignore[arg-type]
    finder = _finder()
    if finder is not None and not finder.used:
        sys.meta_path.remove(finder)


def why_pure() -> str:
    """Return why this process runs pure Python, in words; an empty text when it runs the compiled modules."""
    finder = _finder()
    return _why_unfit() if finder is None else finder.broken


def _finder() -> CompiledModules | None:
    return next((finder for finder in sys.meta_path if isinstance(finder, CompiledModules)), None)


def _why_unfit() -> str:
    if os.environ.get("ROCKETBOX_PURE", "0") not in ("", "0"):
        return "ROCKETBOX_PURE is set"
    try:
        told = _told()
    except FileNotFoundError:
        return f"no library for this Python ({LIBRARY.name})"
    changed = next((name for name, size, time_ns in told["sources"] if not _is_unchanged(name, size, time_ns)), None)
    if changed is not None:
        return f"{changed} changed since it was compiled; make setup compiles again"
    loaded = next((name for name in told["modules"] if name in sys.modules), None)
    return "" if loaded is None else f"{loaded} was imported before package appliance"


def _told() -> Any:
    return json.loads(LIBRARY.with_suffix(".json").read_bytes())


def _is_unchanged(name: str, size: int, time_ns: int) -> bool:
    try:
        stat = os.stat(HERE.parent / name)
    except OSError:
        return False
    return (stat.st_size, stat.st_mtime_ns) == (size, time_ns)
