"""The files of a landing zone by relative path, in a folder and behind a URL."""

import pickle
from pathlib import Path

import pytest

from uplink_spark.errors import LandingError
from uplink_spark.zone.files import LocalFiles, RemoteFiles, open_files, opened, shown, tuned
from uplink_spark.zone.reader import ZoneReader


@pytest.mark.parametrize("kind", [LocalFiles, RemoteFiles])
def test_files_are_read_and_replaced_alike_here_and_through_pyarrow(
    tmp_path: Path, kind: type[LocalFiles] | type[RemoteFiles]
) -> None:
    files = kind(str(tmp_path) if kind is LocalFiles else f"file://{tmp_path}")
    (tmp_path / "consumers").mkdir()
    files.replace("consumers/a.json", b"1")
    files.replace("consumers/a.json", b"22")
    assert files.read("consumers/a.json", 1) == b"2"
    assert files.read("consumers/b.json", 0) is None
    assert files.read("consumers/a.json", 9) == b""
    assert files.read_range("consumers/a.json", 1, 5) == b"2"
    assert files.names("consumers") == ["a.json"]
    assert files.names("nowhere") == []
    with pytest.raises(FileNotFoundError):
        files.read_range("consumers/b.json", 0, 1)


def test_a_store_that_does_not_answer_is_told_in_time_and_a_small_file_is_one_request() -> None:
    assert tuned("gs://b/z") == "gs://b/z?retry_limit_seconds=30"
    assert tuned("gs://b/z?x=1") == "gs://b/z?x=1&retry_limit_seconds=30"
    assert tuned("gs://b/z?retry_limit_seconds=2") == "gs://b/z?retry_limit_seconds=2"
    assert tuned("s3://b/z") == "s3://b/z?allow_delayed_open=true"
    assert tuned("abfss://z@account/p") == "abfss://z@account/p"
    url = "gs://anonymous@b/zone?retry_limit_seconds=1&endpoint_override=127.0.0.1:9&scheme=http"
    with pytest.raises(LandingError, match=r"landing zone gs://.* cannot be read: .*are the URL, the network"):
        ZoneReader(url)


def test_keys_in_a_url_stay_out_of_messages() -> None:
    assert RemoteFiles("s3://key:secret@bucket/landing?region=x").root == "s3://***@bucket/landing?region=x"
    plain = "abfs://zone@account/p?tenant_id=t&client_secret=hidden&sas_token=a%2Fb&enable_tls=true"
    assert shown(plain) == "abfs://***@account/p?tenant_id=t&client_secret=***&sas_token=***&enable_tls=true"
    with pytest.raises(LandingError, match=r"landing zone s3://\*\*\*@bucket/landing") as caught:
        open_files("s3://key:secret@bucket/landing?nonsense=1")
    assert "secret" not in str(caught.value)


def test_credentials_do_not_travel_with_files_that_are_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    key = "a2V5LW9mLWEtdGVzdA=="
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", key)
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    files = RemoteFiles("abfss://zone@account.dfs.core.windows.net/fleet")
    assert key.encode() in pickle.dumps(files._fs)  # Arrow's own pickle has it
    sent = pickle.dumps(files)
    assert key.encode() not in sent
    assert (pickle.loads(sent).root, pickle.loads(sent).final) == (files.root, True)


def test_files_at_a_url_with_a_key_go_to_no_other_process() -> None:
    with pytest.raises(LandingError, match=r"s3://\*\*\*@bucket/zone\?region=x: a URL with a key goes to no other"):
        pickle.dumps(RemoteFiles("s3://key:secret@bucket/zone?region=x"))


def test_a_key_of_an_azure_account_in_the_environment_is_that_of_the_account_in_the_url(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5LW9mLWEtdGVzdA==")
    monkeypatch.setenv("AZURE_STORAGE_USE_EMULATOR", "true")
    system, path = opened("abfss://zone@account.dfs.core.windows.net/of%20a/fleet/")
    assert (system.type_name, path) == ("abfs", "zone/of a/fleet")
    assert opened("abfs://zone@account.dfs.core.windows.net")[1] == "zone"
    assert opened("file:///srv/landing/")[1] == "/srv/landing"
