"""Tables in an object store, served over HTTP: the same commits, one winner, keys by the standard chain alone."""

import os
import secrets
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow.fs import LocalFileSystem, copy_files

from tests.uplink_spark.jobs.small_table import COLUMNS, add
from tests.uplink_spark.object_server import (
    AZURE_ACCOUNT,
    AZURE_KEY,
    KEY,
    REGION,
    SECRET,
    make_bucket,
    running_azure,
    running_google,
    running_s3,
    url_of,
)
from uplink_spark import spark_source
from uplink_spark.jobs import care, silver, tables
from uplink_spark.jobs.bronze import Bronze, BronzeConfig, on_spark
from uplink_spark.jobs.count import count
from uplink_spark.jobs.session import PACKAGES
from uplink_spark.jobs.table.commits import Conflict, TableError
from uplink_spark.jobs.table.delta import CHECKPOINT_EVERY, Table
from uplink_spark.jobs.table.location import locate, reason
from uplink_spark.jobs.table.log import LOG
from uplink_spark.jobs.testing import Fleet, in_table, landed_items
from uplink_spark.zone.files import opened

DAY = "2026-11-03"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("moto.server", reason="moto's server is missing: make setup")
    with running_s3(tmp_path_factory.mktemp("s3")) as address:
        yield address


@pytest.fixture
def s3(server: str, monkeypatch: pytest.MonkeyPatch) -> "Store":
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    bucket = f"tables-{secrets.token_hex(8)}"
    return Store(make_bucket(server, bucket), server, bucket)


class Store:
    """A bucket of one test."""

    def __init__(self, client: Any, address: str, bucket: str) -> None:
        self._client, self._address, self._bucket = client, address, bucket

    def url(self, path: str = "lake/bronze") -> str:
        return url_of(self._address, self._bucket, path)

    def names(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket)
        return [found["Key"] for page in pages for found in page.get("Contents", ())]

    def remove(self, name: str) -> None:
        self._client.delete_object(Bucket=self._bucket, Key=name)

    def put(self, name: str, data: bytes) -> None:
        self._client.put_object(Bucket=self._bucket, Key=name, Body=data)


@pytest.fixture
def keyed(spark: Any, s3: "Store", monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session whose Python workers have the keys: they begin with the environment of Spark's start."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setitem(spark.sparkContext.environment, name, os.environ[name])
    return spark


@pytest.mark.slow
def test_commits_in_a_bucket_are_those_of_a_folder(s3: Store) -> None:
    table = Table(s3.url())
    assert (table.exists(), table.snapshot().version) == (False, 0)
    paths = [add(table, DAY), add(table, DAY, 7)]
    found = Table(s3.url()).snapshot()
    assert (found.version, found.end, set(found.files)) == (2, {"0": 2}, set(paths))
    assert list(table.snapshot(1).files) == paths[:1]
    assert [(version, [file.path for file in files]) for version, files in table.appended(1)] == [(2, paths[1:])]
    s3.remove(f"lake/bronze/{LOG}/{2:020d}.json")  # set back to an older copy
    assert (table.snapshot().version, table.snapshot().end) == (1, {"0": 1})
    with pytest.raises(TableError, match="has left its log"):
        list(Table(s3.url()).appended(-2))


@pytest.mark.slow
def test_of_drivers_that_commit_a_version_to_a_bucket_at_once_one_wins(s3: Store) -> None:
    check_that_one_wins(s3.url())


def check_that_one_wins(url: str) -> None:
    have = Table(url).declare({"data": COLUMNS}, ["0", "1"])
    outcomes: list[int] = []
    barrier = threading.Barrier(4)

    def write(number: int) -> None:
        table = Table(url)
        table.snapshot()
        barrier.wait()
        try:
            table.append(have, [], {str(number % 2): number + 1}, {"by": str(number)})
            outcomes.append(number)
        except Conflict:
            pass

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = outcomes
    assert Table(url).snapshot().origin == {"by": str(winner)}


@pytest.mark.slow
def test_rows_are_in_a_table_in_a_bucket_once_and_care_keeps_them(
    keyed: Any, s3: Store, fleet: Fleet, tmp_path: Path
) -> None:
    config = BronzeConfig(str(fleet.landing.root), s3.url(), str(tmp_path / "checkpoint"))
    bronze = Bronze(config)
    for n in range(4):
        fleet.land(f"box-{n % 2}", 5)
        bronze.write(landed_items(fleet.landing.root))
    bronze.write(landed_items(fleet.landing.root))
    assert in_table(config.table) == fleet.expected
    assert silver.take_in(keyed, config.table, s3.url("lake/per_minute")) == 4
    (day,) = care.days(tables.open_table(config.table).snapshot())
    assert care.compact(keyed, config.table, day).files_after == 2  # data and ranges
    rows = tables.messages(keyed, config.table).collect()
    assert Counter((row["box"], bytes(row["body"])) for row in rows) == fleet.expected
    few = tables.bronze(keyed, config.table, boxes=["box-1"], landed_since="0", columns=["body"])
    assert (few.columns, few.count()) == (["body"], 10)
    assert [row["state"] for row in tables.coverage(keyed, config.table).collect()] == ["landed"] * 2
    assert tables.freshness(keyed, config.table).count() == 2
    before = len(s3.names())
    assert len(care.vacuum(config.table, 0, min_age_hours=0)) == 8
    assert len(s3.names()) < before
    assert silver.take_in(keyed, config.table, s3.url("lake/per_minute")) == 8  # vacuum adds two
    assert tables.per_minute(keyed, s3.url("lake/per_minute")).agg({"rows": "sum"}).collect()[0][0] == 20
    assert care.expire(config.table, 0).rows == 20
    assert in_table(config.table) == Counter()


@pytest.fixture
def azure(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A container of Azurite, for this process and the workers of Spark."""
    if "AZURITE" not in os.environ:
        pytest.skip("no Azurite: npm install azurite, and AZURITE=…/node_modules/.bin/azurite-blob")
    with running_azure(tmp_path) as address:
        given = {"AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY, "AZURE_STORAGE_USE_EMULATOR": "true"}
        for name, value in (given | {"AZURITE_BLOB_STORAGE_URL": f"http://{address}"}).items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(spark.sparkContext.environment, name, value)
        url = f"abfss://lake@{AZURE_ACCOUNT}.dfs.core.windows.net/{{}}"
        opened(url)[0].create_dir("lake")
        yield url


@pytest.fixture
def google(tmp_path: Path) -> Iterator[str]:
    """A bucket of a server with both interfaces of Google's store."""
    with running_google(tmp_path, "lake") as url:
        yield url


@pytest.mark.soak
def test_a_table_and_a_copy_of_a_zone_in_azure_have_each_row_once(
    spark: Any, azure: str, fleet: Fleet, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    check_table_and_zone(spark, azure, fleet, tmp_path)
    assert AZURE_KEY not in "".join(capfd.readouterr())


@pytest.mark.slow
def test_a_table_and_a_copy_of_a_zone_in_google_s_store_have_each_row_once(
    spark: Any, google: str, fleet: Fleet, tmp_path: Path
) -> None:
    check_table_and_zone(spark, google, fleet, tmp_path)


def check_table_and_zone(spark: Any, store: str, fleet: Fleet, tmp_path: Path) -> None:
    check_that_one_wins(store.format("race"))
    for n in range(4):
        fleet.land(f"box-{n % 2}", 5)
    zone, url = store.format("zone"), store.format("bronze")
    system, base = opened(zone)
    copy_files(str(fleet.landing.root), base, LocalFileSystem(), system)
    assert count(spark, zone) == spark_source.read(spark, zone).count() == 20
    bronze = Bronze(BronzeConfig(zone, url, str(tmp_path / "checkpoint")))
    for items in (landed_items(fleet.landing.root)[:2], *[landed_items(fleet.landing.root)] * 2):
        bronze.write(items, on_spark(spark))
    assert in_table(url) == fleet.expected
    (day,) = care.days(tables.open_table(url).snapshot())
    assert care.compact(spark, url, day).files_after == 2
    assert care.vacuum(url, 0, min_age_hours=0)
    assert in_table(url) == fleet.expected
    rows = tables.messages(spark, url).collect()
    assert Counter((row["box"], bytes(row["body"])) for row in rows) == fleet.expected


@pytest.mark.soak
def test_a_checkpoint_of_the_log_is_kept_in_a_bucket_too(s3: Store) -> None:
    table = Table(s3.url())
    table.declare({"data": COLUMNS}, ["0"])
    for _ in range(CHECKPOINT_EVERY):
        table.append(table.snapshot(), [], {"0": table.snapshot().version + 1}, {})
    assert any(name.endswith(".checkpoint.parquet") for name in s3.names())
    assert Table(s3.url()).snapshot().end == {"0": CHECKPOINT_EVERY}


@pytest.mark.soak
@pytest.mark.parametrize("chain", ["environment", "profile"])
def test_keys_come_by_the_standard_chain_and_no_log_has_them(
    s3: Store, fleet: Fleet, tmp_path: Path, chain: str
) -> None:
    fleet.land("box-1", 5)
    fleet.land("box-2", 5)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    if chain == "environment":
        environment |= {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}
    else:
        named = tmp_path / "credentials"
        named.write_text(f"[lake]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
        environment |= {"AWS_SHARED_CREDENTIALS_FILE": str(named), "AWS_PROFILE": "lake"}
    events = tmp_path / "events"
    events.mkdir()
    (tmp_path / "conf").mkdir()
    settings = "spark.eventLog.enabled true\nspark.eventLog.compress false\n"
    (tmp_path / "conf/spark-defaults.conf").write_text(f"{settings}spark.eventLog.dir file://{events}\n")
    command = [sys.executable, "-m", "uplink_spark.jobs.bronze", "--once", "--master", "local[2]"]
    command += ["--landing", str(fleet.landing.root), "--table", s3.url()]
    environment |= {"PYTHONPATH": PACKAGES, "SPARK_CONF_DIR": str(tmp_path / "conf"), "RUST_LOG": "info"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "rows=10" in done.stdout
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path.name != "credentials"]
    assert any(events.iterdir())
    assert not [text for text in [*written, done.stdout.encode(), done.stderr.encode()] if SECRET.encode() in text]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("s3://AKID:hidden@bucket/table", "credentials do not belong into a URL"),
        ("s3://bucket/table?secret_key=hidden", "secret_key does not belong into the URL"),
        ("abfss://box@account.dfs.core.windows.net/t?client_secret=hidden", "client_secret does not belong"),
        ("hdfs://node/table", "a table is in a folder or at s3, gs, abfs, abfss"),
    ],
)
def test_a_url_with_keys_or_of_no_such_store_is_refused_and_not_repeated(url: str, told: str) -> None:
    with pytest.raises(TableError, match=told) as raised:
        Table(url)
    assert "hidden" not in str(raised.value)


@pytest.mark.slow
def test_a_landing_zone_and_a_bucket_that_is_not_there_are_told(s3: Store) -> None:
    s3.put("zone/LANDING", b"x")
    with pytest.raises(TableError, match="is a landing zone"):
        Table(s3.url("zone")).prepare()
    missing = s3.url().replace("s3://", "s3://no-")
    with pytest.raises(TableError, match=r"table s3://no-.* cannot be (made|opened|reached)"):
        Table(missing).declare({"data": COLUMNS}, ["0"])


def test_a_library_s_error_is_one_line() -> None:
    assert reason(OSError("Generic S3 error\n  \x1b[31m↳\x1b[0m denied")) == "Generic S3 error denied"


def test_a_file_of_a_folder_is_there_after_the_block(tmp_path: Path) -> None:
    place = locate(f"file://{tmp_path}")
    with place.create("a/b") as stream:
        stream.write(b"12")
    assert (place.read("a/b"), place.read("a/c"), place.has("a")) == (b"12", None, True)


def test_what_tasks_of_other_engines_are_told_of_a_bucket() -> None:
    place = locate(f"s3://lake/t?endpoint_override=h:1&scheme=http&region={REGION}")
    assert place.url == "s3://lake/t"
    told = {"aws_endpoint": "http://h:1", "aws_allow_http": "true", "aws_region": REGION}
    assert (place.options or {}).items() >= told.items()
    assert locate("abfss://c@a.dfs.core.windows.net/t").url == "abfss://c@a.dfs.core.windows.net/t"
