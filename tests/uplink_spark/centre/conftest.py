"""A bucket of moto's server for each test that asks for its URL."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    moto_server: Any = pytest.importorskip("moto.server", reason="moto's server is missing: make setup")
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"{host}:{port}"
    server.stop()


@pytest.fixture
def url(endpoint: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    boto3: Any = pytest.importorskip("boto3")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    bucket = re.sub("[^a-z0-9]+", "-", request.node.name.lower())[-60:].strip("-")
    boto3.client("s3", endpoint_url=f"http://{endpoint}", region_name="us-east-1").create_bucket(Bucket=bucket)
    return f"s3://{bucket}/zone?endpoint_override={endpoint}&scheme=http&region=us-east-1"
