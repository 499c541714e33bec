"""Value classes whose methods are made when the first value is: most of a box's headers and bodies it never sees.

`dataclass(frozen=True)` costs about half a millisecond a class on a small box, because it compiles each method from
text. A box starts with over fifty such classes imported and needs five of them for its first message.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T")
_unmade: set[type] = set()


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value_class(cls: type[T]) -> type[T]:
    """Return the class as one that becomes a frozen dataclass with its first value, or by `made`."""
    _unmade.add(cls)
    cls.__init__ = _first_time  # type: ignore[method-assign]
    return cls


def made(cls: type[T]) -> type[T]:
    """Return the class with its methods and its `__dataclass_fields__`; one of any other kind as it is."""
    for base in reversed(cls.__mro__):
        if base in _unmade:
            _unmade.discard(base)
            del base.__init__  # type: ignore[misc]
            dataclass(frozen=True)(base)
    return cls


def make_all() -> None:
    """Make every class there is: who begins threads calls it first, in one thread at a time.

    A class that is being made takes no values.
    """
    for cls in list(_unmade):
        made(cls)


def _first_time(self: Any, *args: Any, **kwargs: Any) -> None:
    made(type(self))
    self.__init__(*args, **kwargs)
