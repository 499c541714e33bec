"""An S3 server of the test's own, in a process of its own: the Delta library holds the GIL while it waits for it.

Moto is what is there after `make setup`. S3_GATEWAY=/path/to/versitygw runs the same tests against a real server.
AZURITE=/path/to/azurite-blob (`npm install azurite`) runs those of Azure, which nothing stands for otherwise.
Google's store is gcs_server.py: no emulator in the registries takes uploads by both of its interfaces.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from tests.ports import free_port

# The only account that Azurite has, and its key, which its documentation gives.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
KEY, SECRET, REGION = "AKIDTABLES", "secret-that-no-log-may-have", "us-east-1"


def running_s3(folder: Path) -> AbstractContextManager[str]:
    """Give host:port of a server; its keys are KEY and SECRET."""
    port = free_port()
    return _running(folder, port, _command(port, folder))


def running_azure(folder: Path) -> AbstractContextManager[str]:
    """Give host:port of Azurite, with AZURE_ACCOUNT."""
    port = free_port()
    command = [os.environ["AZURITE"], "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    return _running(folder, port, [*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)])


@contextmanager
def running_google(folder: Path, bucket: str) -> Iterator[str]:
    """Give the URL of a bucket of Google's store, without its query, and that."""
    port = free_port()
    command = [sys.executable, str(Path(__file__).with_name("gcs_server.py")), "127.0.0.1", str(port), bucket]
    with _running(folder, port, command) as address:
        yield f"gs://anonymous@{bucket}/{{}}?endpoint_override={address}&scheme=http"


@contextmanager
def _running(folder: Path, port: int, command: list[str]) -> Iterator[str]:
    address = f"127.0.0.1:{port}"
    with (folder / "store.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | _root(), cwd=folder)
    try:
        _wait(server, address, folder / "store.log")
        yield address
    finally:
        server.kill()
        server.wait()


def _command(port: int, folder: Path) -> list[str]:
    if (gateway := os.environ.get("S3_GATEWAY")) is None:
        return [sys.executable, str(Path(__file__).with_name("s3_server.py")), "127.0.0.1", str(port)]
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
