"""What members tell each other of their logs before anything else, and what must agree. Sans I/O."""

from typing import Protocol

from appliance.group.links.frames import LinkRefused, MemberHello, Rows

LATER_MS = 30_000  # a person has to act first


class GreetingRules(Protocol):
    """Who a member is."""

    @property
    def group(self) -> str: ...
    @property
    def member(self) -> str: ...


class GreetingLineage(Protocol):
    """The history of a log."""

    epochs: list[tuple[int, int]]
    runs: list[tuple[int, int]]
    terms: list[tuple[int, int]]


class GreetingLog(Protocol):
    """What is told of a log."""

    @property
    def lineage(self) -> GreetingLineage: ...
    @property
    def segment_bytes(self) -> int: ...
    @property
    def first(self) -> int: ...
    @property
    def synced(self) -> int: ...


def hello_of(rules: GreetingRules, log: GreetingLog, session: bytes) -> MemberHello:
    """Return a member's greeting."""
    lineage = log.lineage
    rows: tuple[Rows, Rows, Rows] = (tuple(lineage.epochs), tuple(lineage.runs), tuple(lineage.terms))
    hello = MemberHello(rules.group, rules.member, session, log.segment_bytes, *rows, log.first, log.synced)
    return hello if log.segment_bytes else hello._replace(fetches=False)


def refusal_of(own: MemberHello, hello: MemberHello) -> LinkRefused | None:
    """Return why another member's log cannot be one with this one, None when it can."""
    if (hello.version, hello.layout) != (own.version, own.layout):
        text = f"version {hello.version}, layout {hello.layout}; here {own.version}, {own.layout}: update the older one"
        return LinkRefused("version", text, LATER_MS)
    if 0 in (hello.segment_bytes, own.segment_bytes):  # a witness has no log
        return None
    if hello.segment_bytes != own.segment_bytes:
        text = f"segments of {hello.segment_bytes} bytes, here {own.segment_bytes}: set store.segment_mib alike"
        return LinkRefused("segments", text, LATER_MS)
    both = min(hello.synced - hello.first, own.synced - own.first) > 0
    if both and hello.epochs[:1] != own.epochs[:1]:
        text = f"{hello.member} and {own.member} have logs of different origin: empty the store of one of them"
        return LinkRefused("unrelated", text, LATER_MS)
    return None
