"""Which fields a signed change may carry: those of its code and no others.

A signature covers values in the order of their names, joined without a mark between them, and the body behind them. So
a field of an invented name takes up values of a request that was signed for something else, and so does a body. Headers
of administration alone, where stock tools send what their header names.
"""

from collections.abc import Iterable
from functools import cache
from importlib import import_module

from appliance.broker.access.request_table import ROWS, RequestRow
from netstack.wire.acl import ACCESS_KEY, CHANNEL, SECURITY_TOKEN, SIGNATURE
from netstack.wire.ext import wire_names

SIGNING = frozenset((ACCESS_KEY, SIGNATURE, SECURITY_TOKEN, CHANNEL))
ANY_5X = frozenset(("ns", "nsd", "bname", "oway", "lo"))  # Source: RocketMQ 5.3 RpcRequestHeader, TopicRequestHeader


@cache
def allowed(code: int) -> frozenset[str]:
    """Return the field names of a code that changes something."""
    row = ROWS[code]
    header = header_of(row)
    named = [name for name, _ in wire_names(header)] if header is not None else []
    return SIGNING | ANY_5X | frozenset(named) | frozenset(row.fields)


def header_of(row: RequestRow) -> type | None:
    """Return the class of a row's fields, imported now; None for a request that is all body."""
    if not row.header:
        return None
    module, _, name = row.header.partition(".")
    found: type = getattr(import_module(f"netstack.wire.{module}"), name)
    return found


def may_have_body(code: int) -> bool:
    """Tell whether a change may have a body."""
    return ROWS[code].body


def foreign(code: int, names: Iterable[str]) -> str | None:
    """Return a field that does not belong to a change, None when all do."""
    return next((name for name in names if name not in allowed(code)), None)
