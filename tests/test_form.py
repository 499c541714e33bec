"""No class owns too much: what it makes itself, counted by its source; what it was handed does not count."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.parsed import parsed

ROOT = Path(__file__).parent.parent
PACKAGES = ("appliance", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark")
MOST = 10
# Class: how many attributes it owns, and why a split would make it worse.
KEPT: dict[str, tuple[int, str]] = {
    "Ledger": (13, "seven are fields of its file, taken over as a whole or not at all when it is read"),
    "Journal": (11, "a group commit of its own, in small: its marks move together"),
    "MemoryDisk": (13, "a disk in memory: what is seen, what is stable and what shall fail change in one step"),
    "MessageStore": (
        18,
        "the facade of the store: eight are calls of its parts, kept so that none is in between",
    ),
    "PushConsumer": (15, "the place where its parts meet: eleven are parts"),
    "RecoveryVerdict": (15, "a value that recovery fills: one field for each line of its report"),
    "Report": (11, "a value that fsck fills: one field for each line of its report"),
    "ShardCheck": (12, "a value that the check of a shard fills: one field for each line of its report"),
}


def owned(cls: ast.ClassDef) -> set[str]:
    """Return the attributes that a class makes itself.

    Not counted: what the constructor stores as it was handed in, by itself, as an attribute of it (a bound method kept
    for speed) or with a default for None; fields of a value that never changes, which are all handed in.
    """
    made, handed = _fields(cls), set[str]()
    for method in cls.body:
        if not isinstance(method, (ast.FunctionDef, ast.AsyncFunctionDef)) or not method.args.args:
            continue
        me = method.args.args[0].arg
        given = _parameters(method) - {me} if method.name == "__init__" else set[str]()
        for target, value in _assignments(method):
            if not (isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == me):
                continue
            (handed if value is not None and _is_handed(value, given) else made).add(target.attr)
    return made


def _fields(cls: ast.ClassDef) -> set[str]:
    """Return the fields of a dataclass that changes which its constructor makes when they are not given."""
    marks = [ast.unparse(mark) for mark in cls.decorator_list]
    if not any(mark.startswith("dataclass") and "frozen=True" not in mark for mark in marks):
        return set()
    fields = [item for item in cls.body if isinstance(item, ast.AnnAssign) and item.value is not None]
    return {ast.unparse(field.target) for field in fields if "ClassVar" not in ast.unparse(field.annotation)}


def _parameters(method: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    names = method.args
    return {each.arg for each in (*names.posonlyargs, *names.args, *names.kwonlyargs)}


def _assignments(method: ast.AST) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    """Give each target with its value, None for a value that no constructor can have been handed."""
    for node in ast.walk(method):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                yield from _pairs(target, node.value)
        elif isinstance(node, ast.AnnAssign):
            yield node.target, node.value
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor)):
            yield from _pairs(node.target, None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            yield from _pairs(node.optional_vars, None)


def _pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[ast.expr, ast.expr | None]]:
    if not isinstance(target, (ast.Tuple, ast.List)):
        yield target, value
        return
    each = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
    for at, part in enumerate(target.elts):
        yield from _pairs(part, value.elts[at] if isinstance(value, ast.Tuple) and each else None)


def _is_handed(value: ast.expr, given: set[str]) -> bool:
    if isinstance(value, ast.BoolOp):
        return _is_handed(value.values[0], given)
    if isinstance(value, ast.IfExp):
        return _is_handed(value.body, given) or _is_handed(value.orelse, given)
    while isinstance(value, ast.Attribute):
        value = value.value
    return isinstance(value, ast.Name) and value.id in given


def form_faults(sources: dict[str, str]) -> dict[str, tuple[str, list[str]]]:
    """Return class -> its module and the attributes it owns, for classes that own too many."""
    found = {}
    for path, source in sources.items():
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.ClassDef) and len(attributes := owned(node)) > MOST:
                found[node.name] = (path, sorted(attributes))
    return found


def test_a_class_owns_no_more_than_the_guide_allows() -> None:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    found = form_faults({str(path.relative_to(ROOT)): path.read_text() for path in paths})
    new = {name: what for name, what in found.items() if name not in KEPT}
    assert new == {}, f"more than {MOST} attributes: give a part that has a name of its own to a class of its own"
    counts = {name: len(attributes) for name, (_, attributes) in found.items()}
    assert counts == {name: count for name, (count, _) in KEPT.items()}, "the list of exceptions is not true any more"


def test_planted_attributes_are_counted_by_who_makes_them() -> None:
    planted = """
class Part:
    def __init__(self, log, *, clock=None, rules=None):
        self._log, self._append = log, log.writer.append
        self._clock = clock or Clock()
        self._rules = rules if rules is not None else Rules()
        self.size = self.count = 0
        self.left: dict[str, int] = {}
        self.end = log

    def grow(self):
        self.end += 1
        self.first, (self.second, _) = self.look()
        async def later():
            async with nursery() as self.nursery:
                self.scope = scope
"""
    (part,) = [node for node in ast.walk(ast.parse(planted)) if isinstance(node, ast.ClassDef)]
    assert owned(part) == {"size", "count", "left", "end", "first", "second", "nursery", "scope"}


def test_planted_fields_of_values_are_counted_when_they_change() -> None:
    fields = "\n".join(f"    field_{number}: int = 0" for number in range(MOST + 1))
    planted = {
        "a.py": f"@dataclass(slots=True)\nclass Changes:\n    given: int\n{fields}\n",
        "b.py": f"@dataclass(frozen=True)\nclass Never:\n{fields}\n",
        "c.py": f"class Named(NamedTuple):\n{fields}\n",
    }
    assert form_faults(planted) == {"Changes": ("a.py", sorted(f"field_{number}" for number in range(MOST + 1)))}
