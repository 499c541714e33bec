"""The messages of apache.rocketmq.v2, made from the proto files here by systemd/proto_modules.py.

The library imports its implementation in Python beside the one in C: 1.2 MB that nothing uses. It is loaded when
somebody asks for a part of it.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

UNUSED = "google.protobuf.internal.python_message"


class LaterModule(ModuleType):
    """Stands for a module until an attribute of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what the import system asks of each module
            raise AttributeError(name)
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


sys.modules.setdefault(UNUSED, LaterModule(UNUSED))
