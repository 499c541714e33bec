"""White lists as Apache's brokers write them: which addresses a pattern means.

`*` everyone · `10.0.0.9` · `10.0.0.{1,2}` · `10.0.0.*` · `10.0.*.*` · `10.0.0.10-20` · `10.0.1-100.*` · `a,b` a list ·
IPv6 the same with groups in hex. Source: RocketMQ 4.9.8 RemoteAddressStrategyFactory.
"""

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Address, IPv6Address, ip_address

EVERYONE = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
Matches = Callable[[str], bool]
Parts = tuple[int, ...]
Ranges = tuple[tuple[int, int], ...]


class PatternWrong(ValueError):
    """A pattern that means no address; the text says what one looks like."""

    def __init__(self, pattern: str) -> None:
        super().__init__(
            f"{pattern!r} is not an address pattern; write 10.0.0.9, 10.0.0.*, 10.0.0.10-20 or 10.0.0.{{1,2}}"
        )


def matcher(patterns: Iterable[str]) -> Matches:
    """Return whether one of the patterns holds an address. Raises PatternWrong."""
    everyone, ranges = False, list[Ranges]()
    for pattern in patterns:
        for each in _alternatives(pattern.strip()):
            everyone = everyone or each in EVERYONE
            if each not in EVERYONE:
                ranges.append(_ranges(each))

    def matches(address: str) -> bool:
        if everyone:
            return True
        if not ranges:
            return False
        parts = _parts(address)
        return any(_inside(parts, one) for one in ranges)

    return matches


def _alternatives(pattern: str) -> list[str]:
    """Return a list's items, and one item for each choice in braces; nothing for a blank."""
    braces = re.fullmatch(r"([^{}]*)\{([^{}]+)\}", pattern)
    if braces:
        return [braces[1] + choice.strip() for choice in braces[2].split(",")]
    return [each.strip() for each in pattern.split(",") if each.strip()]


def _ranges(pattern: str) -> Ranges:
    try:
        address: IPv4Address | IPv6Address = ip_address(pattern)
    except ValueError:
        return _written_ranges(pattern)
    return tuple((part, part) for part in _parts(str(address)))


def _written_ranges(pattern: str) -> Ranges:
    """Return low and high of each part; after the first range everything must be open, as in Apache's."""
    mark, base, count, most = (":", 16, 8, 0xFFFF) if ":" in pattern else (".", 10, 4, 255)
    words, found, opened = pattern.split(mark), list[tuple[int, int]](), False
    if len(words) != count:
        raise PatternWrong(pattern)
    for word in words:
        low, dash, high = word.partition("-")
        try:
            part = (0, most) if word == "*" else (int(low, base), int(high if dash else low, base))
        except ValueError as exc:
            raise PatternWrong(pattern) from exc
        if not 0 <= part[0] <= part[1] <= most or (opened and word != "*"):
            raise PatternWrong(pattern)
        opened = opened or word == "*" or bool(dash)
        found.append(part)
    return tuple(found)


def _parts(address: str) -> Parts:
    parsed = ip_address(address.partition("%")[0])
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped:
        parsed = parsed.ipv4_mapped
    if isinstance(parsed, IPv4Address):
        return tuple(parsed.packed)
    return tuple(int.from_bytes(parsed.packed[at : at + 2], "big") for at in range(0, 16, 2))


def _inside(parts: Parts, ranges: Ranges) -> bool:
    return len(parts) == len(ranges) and all(
        low <= part <= high for part, (low, high) in zip(parts, ranges, strict=True)
    )
