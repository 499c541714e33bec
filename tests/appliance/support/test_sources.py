"""Where a bundle comes from: which secrets are known to be such, what is listed, and that one failure is its own."""

import json
from pathlib import Path

import pytest

from appliance.support.sources import TABLE_BYTES, BoxFolders, known_secrets, listing, parts, read


def place(tmp_path: Path, *, live: bool = False) -> BoxFolders:
    return BoxFolders(tmp_path / "data", tmp_path / "run", tmp_path / "rocketbox.toml", tmp_path / "root", live=live)


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("secret", ["s3cret-word", "31415926535", "0.1415926", "true", '"quoted"', "[" * 5000])
def test_a_secret_file_of_any_text_is_known_line_by_line(secret: str, tmp_path: Path) -> None:
    put(tmp_path / "data/page.token", secret + "\n")
    put(tmp_path / "root/etc/rocketbox/keys/centre", f"{secret}2\n\n")
    assert set(known_secrets(place(tmp_path))) == {secret, f"{secret}2"}


def test_of_accounts_keys_and_secrets_are_known_however_deep(tmp_path: Path) -> None:
    accounts = {
        "accounts": [{"accessKey": "ops-team", "secretKey": "12345678"}],
        "note": "n",
        "deep": {"password": ["pw"]},
    }
    put(tmp_path / "data/access/accounts.json", json.dumps(accounts))
    assert set(known_secrets(place(tmp_path))) == {"ops-team", "12345678", "pw"}


def test_keys_are_secret_and_certificates_are_not(tmp_path: Path) -> None:
    for name, line in (("box.key", "a2V5"), ("box.crt", "Y2VydA"), ("box.csr", "cmVx")):
        put(tmp_path / f"data/tls/{name}", f"-----BEGIN X-----\n{line}\n-----END X-----\n")
    assert list(known_secrets(place(tmp_path))) == ["a2V5"]


def test_a_box_without_any_of_it_has_no_secrets_and_still_its_parts(tmp_path: Path) -> None:
    assert list(known_secrets(place(tmp_path))) == []
    names = [part.name for part in parts(place(tmp_path))]
    assert names[0] == "health.json"
    assert len(names) == len(set(names))
    assert {"rocketbox.toml", "store.txt", "versions.json", "store/topics.json"} <= set(names)
    assert not any(name.startswith("proc/") or name == "journal.txt" for name in names)  # of this machine, not of it
    by_name = {part.name: part for part in parts(place(tmp_path))}
    for name in ("rocketbox.toml", "store.txt", "verdicts/"):
        with pytest.raises(OSError, match="No such file"):
            by_name[name].fetch()


def test_the_newest_verdicts_come_first_and_no_more_than_seventy(tmp_path: Path) -> None:
    for number in range(90):
        put(tmp_path / f"data/verdicts/{number:010d}.json", str(number))
    (tmp_path / "data/verdicts/folder").mkdir()
    found = [part for part in parts(place(tmp_path)) if part.name.startswith("verdicts/")]
    assert [part.name[9:-5] for part in found] == [f"{number:010d}" for number in range(89, 19, -1)]
    assert found[0].fetch() == "89"


def test_of_a_large_file_the_end_is_read_and_of_a_short_one_all(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"short\xff")
    assert read(path) == "short\ufffd"
    path.write_bytes(b"begin" + b"x" * (2 * TABLE_BYTES) + b"end")
    text = read(path)
    assert (len(text), text[-3:], "begin" in text) == (2 * TABLE_BYTES, "end", False)


def test_the_listing_names_files_and_sums_queues(tmp_path: Path) -> None:
    store = tmp_path / "data/store"
    put(store / "commitlog/00000000000000000000", "12345")
    put(store / "consumequeue/T/0/00000000000000000000", "x" * 20)
    put(store / "consumequeue/T/1/00000000000000000000", "x" * 40)
    (store / "gone").symlink_to("/nowhere")
    (store / "index").symlink_to(tmp_path)
    (store / "consumequeue/L").symlink_to(tmp_path)
    lines = listing(store).splitlines()
    assert lines[-1] == "consumequeue: 2 files, 60 bytes"
    assert [line.split()[0] for line in lines if line.endswith("commitlog/00000000000000000000")] == ["5"]
    assert any(line.endswith(" gone -> /nowhere") for line in lines)
    for name in ("index", "consumequeue/L"):
        assert any(line.endswith(f" {name} -> {tmp_path}") for line in lines), "a folder that is a link is told as one"
