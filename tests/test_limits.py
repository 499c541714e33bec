"""The limits of a function, and where everything may be caught: counted in the source, with the exceptions."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.parsed import parsed

ROOT = Path(__file__).parent.parent
PACKAGES = ("appliance", "storage_driver", "netstack", "watchdog", "provisioning", "uplink_spark")
LINES, PARAMETERS, NESTING = 40, 5, 3
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.Match)  # `with` decides nothing

# Constructors of values that come with every message: one parameter for each field, by position as it is faster.
VALUES = {
    "storage_driver/queues/pending.py PendingRecord.__init__",
    "netstack/wire/command.py RemotingCommand.__init__",
    "netstack/wire/message_headers.py SendMessageHeader.__init__",
    "netstack/wire/message_headers.py SendMessageReply.__init__",
    "netstack/wire/message_headers.py PullMessageHeader.__init__",
}
# Every message, or every entry that is read, passes through: a call for the innermost block would cost each of them.
DEEP: dict[str, int] = {
    "netstack/serving/connection.py Connection._read": 4,
    "netstack/wire/message_headers.py SendMessageHeader.from_ext": 4,
    "storage_driver/reading.py collect": 4,
}
_EDGE, _APPLICATION = "one connection or request that fails ends alone", "the application's code may raise anything"
BROAD: dict[str, str] = {
    "appliance/admin.py _answer": _EDGE,
    "appliance/broker/consume/sessions.py Sessions._tell": "at the edge of a connection: what one is told",
    "appliance/broker/transactions/checks.py TransactionChecks._ask": "at the edge of a connection: what one is told",
    "appliance/requests.py Responder.__call__": _EDGE,
    "appliance/requests.py Responder._guarded.guarded": _EDGE,
    "netstack/client/blocking.py _Thread._work": "handed to the thread of the caller, which raises it",
    "netstack/client/consume/assignment.py Assignment._allocate": _APPLICATION,
    "netstack/client/handlers.py call": _APPLICATION,
    "netstack/client/produce/transactions.py ProducerTransactions._ask_application": _APPLICATION,
    "netstack/client/produce/transactions.py ProducerTransactions.half": "rolls back and raises it again",
    "netstack/client/produce/transactions.py ProducerTransactions.send": _APPLICATION,
    "netstack/grpc/connection.py GrpcConnection._handled": _EDGE,
    "netstack/grpc/connection.py GrpcConnection._run": _EDGE,
    "netstack/grpc/connection.py GrpcConnection.run": _EDGE,
    "netstack/grpc/connection.py GrpcConnection._take_back": _EDGE,
    "netstack/serving/connection.py Connection.run": _EDGE,
    "netstack/serving/server.py _Server._run_within": _EDGE,
    "netstack/web/connections.py WebConnections._serve": _EDGE,
    "netstack/web/http.py _responded": _EDGE,
    "uplink_spark/centre/gateway.py Gateway._to_its_end": _EDGE,
}


@cache
def functions() -> tuple[tuple[str, _Function], ...]:
    """Return every function with its file and its name within it."""
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return tuple(found for path in paths for found in _within(parsed(path.read_text()), f"{path.relative_to(ROOT)} "))


def _within(node: ast.AST, prefix: str) -> Iterator[tuple[str, _Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield prefix + child.name, child
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        yield from _within(child, f"{prefix}{child.name}." if named else prefix)  # type: ignore[attr-defined]


def own(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what is inside of a function and not inside of one that it defines."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            yield child
            yield from own(child)


def lines(function: _Function) -> int:
    return (function.end_lineno or 0) - function.lineno + 1


def parameters(function: _Function) -> int:
    """Count what may be given by position, without the object itself."""
    names = [given.arg for given in (*function.args.posonlyargs, *function.args.args)]
    return len([name for name in names if name not in ("self", "cls")])


def nesting(node: ast.AST, depth: int = 0) -> int:
    """Return how deep blocks are in each other; `elif` is no deeper than its `if`."""
    deepest = depth
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            continue
        other_case = isinstance(node, ast.If) and isinstance(child, ast.If) and node.orelse == [child]
        deepest = max(deepest, nesting(child, depth + (isinstance(child, _BLOCKS) and not other_case)))
    return deepest


def catches_all(node: ast.AST) -> bool:
    if not isinstance(node, ast.ExceptHandler):
        return False
    kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
    return any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds)


def test_a_function_has_at_most_forty_lines() -> None:
    assert [name for name, function in functions() if lines(function) > LINES] == []


def test_a_function_takes_at_most_five_by_position_but_the_constructor_of_a_value() -> None:
    assert {name for name, function in functions() if parameters(function) > PARAMETERS} == VALUES


def test_the_constructor_of_a_value_has_one_parameter_for_each_field() -> None:
    for name in VALUES:
        path, inner = name.split(" ")
        tree = parsed((ROOT / path).read_text())
        cls = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == inner.split(".")[0])
        slots = next(
            n.value for n in cls.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__slots__"
        )
        make = next(n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
        assert {given.arg for given in make.args.args} - {"self"} == set(ast.literal_eval(slots)), name


def test_blocks_are_at_most_three_deep() -> None:
    assert {name: deep for name, function in functions() if (deep := nesting(function)) > NESTING} == DEEP


def test_everything_is_caught_only_where_there_is_a_reason() -> None:
    assert {name for name, function in functions() if any(map(catches_all, own(function)))} == set(BROAD)


def test_the_counters_see_what_is_over_a_limit() -> None:
    deep = "def f(self, a, b, *, c):\n for x in a:\n  if x:\n   pass\n  elif b:\n   while c:\n"
    deep += "    try: pass\n    except: pass"
    (function,) = ast.parse(deep).body
    assert isinstance(function, ast.FunctionDef)
    assert (lines(function), parameters(function), nesting(function)) == (8, 2, 4)
    assert any(map(catches_all, own(function)))
