"""A landing zone in Google's or Azure's store: the same calls as in S3, a fence by conditional create.

Here in the library's store in memory; in a server with both interfaces of Google's (gcs_server.py) and, with AZURITE=…
(object_server.py), in Azure's, and read there by Spark's side.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.uplink_spark.centre.zone_files.test_objects import NOW, piece, writer
from tests.uplink_spark.object_server import AZURE_ACCOUNT, AZURE_KEY, running_azure, running_google
from uplink_spark.centre.fleet import check
from uplink_spark.centre.zone_files.bucket_store import BucketStore
from uplink_spark.centre.zone_files.cloud_store import CloudStore
from uplink_spark.centre.zone_files.object_store import open_store
from uplink_spark.centre.zone_files.objects import open_object_zone
from uplink_spark.errors import LandingError
from uplink_spark.testing import SOURCE
from uplink_spark.zone.files import open_files, opened
from uplink_spark.zone.reader import ZoneReader, status_paths


@pytest.fixture
def memory() -> CloudStore:
    stores: Any = pytest.importorskip("obstore.store", reason="obstore is missing: make setup")
    return CloudStore(stores.MemoryStore(), "memory")


@pytest.fixture
def azure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of what is in a container of Azurite, its name left open."""
    if "AZURITE" not in os.environ:
        pytest.skip("no Azurite: npm install azurite, and AZURITE=…/node_modules/.bin/azurite-blob")
    with running_azure(tmp_path) as address:
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", AZURE_KEY)
        monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
        monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", f"http://{address}")
        url = f"abfss://lake@{AZURE_ACCOUNT}.dfs.core.windows.net/{{}}"
        opened(url)[0].create_dir("lake")
        yield url


@pytest.fixture
def google(tmp_path: Path) -> Iterator[str]:
    """The URL of what is in a bucket as Google's, its name left open."""
    pytest.importorskip("obstore", reason="obstore is missing: make setup")
    with running_google(tmp_path, "lake") as url:
        yield url


def check_calls(store: BucketStore) -> None:
    """Each call does what it does in S3."""
    assert [store.create("x", data) for data in (b"mine", b"mine", b"other")] == [True, True, False]
    for name in ("a/x", "a/b/y"):
        store.replace(name, b"old")
        store.replace(name, b"0123456789")
    assert store.names("a") == ["x", "b"]
    assert store.names("a", deep=True) == ["b/y", "x"]
    assert (store.names("a", after="c"), store.names("a", after="x"), store.names("q")) == (["x"], [], [])
    assert store.names("a", after="a") == ["b", "x"]
    assert (store.get("a/x", 3, 4), store.size("a/x"), store.get("a/z"), store.size("a/z")) == (b"3456", 10, None, 0)
    assert (store.written_ms("a/x") > 0, store.written_ms("a/z")) == (True, 0)
    for _ in range(2):
        store.delete("a/x")
    assert store.names("a") == ["b"]


def check_zone(store: BucketStore) -> None:
    """What is committed survives a restart; of two writers one names the next seq."""
    zone = open_object_zone(store, 1)
    assert open_object_zone(store, 4) == zone
    one, _ = writer(store)
    two, _ = writer(store)
    one.commit([piece(0)], NOW)
    with pytest.raises(LandingError, match="another gateway wrote seq 0"):
        two.commit([piece(970)], NOW)
    again, cover = writer(store)
    again.commit([piece(970)], NOW)
    again, cover = writer(store)
    assert again.next_seq == 2
    assert list(cover.boxes["box-17"].epochs[SOURCE.epoch].data) == [(0, 1940)]


def test_calls_do_what_they_do_in_s3(memory: CloudStore) -> None:
    check_calls(memory)


def test_a_zone_survives_a_restart_and_has_one_writer(memory: CloudStore) -> None:
    check_zone(memory)


def test_what_the_store_refuses_is_one_line_and_an_os_error(memory: CloudStore) -> None:
    memory.put("a", b"12")
    with pytest.raises(OSError, match="object store: Generic") as caught:
        memory.get("a", 5, 3)
    assert "\n" not in str(caught.value)


class Nothing(BaseHTTPRequestHandler):
    """Answers as a store whose bucket has gone."""

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        self.send_error(404)

    do_PUT = do_POST = do_DELETE = do_HEAD = do_GET

    def log_message(self, *_: object) -> None: ...


def test_a_bucket_that_is_not_there_takes_nothing_and_is_told() -> None:
    pytest.importorskip("obstore")
    with HTTPServer(("127.0.0.1", 0), Nothing) as server, ThreadPoolExecutor() as threads:
        threads.submit(server.serve_forever)
        try:
            store = open_store(f"gs://anonymous@lake/zone?endpoint_override=127.0.0.1:{server.server_port}&scheme=http")
            assert (store.get("pack/x"), store.size("pack/x")) == (None, 0)
            for put in (store.put, store.create, store.replace):
                with pytest.raises(OSError, match="the bucket or container is not there"):
                    put("pack/x", b"1")
            for deep in (False, True):
                with pytest.raises(OSError, match="404"):
                    store.names("manifest", deep=deep)
        finally:
            server.shutdown()


@pytest.mark.soak
def test_a_zone_in_azure_is_written_by_one_gateway_and_read_by_spark_s_side(azure: str) -> None:
    check_gateway_and_reader(azure)


@pytest.mark.slow
def test_a_zone_in_google_s_store_is_written_by_one_gateway_and_read_by_spark_s_side(google: str) -> None:
    check_gateway_and_reader(google)


@pytest.mark.slow
def test_of_gateways_that_create_an_object_of_google_s_store_at_once_one_wins(google: str) -> None:
    stores, data = [open_store(google.format("race")) for _ in range(8)], [b"%d" % n for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for turn in range(10):
            won = list(threads.map(lambda store, mine: store.create(f"x-{turn}", mine), stores, data))  # noqa: B023
            assert [mine for mine, mine_won in zip(data, won, strict=True) if mine_won] == [stores[0].get(f"x-{turn}")]


def check_gateway_and_reader(url: str) -> None:
    check_calls(open_store(url.format("calls")))
    zone = url.format("zone")
    check_zone(open_store(zone))
    (found,) = check(ZoneReader(zone), deep=True)
    assert (found.sha_ok, found.findings, found.orphans) == (2, [], [])
    files, report = open_files(zone), "2026-11-03/2026-11-03T0000.jsonl"
    open_store(zone).put(f"status/0000/{report}", b"")
    assert (files.names("manifest"), files.names("nothing"), status_paths(files, 0)) == (["0000"], [], [report])


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("gs://bucket/zone?access_token=hidden", "a key does not belong in a URL"),
        ("abfss://lake/zone", "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"),
    ],
)
def test_a_url_with_a_key_or_of_another_form_is_told_before_anything_is_asked(url: str, told: str) -> None:
    with pytest.raises(LandingError, match=told) as caught:
        open_store(url)
    assert "hidden" not in str(caught.value)


def test_an_emulator_of_googles_store_needs_no_account() -> None:
    pytest.importorskip("obstore")
    url = "gs://anonymous@lake/zone"
    assert open_store(f"{url}?endpoint_override=127.0.0.1:9&scheme=http").place == url
