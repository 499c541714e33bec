"""How a large SendMessage is built, looked at before it is read: 4 MiB of empty fields would become 150 MiB of objects.

Walks the fields of the request and of its messages by their lengths, without looking into any. Source: Protocol
Buffers Encoding.
"""

from collections.abc import Iterator

from netstack.grpc.status import CallFailed, GrpcStatus

SMALL = 64 << 10  # bytes: whatever is in so few of them becomes 6 MiB at most
BESIDE_BYTES = 512 << 10  # of a request beside the bodies of its messages
MOST_FIELDS = 32_768  # of a request and its messages
MESSAGES, BODY = 1, 4  # fields
REPORT, STACKS = 3, 2
MOST_STACKS = 512 << 10  # bytes of a report on threads: some thousand of them
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10


def check_send(raw: bytes) -> None:
    """Raise CallFailed unless a request is mostly bodies."""
    if len(raw) <= SMALL:
        return
    beside = 0
    for count, size in enumerate(_beside(raw, MESSAGES, BODY)):
        beside += size
        if beside > BESIDE_BYTES or count >= MOST_FIELDS:
            text = f"a request of {len(raw)} bytes has more than {MOST_FIELDS} fields or {BESIDE_BYTES} bytes"
            raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, f"{text} beside the bodies of its messages: split it")


def _beside(raw: bytes, outer: int, text: int) -> Iterator[int]:
    """Give the bytes of each field, none for those of a number and for one field in them. Raises CallFailed."""
    for kind, start, end in _fields(raw, 0, len(raw)):
        if kind != outer:
            yield end - start
            continue
        yield 0
        for inner, begins, ends in _fields(raw, start, end):
            yield 0 if inner == text else ends - begins


def check_command(raw: bytes) -> None:
    """Raise CallFailed for a large command of telemetry, unless it is mostly the stacks of threads."""
    if len(raw) <= SMALL:
        return
    if len(raw) > MOST_STACKS or sum(_beside(raw, REPORT, STACKS)) > SMALL:
        text = f"a command of {len(raw)} bytes, at most {MOST_STACKS} are allowed, and {SMALL} beside stacks of threads"
        raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, text)


def check_small(raw: bytes) -> None:
    """Raise CallFailed for a request without bodies that is large all the same."""
    if len(raw) > SMALL:
        text = f"a request of {len(raw)} bytes, at most {SMALL} are allowed for this method"
        raise CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, text)


def _fields(raw: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Give number, begin and end of each field; the number is 0 where it has no length. Raises CallFailed."""
    while at < end:
        tag, at = _varint(raw, at, end)
        wire = tag & 7
        if wire == LENGTH:
            size, at = _varint(raw, at, end)
            number = tag >> 3
        elif wire == VARINT:
            number, size = 0, _varint(raw, at, end)[1] - at
        elif wire in (FIXED32, FIXED64):
            number, size = 0, 4 if wire == FIXED32 else 8
        else:
            raise _broken(at)
        if at + size > end:
            raise _broken(at)
        yield number, at, at + size
        at += size


def _varint(raw: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for index in range(at, min(end, at + LONGEST_VARINT)):
        value |= (raw[index] & 0x7F) << 7 * (index - at)
        if raw[index] < 0x80:
            return value, index + 1
    raise _broken(at)


def _broken(at: int) -> CallFailed:
    return CallFailed(GrpcStatus.INVALID_ARGUMENT, f"not a SendMessageRequest: no field at byte {at}")
