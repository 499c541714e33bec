"""Modules that are loaded when they are used, not when somebody imports them.

trio imports what TLS, DTLS and names of hosts in other scripts need. A box whose clients speak plain text and sign
nothing needs none of it: OpenSSL takes 4 MB of memory, idna 0.7, the compressors of shutil 0.2.
"""

import sys
from collections.abc import Iterable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec
from threading import RLock
from types import ModuleType
from typing import Final

RARE: Final = ("ssl", "hmac", "hashlib", "secrets", "idna", "shutil")


def load_later(names: Iterable[str] = RARE) -> None:
    """Have imports from now on give modules that load at the first look at what they hold."""
    for name in names:
        if name not in sys.modules and (spec := find_spec(name)) is not None:
            sys.modules[name] = _unloaded(spec)


def _unloaded(spec: ModuleSpec) -> ModuleType:
    module, begun, loading = module_from_spec(spec), False, RLock()

    def load(attribute: str) -> object:
        nonlocal begun
        with loading:
            if attribute.startswith("__") or (begun and attribute not in vars(module)):
                raise AttributeError(f"module {spec.name!r} has no attribute {attribute!r}")
            if not begun:
                begun = True
                assert spec.loader is not None
                spec.loader.exec_module(module)
                del module.__getattr__
        return getattr(module, attribute)

    module.__getattr__ = load  # type: ignore[method-assign]
    return module
