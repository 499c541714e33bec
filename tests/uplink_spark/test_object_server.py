"""The tests' own S3 server: what they show of commits is worth as much as its conditional writes."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier, BrokenBarrierError
from typing import Any

import pytest

HOST = "http://127.0.0.1"
KEYS = {"Authorization": "AWS4-HMAC-SHA256 Credential=AKID/20260101/us-east-1/s3/aws4_request"}


@pytest.mark.slow
def test_of_clients_that_create_an_object_at_once_one_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("moto.server", reason="moto's server is missing: make setup")
    from moto.s3.models import S3Backend
    from werkzeug.test import Client

    from tests.uplink_spark.s3_server import application

    look, both_looked, served = S3Backend.get_object, Barrier(2), application()
    Client(served).put("/conditional", base_url=HOST, headers=KEYS)

    def look_and_wait(*given: Any, **named: Any) -> Any:
        found = look(*given, **named)
        with suppress(BrokenBarrierError):
            both_looked.wait(0.5)
        return found

    def create(body: bytes) -> int:
        headers = KEYS | {"If-None-Match": "*"}
        answer = Client(served).put("/conditional/key", base_url=HOST, data=body, headers=headers)
        return int(answer.status_code)

    monkeypatch.setattr(S3Backend, "get_object", look_and_wait)
    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(create, [b"a", b"b"])) == [200, 412]
