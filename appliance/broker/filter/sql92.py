"""SQL92 filters: text → a predicate over a message's properties, with Apache's grammar, types, nulls and errors.

Compiled once into closures; user text is never evaluated as Python. A value is a property (text or absent), a number,
a text or a boolean constant; truth is three-valued (True, False, None for unknown) and only True lets a message pass.
Source: RocketMQ 4.9.8 filter module (SelectorParser.jj, ComparisonExpression, UnaryExpression, LogicExpression);
5.5.0 for CONTAINS, STARTSWITH and ENDSWITH.
"""

from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import lru_cache

from storage_driver.named_tuple import NamedTuple

from .sql92_tokens import END, ExpressionError, Token, Tokens
from .sql92_values import (
    INT64,
    TEXT_TESTS,
    Incomparable,
    Value,
    double_of,
    equal,
    equal_text,
    order,
    ordered_text,
    tested_text,
)

__all__ = ["ExpressionError", "compile_expression"]

Properties = Mapping[str, str]
Evaluate = Callable[[Properties], Value]
Truth = Callable[[Properties], bool | None]
MAX_TEXT, MAX_NESTING, MAX_DEPTH = 32_768, 50, 200  # nesting bounds the parser's stack, depth the evaluator's


def compile_expression(text: str) -> Callable[[Properties], bool]:
    """Return the predicate that an SQL92 expression means. Raises ExpressionError; the predicate raises nothing."""
    found = _compiled_small(text) if len(text) <= SMALL_TEXT else _compiled_large(text)
    if isinstance(found, ExpressionError):
        raise ExpressionError(str(found))
    return found


def _compiled(text: str) -> Callable[[Properties], bool] | ExpressionError:
    try:
        truth = _Parser(text).selector()
    except ExpressionError as exc:
        return exc

    def matches(properties: Properties) -> bool:
        try:
            return truth(properties) is True
        except Incomparable:
            return False

    return matches


SMALL_TEXT = 1024  # characters: about 30 KB when compiled; the largest have a megabyte
_compiled_small = lru_cache(maxsize=256)(_compiled)
MOST_LARGE = 8 * MAX_TEXT  # characters of all of them: eight of the largest, a hundred of some thousand
_LARGE: dict[str, Callable[[Properties], bool] | ExpressionError] = {}  # the newest last


def _compiled_large(text: str) -> Callable[[Properties], bool] | ExpressionError:
    if len(text) > MAX_TEXT:
        return _compiled(text)  # an error
    if (found := _LARGE.pop(text, None)) is None:
        found = _compiled(text)
        left = MOST_LARGE - len(text) - sum(map(len, _LARGE))
        while left < 0 and _LARGE:
            oldest = next(iter(_LARGE))
            del _LARGE[oldest]
            left += len(oldest)
    _LARGE[text] = found
    return found


def is_at_hand(text: str) -> bool:
    """Return whether an expression is compiled already, or takes little time: it is small, or too long for any."""
    return len(text) <= SMALL_TEXT or len(text) > MAX_TEXT or text in _LARGE


# compiled operands


class _Kind(Enum):
    PROPERTY = auto()
    CONSTANT = auto()
    TRUTH = auto()  # a boolean expression
    NEGATION = auto()


class _Operand(NamedTuple):
    """One compiled operand. `name` of a property, `constant` of a literal; a boolean literal is constant and truth."""

    kind: _Kind
    evaluate: Evaluate
    depth: int = 1
    name: str = ""
    constant: Value = None

    @property
    def is_truth(self) -> bool:
        return self.kind is _Kind.TRUTH or (
            self.is_constant and (self.constant is None or isinstance(self.constant, bool))
        )

    @property
    def is_constant(self) -> bool:
        return self.kind is _Kind.CONSTANT


def _property(name: str) -> _Operand:
    return _Operand(_Kind.PROPERTY, lambda properties: properties.get(name), name=name)


def _constant(value: Value) -> _Operand:
    return _Operand(_Kind.CONSTANT, lambda properties: value, constant=value)


def _truth(evaluate: Truth, *parts: _Operand) -> _Operand:
    depth = 1 + max(part.depth for part in parts)
    if depth > MAX_DEPTH:
        raise ExpressionError(f"more than {MAX_DEPTH} levels; split the expression")
    return _Operand(_Kind.TRUTH, evaluate, depth)


def _as_truth(part: _Operand, where: str) -> Truth:
    """Return the three-valued truth of an operand of AND, OR, NOT or of the whole selector."""
    evaluate = part.evaluate
    if part.is_truth:
        return evaluate  # type: ignore[return-value]  # a boolean expression evaluates to True, False or None
    if part.kind is _Kind.PROPERTY:
        return lambda properties: None if evaluate(properties) is None else False
    raise ExpressionError(f"{where} needs a boolean expression or a property, not a text, number or negation")


def _not(part: _Operand, where: str = "NOT") -> _Operand:
    truth = _as_truth(part, where)

    def inverted(properties: Properties) -> bool | None:
        value = truth(properties)
        return None if value is None else not value

    return _truth(inverted, part)


def _joined(parts: list[_Operand], word: str) -> _Operand:
    """AND and OR of any number of operands: the deciding value ends it, an unknown one is outlived by it."""
    truths = [_as_truth(part, word) for part in parts]
    deciding = word == "OR"

    def evaluate(properties: Properties) -> bool | None:
        result: bool | None = not deciding
        for truth in truths:
            value = truth(properties)
            if value is deciding:
                return deciding
            if value is None:
                result = None
        return result

    return _truth(evaluate, *parts)


# comparisons


def _check_orderable(part: _Operand) -> None:
    number = isinstance(part.constant, int | float) and not isinstance(part.constant, bool)
    if part.is_truth or (part.is_constant and not number):
        raise ExpressionError(f"{_shown(part)} cannot be compared with > >= < <= or BETWEEN")


def _check_equatable(left: _Operand, right: _Operand) -> None:
    for part in (left, right):
        if part.is_constant and part.constant is None:
            raise ExpressionError("NULL cannot be compared with = or <>; write IS NULL")
    if left.is_constant and right.is_constant and left.is_truth and not right.is_truth:
        raise ExpressionError(f"{_shown(left)} cannot equal {_shown(right)}")


def _shown(part: _Operand) -> str:
    if part.is_constant:
        return "NULL" if part.constant is None else repr(part.constant).upper()
    return part.name or "a boolean expression"


def _equal(left: _Operand, right: _Operand) -> _Operand:
    _check_equatable(left, right)
    if left.kind is _Kind.PROPERTY and right.constant is not None and not isinstance(right.constant, bool):
        return _truth(equal_text(left.name, right.constant), left, right)
    first, second = left.evaluate, right.evaluate
    return _truth(lambda properties: equal(first(properties), second(properties)), left, right)


def _is_null(part: _Operand) -> _Operand:
    evaluate = part.evaluate
    return _truth(lambda properties: evaluate(properties) is None, part)


_TESTS: dict[str, Callable[[int], bool]] = {
    ">": lambda sign: sign > 0,
    ">=": lambda sign: sign >= 0,
    "<": lambda sign: sign < 0,
    "<=": lambda sign: sign <= 0,
}


def _ordered(left: _Operand, sign: str, right: _Operand) -> _Operand:
    _check_orderable(left)
    _check_orderable(right)
    if left.kind is _Kind.PROPERTY and right.constant is not None:
        return _truth(ordered_text(left.name, sign, right.constant), left, right)
    first, second, test = left.evaluate, right.evaluate, _TESTS[sign]

    def evaluate(properties: Properties) -> bool | None:
        a, b = first(properties), second(properties)
        if a is None or b is None:
            return None
        found = order(a, b)
        return found is not None and test(found)

    return _truth(evaluate, left, right)


def _between(value: _Operand, low: _Operand, high: _Operand) -> _Operand:
    if low.is_constant and high.is_constant:
        _check_orderable(low)
        _check_orderable(high)
        if (order(low.constant, high.constant) or 0) > 0:
            raise ExpressionError(
                f"BETWEEN {low.constant} AND {high.constant}: the lower bound is greater than the upper one"
            )
    return _joined([_ordered(value, ">=", low), _ordered(value, "<=", high)], "AND")


def _not_between(value: _Operand, low: _Operand, high: _Operand) -> _Operand:
    return _joined([_ordered(value, "<", low), _ordered(value, ">", high)], "OR")


def _in(value: _Operand, items: frozenset[str]) -> _Operand:
    if value.kind is not _Kind.PROPERTY:
        raise ExpressionError("the left side of IN must be a property")
    name = value.name

    def evaluate(properties: Properties) -> bool | None:
        text = properties.get(name)
        return None if text is None else text in items

    return _truth(evaluate, value)


def _negated(part: _Operand) -> _Operand:
    """Minus: a negated number, unknown for everything else (a property is a text)."""
    evaluate, value = part.evaluate, part.constant
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _Operand(_Kind.NEGATION, lambda properties: -value, part.depth + 1, constant=-value)

    def nothing(properties: Properties) -> Value:
        evaluate(properties)  # its error must still make the whole expression fail
        return None

    return _Operand(_Kind.NEGATION, nothing, part.depth + 1)


# grammar


class _Parser:
    """Recursive descent over the reference's grammar, loosest binding first."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_TEXT:
            raise ExpressionError(f"expression of {len(text)} characters, allowed {MAX_TEXT}")
        self._tokens = Tokens(text)
        self._nesting = 0

    def selector(self) -> Truth:
        """Parse a whole selector; like the reference, ignore what comes after it."""
        return _as_truth(self._or(), "the expression")

    def _or(self) -> _Operand:
        return self._chain("OR", self._and)

    def _and(self) -> _Operand:
        return self._chain("AND", self._equality)

    def _chain(self, word: str, part: Callable[[], _Operand]) -> _Operand:
        parts = [part()]
        while self._tokens.next.kind == word:
            self._tokens.take()
            parts.append(part())
        return parts[0] if len(parts) == 1 else _joined(parts, word)

    def _equality(self) -> _Operand:
        left = self._comparison()
        while True:
            sign = self._tokens.next.kind
            if sign == "=":
                self._tokens.take()
                left = _equal(left, self._comparison())
            elif sign == "<>":
                self._tokens.take()
                left = _not(_equal(left, self._comparison()))
            elif sign == "IS":
                left = self._is(left)
            else:
                return left

    def _is(self, left: _Operand) -> _Operand:
        self._expect("IS")
        inverted = self._accept("NOT")
        self._expect("NULL")
        return _not(_is_null(left)) if inverted else _is_null(left)

    def _comparison(self) -> _Operand:
        left = self._unary()
        while True:
            sign = self._tokens.next.kind
            if sign in _TESTS:
                self._tokens.take()
                left = _ordered(left, sign, self._unary())
            elif sign in ("NOT", "BETWEEN", "IN") or self._text_test():
                left = self._range_or_list(left)
            else:
                return left

    def _text_test(self) -> str:
        """Return CONTAINS or its like if that is next, "" if not. Elsewhere it is a name, as before RocketMQ 5."""
        word = self._tokens.next.text.upper()
        return word if self._tokens.next.kind == "name" and word in TEXT_TESTS else ""

    def _range_or_list(self, left: _Operand) -> _Operand:
        inverted = self._accept("NOT")
        if word := self._text_test():
            self._tokens.take()
            part = _unquoted(self._expect("string"))
            return _truth(tested_text(left.evaluate, word, part, inverted=inverted), left)
        if self._accept("BETWEEN"):
            low = self._unary()
            self._expect("AND")
            return (_not_between if inverted else _between)(left, low, self._unary())
        self._expect("IN")
        found = _in(left, self._strings())
        return _not(found) if inverted else found

    def _strings(self) -> frozenset[str]:
        self._expect("(")
        items = {_unquoted(self._expect("string"))}
        while self._accept(","):
            items.add(_unquoted(self._expect("string")))
        self._expect(")")
        return frozenset(items)

    def _unary(self) -> _Operand:
        self._nesting += 1
        if self._nesting > MAX_NESTING:
            raise ExpressionError(f"more than {MAX_NESTING} nested parentheses or signs")
        if self._accept("+"):
            found = self._unary()
        elif self._accept("-"):
            found = _negated(self._unary())
        elif self._accept("NOT"):
            found = _not(self._unary())
        else:
            found = self._primary()
        self._nesting -= 1
        return found

    def _primary(self) -> _Operand:
        token = self._tokens.take()
        if token.kind == "(":
            inner = self._or()
            self._expect(")")
            return inner
        if token.kind == "name":
            return _property(token.text)
        literal = _LITERALS.get(token.kind)
        if literal is None:
            raise ExpressionError(f"{_named(token)} where a property, a value or '(' is expected")
        return _constant(literal(token))

    def _accept(self, kind: str) -> bool:
        if self._tokens.next.kind != kind:
            return False
        self._tokens.take()
        return True

    def _expect(self, kind: str) -> Token:
        if self._tokens.next.kind != kind:
            raise ExpressionError(f"{_named(self._tokens.next)} where {kind} is expected")
        return self._tokens.take()


def _named(token: Token) -> str:
    return "the end" if token.kind == END else f"{token.text!r} at column {token.at + 1}"


def _unquoted(token: Token) -> str:
    return token.text[1:-1].replace("''", "'")


def _integer(token: Token) -> Value:
    digits = token.text.rstrip("lL")
    value = int(digits) if len(digits) <= len(str(INT64[1])) else INT64[1] + 1
    if value > INT64[1]:
        raise ExpressionError(f"{_named(token)} does not fit 64 bits")
    return value


def _double(token: Token) -> Value:
    value = double_of(token.text)
    if not 0.0 < value < float("inf"):
        raise ExpressionError(f"{_named(token)} is zero or not representable; write 0 for zero")
    return value


_LITERALS: dict[str, Callable[[Token], Value]] = {
    "int": _integer,
    "float": _double,
    "string": _unquoted,
    "TRUE": lambda token: True,
    "FALSE": lambda token: False,
    "NULL": lambda token: None,
}
