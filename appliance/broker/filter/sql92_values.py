"""How SQL92 filters compare values: Java's types and strict parsers, in Python.

A number is 32 bits wide if it fits, else 64, or a double; a text that meets a number is read as that number's type.
Source: RocketMQ 4.9.8 ComparisonExpression, java.lang.Integer/Long/Double.
"""

import re
from collections.abc import Callable, Mapping

Value = str | int | float | bool | None
INT32, INT64 = (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1)
_INT = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?[dDfF]?)", re.ASCII)


class Incomparable(Exception):
    """Two values that the reference fails to compare: the message does not match, whatever else the expression says."""


def int_of(text: str, bounds: tuple[int, int]) -> int:
    """Read a decimal integer as Integer.valueOf or Long.valueOf does. Raises Incomparable."""
    if _INT.fullmatch(text) is None or len(text) > 64:
        raise Incomparable
    value = int(text)
    if not bounds[0] <= value <= bounds[1]:
        raise Incomparable
    return value


def double_of(text: str) -> float:
    """Read a number as Double.valueOf does. Raises Incomparable.

    NaN becomes infinity: Java orders it above every number, and no constant is either of them.
    """
    stripped = text.strip()
    if _DOUBLE.fullmatch(stripped) is None:
        raise Incomparable
    if stripped.endswith("NaN"):
        return float("inf")
    return float(stripped if stripped.endswith("Infinity") else stripped.rstrip("dDfF"))


def equal(left: Value, right: Value) -> bool | None:
    """Three-valued `left = right`. Raises Incomparable."""
    if left is None:
        return True if right is None else None
    if right is None:
        return False
    if type(left) is type(right) and left == right:
        return True
    if isinstance(left, str) and isinstance(right, str):
        return False
    return order(left, right) == 0


def order(left: Value, right: Value) -> int | None:
    """Return the sign of left − right, None where the reference says just false. Raises Incomparable."""
    if isinstance(left, bool) or isinstance(right, bool):
        return _order_with_boolean(left, right)
    a, b = _alike(left, right)
    return (a > b) - (a < b)


def _order_with_boolean(left: Value, right: Value) -> int | None:
    if isinstance(left, bool) and isinstance(right, str):
        raise Incomparable
    if isinstance(left, str) and isinstance(right, bool):
        left = left.lower() == "true"
    return left - right if isinstance(left, bool) and isinstance(right, bool) else None


def _alike(left: Value, right: Value) -> tuple[float, float]:
    """Bring two values that are no booleans to one number type: a text follows the number, two texts are doubles."""
    if isinstance(left, str) and isinstance(right, str):
        return double_of(left), double_of(right)
    if isinstance(left, str):
        return reader_for(right)(left), _number(right)
    if isinstance(right, str):
        return _number(left), reader_for(left)(right)
    if isinstance(left, float) or isinstance(right, float):
        return float(_number(left)), float(_number(right))
    return _number(left), _number(right)


def _number(value: Value) -> float:
    if isinstance(value, int | float):
        return value
    raise Incomparable


def reader_for(number: Value) -> Callable[[str], float]:
    """Return the parser of the type that a number has."""
    if isinstance(number, float):
        return double_of
    bounds = INT32 if isinstance(number, int) and INT32[0] <= number <= INT32[1] else INT64
    return lambda text: int_of(text, bounds)


_COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
}


def ordered_text(name: str, sign: str, number: Value) -> Callable[[Mapping[str, str]], bool | None]:
    """Return `property sign number`, with the parser chosen once instead of for every message."""
    read, compare, right = reader_for(number), _COMPARE[sign], _number(number)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        text = properties.get(name)
        return None if text is None else compare(read(text), right)

    return evaluate


TEXT_TESTS: dict[str, Callable[[str, str], bool]] = {
    "CONTAINS": lambda text, part: part in text,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def tested_text(
    evaluate: Callable[[Mapping[str, str]], Value], word: str, part: str, *, inverted: bool
) -> Callable[[Mapping[str, str]], bool]:
    """Return `operand CONTAINS 'part'` or its like; false, inverted too, for what is no text and for an empty part.

    Source: RocketMQ 5.5.0 UnaryExpression.createContainsExpression.
    """
    test = TEXT_TESTS[word]

    def found(properties: Mapping[str, str]) -> bool:
        text = evaluate(properties)
        return isinstance(text, str) and part != "" and test(text, part) is not inverted

    return found


def equal_text(name: str, constant: str | int | float) -> Callable[[Mapping[str, str]], bool | None]:
    """Return `property = constant`, with the parser chosen once instead of for every message."""
    if isinstance(constant, str):
        read: Callable[[str], object] = str
    else:
        read = reader_for(constant)

    def evaluate(properties: Mapping[str, str]) -> bool | None:
        text = properties.get(name)
        return None if text is None else read(text) == constant

    return evaluate
