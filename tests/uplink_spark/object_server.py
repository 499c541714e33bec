"""An S3 server of the test's own, in a process of its own: the Delta library holds the GIL while it waits for it.

Moto is what is there after `make setup`. S3_GATEWAY=/path/to/versitygw runs the same tests against a real server.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.ports import free_port

KEY, SECRET, REGION = "AKIDTABLES", "secret-that-no-log-may-have", "us-east-1"


@contextmanager
def running_s3(folder: Path) -> Iterator[str]:
    """Yield host:port of a server; its keys are KEY and SECRET."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    with (folder / "s3.log").open("wb") as log:
        server = subprocess.Popen(_command(port, folder), stdout=log, stderr=log, env=os.environ | _root())
    try:
        _wait(server, address, folder / "s3.log")
        yield address
    finally:
        server.kill()
        server.wait()


def _command(port: int, folder: Path) -> list[str]:
    if (gateway := os.environ.get("S3_GATEWAY")) is None:
        return [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    (folder / "s3").mkdir()
    return [gateway, "--port", f"127.0.0.1:{port}", "--region", REGION, "posix", str(folder / "s3")]


def _root() -> dict[str, str]:
    return {"ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET}


def _wait(server: subprocess.Popen[bytes], address: str, log: Path) -> None:
    until = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"http://{address}/", timeout=5).close()
            return
        except urllib.error.HTTPError:
            return
        except OSError:
            if server.poll() is not None or time.monotonic() > until:
                raise AssertionError(log.read_text()[-2000:]) from None
            time.sleep(0.05)


def make_bucket(address: str, name: str) -> Any:
    """Make a bucket; return a client of the server."""
    import boto3

    client = boto3.client(
        "s3",
        endpoint_url=f"http://{address}",
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    client.create_bucket(Bucket=name)
    return client


def url_of(address: str, bucket: str, path: str) -> str:
    return f"s3://{bucket}/{path}?endpoint_override={address}&scheme=http&region={REGION}"
