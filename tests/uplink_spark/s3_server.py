"""Moto's S3 server over HTTP, with conditional writes that are one step: python s3_server.py HOST PORT."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
from werkzeug.serving import run_simple

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def application() -> Application:
    """Return moto's application.

    Moto looks whether an object is there and then stores it: two steps, in a server with threads. Of two writers with
    If-None-Match both may win (moto 5.2.5, `S3Response.put_object`), which S3 excludes. So they come one by one here.
    """
    moto: Application = DomainDispatcherApplication(create_backend_app)
    one_writer = threading.Lock()

    def answer(environment: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environment and "HTTP_IF_MATCH" not in environment:
            return moto(environment, start)
        with one_writer:
            return moto(environment, start)

    return answer


if __name__ == "__main__":
    run_simple(sys.argv[1], int(sys.argv[2]), application(), threaded=True, request_handler=MotoRequestHandler)
