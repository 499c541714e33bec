"""docs/requests.md, made of the request table: `python -m appliance.broker.access.request_docs > docs/requests.md`."""

from collections.abc import Iterator

from appliance.broker.access.request_table import ROWS, AccessClass, Needs, RequestRow, Server
from appliance.broker.access.signed_fields import header_of
from netstack.wire.codes import RequestCode, names_of
from netstack.wire.ext import wire_names

HEAD = """# Requests

`python -m appliance.broker.access.request_docs` prints this page from the request table
(`appliance/broker/access/request_table.py`); a test compares the two. A box answers these codes of RocketMQ's remoting
protocol. It answers every other code with 3, REQUEST_CODE_NOT_SUPPORTED. The column *sent by* names the class of the
request, see [security.md](security.md):

- *data*: clients that `access.mode` admits. A signed request also needs the grants of its key (column *grants*).
- *read administration*: programs in the box's own networks, or with an admin key.
- *change administration*: as `access.admin` says, or with an admin key.
- *registration*: other brokers in the box's own networks, or with an admin key.
- *accounts*: with an admin key only.

A field in italics is optional. A request without fields has a JSON body or nothing. SEND_MESSAGE_V2 and
SEND_REPLY_MESSAGE_V2 send the fields under one-letter names, SEND_BATCH_MESSAGE under either.
"""


def page() -> str:
    """Return the whole page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield HEAD
    for server in Server:
        yield f"## Answered by: {server.value}"
        yield ""
        yield "| code | name | purpose | sent by | grants | fields |"
        yield "| ---: | --- | --- | --- | --- | --- |"
        for row in sorted((row for row in ROWS.values() if row.server is server), key=lambda row: row.code):
            yield _line(row)
        yield ""


def _line(row: RequestRow) -> str:
    header, names = header_of(row), names_of(RequestCode)
    fields = [name if required else f"*{name}*" for name, required in wire_names(header)] if header else []
    grants = row.needs.value if row.access is AccessClass.DATA and row.needs is not Needs.SIGNATURE else ""
    cells = (str(row.code), names[row.code], row.summary, row.access.value, grants, ", ".join(fields))
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    print(page(), end="")
