"""The words of an SQL92 filter. Source: RocketMQ 4.9.8 SelectorParser.jj, token section."""

import re

from storage_driver.named_tuple import NamedTuple


class ExpressionError(Exception):
    """The expression does not compile; the text says where and why."""


_TOKEN = re.compile(
    r"""(?P<skip>[ \t\r\n\f]+ | --[^\r\n]*+(?:\r\n|\r|\n) | /\*.*?\*/)
      | (?P<float>\d+\.\d*(?:[eE][+-]?\d+)? | \.\d+(?:[eE][+-]?\d+)? | \d+[eE][+-]?\d+)
      | (?P<int>(?:0|[1-9]\d*)[lL]?)
      | (?P<string>'(?:''|[^'])*')
      | (?P<word>[A-Za-z_$][A-Za-z0-9_$]*)
      | (?P<sign><>|<=|>=|[=<>(),+-])""",
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_KEYWORDS = frozenset({"NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"})
END = "end"
MOST_TOKENS = 4_000  # 12 µs each at most to compile; a list of 1,900 texts has as many


class Token(NamedTuple):
    kind: str  # a sign or keyword itself, else: int, float, string, name, end
    text: str
    at: int


class Tokens:
    """One token of look-ahead, read on demand: what follows a complete selector is tokenised no further than that."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._taken = text, 0, 0
        self._comments_end = max(text.rfind("\n"), text.rfind("\r"))  # `--` behind it is two signs: nothing to look for
        self.next = self._read()

    def take(self) -> Token:
        self._taken += 1
        if self._taken > MOST_TOKENS:
            raise ExpressionError(f"more than {MOST_TOKENS} words and signs; split the expression")
        taken, self.next = self.next, self._read()
        return taken

    def _read(self) -> Token:
        while self._at < len(self._text):
            if self._at > self._comments_end and self._text.startswith("--", self._at):
                self._at += 1
                return Token("-", "-", self._at - 1)
            found = _TOKEN.match(self._text, self._at)
            if found is None:
                raise ExpressionError(f"unexpected character {self._text[self._at]!r} at column {self._at + 1}")
            start, self._at = self._at, found.end()
            kind, text = str(found.lastgroup), found.group()
            if kind != "skip":
                return Token(_kind_of(kind, text), text, start)
        return Token(END, "", self._at)


def _kind_of(kind: str, text: str) -> str:
    if kind == "sign":
        return text
    if kind == "word":
        return text.upper() if text.upper() in _KEYWORDS else "name"
    return kind
