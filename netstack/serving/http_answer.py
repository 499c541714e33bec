"""What a browser is told that came to a port of the remoting protocol: one short answer, then the connection ends."""

from typing import Final

WHAT: Final = "RocketMQ clients connect to this port, with the remoting protocol. It has nothing for a browser.\n"


def http_answer(hint: str) -> bytes:
    """Return a whole HTTP/1.1 answer; `hint` says where to look instead."""
    body = (WHAT + hint).encode()
    head = (
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
