"""`NamedTuple` as typing's, but made in a quarter of the time: a box starts with a hundred such classes.

typing compiles the constructor of each class from text; here that waits for the first value, which most of them never
see before the box serves. To a type checker it is typing's own.
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter

    class _Values(tuple):
        """What named tuples have in common."""

        __slots__ = ()

        def __new__(cls, *values, **named):
            """Make the constructor and the first value. Threads may meet here: each makes the same."""
            names = ", ".join(cls._fields)
            made = eval(f"lambda _cls, {names}: _new(_cls, ({names},))", {"_new": tuple.__new__})
            made.__defaults__ = tuple(cls._field_defaults.values())
            made.__name__, made.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
            cls.__new__ = staticmethod(made)
            return made(cls, *values, **named)

        @classmethod
        def _make(cls, values):
            return cls(*values)

        def _replace(self, **named):
            changed = type(self)(*map(named.pop, self._fields, self))
            if named:
                raise ValueError(f"Got unexpected field names: {list(named)!r}")
            return changed

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            values = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({values})"

        def __getnewargs__(self):
            return tuple(self)

    def _annotations_of(body):
        if "__annotations__" in body or sys.version_info < (3, 14):
            return body.get("__annotations__", ())
        annotationlib = import_module("annotationlib")  # from 3.14 on a class body holds a function instead
        annotate = annotationlib.get_annotate_from_class_namespace(body)
        return annotationlib.call_annotate_function(annotate, annotationlib.Format.FORWARDREF) if annotate else ()

    class _Made(type):
        """Turns the body of a class into a tuple with names; its own kind is `type`."""

        def __new__(kind, name, bases, body):
            fields = tuple(_annotations_of(body))
            defaults = {field: body[field] for field in fields if field in body}
            if tuple(defaults) != fields[len(fields) - len(defaults) :]:
                raise TypeError(f"{name}: a field without a default behind one with a default")
            body |= {field: _tuplegetter(at, "") for at, field in enumerate(fields)}
            body |= {"__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
            return type.__new__(type, name, (_Values,), body)

    NamedTuple = type.__new__(_Made, "NamedTuple", (), {})
