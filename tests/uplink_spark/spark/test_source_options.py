from pathlib import Path

import pytest

from uplink_spark.spark.source_options import (
    BATCH,
    MANIFEST_OPTIONS,
    OPTIONS,
    STREAM,
    OptionError,
    SourcePosition,
    check_mode,
    parse_options,
    parse_time,
)

NOW = 1_700_000_000_000


def parsed(**options: str) -> object:
    return parse_options({"path": "/landing", **options}, now_ms=lambda: NOW)


def test_defaults_are_messages_from_the_beginning_at_256_mib_a_batch() -> None:
    options = parse_options({"path": "/landing"})
    assert options.view.include == frozenset(["message"])
    assert (options.start, options.end) == (SourcePosition(seqs={}), SourcePosition(latest=True))
    assert (options.max_bytes, options.partition_bytes, options.fail_on_loss) == (256 << 20, 64 << 20, True)


def test_a_folder_is_known_by_its_whole_path_since_tasks_run_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse_options({"path": "landing"}).path == str(tmp_path / "landing")
    for same in ("/srv/landing", "file:///srv/landing", "s3://bucket/zone?region=x"):
        assert parse_options({"path": same}).path == same


@pytest.mark.parametrize("url", ["s3://key:hidden@bucket/zone", "abfs://zone@account/p?sas_token=hidden"])
def test_a_key_in_the_url_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(OptionError, match="credentials do not belong into a URL") as caught:
        parse_options({"path": url})
    assert "hidden" not in str(caught.value)


def test_names_are_not_case_sensitive() -> None:
    options = parse_options({"PATH": "/x", "startingoffsets": "latest", "MAXPIECESPERTRIGGER": "3"})
    assert (options.path, options.start, options.max_pieces, options.max_bytes) == (
        "/x",
        SourcePosition(latest=True),
        3,
        None,
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000123", 1_700_000_000_123),
        ("2023-11-14T22:13:20Z", NOW),
        ("2023-11-14T23:13:20+01:00", NOW),
        ("2023-11-14 22:13:20.5", NOW + 500),
        ("-15m", NOW - 900_000),
        ("-1.5h", NOW - 5_400_000),
        ("1969-12-31T23:59:59Z", -1000),
    ],
)
def test_a_time_is_iso_milliseconds_or_a_span_before_now(text: str, ms: int) -> None:
    assert parse_time("storeSince", text, NOW) == ms


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("boxes", " , ", "name at least one"),
        ("boxes", "[1, 2]", "a JSON list holds strings"),
        ("topicPattern", "(", "not a Python regular expression"),
        ("include", "messages", "'messages' is not a kind"),
        ("raw", "yes", "use true or false"),
        ("propertiesAs", "json", "use map or string"),
        ("startingOffsets", "first", "use earliest, latest or JSON"),
        ("startingOffsets", '{"0": -3}', "use earliest, latest or JSON"),
        ("startingOffsets", "[0]", "use earliest, latest or JSON"),
        ("startingLogOffsets", '{"box": 5}', "use JSON by box"),
        ("startingLogOffsets", '{"box": {"epoch": "newest", "offset": 1}}', "epoch is the number of the column"),
        ("startingTimestamp", "yesterday", "use 2026-11-03T07:00:00Z"),
        ("maxBytesPerTrigger", "lots", "use a number of bytes above 0"),
        ("maxBytesPerTrigger", "0", "use a number of bytes above 0"),
        ("maxRowsPerTrigger", "-1", "use a whole number above 0"),
        ("maxTriggerDelay", "soon", "use a time span"),
        ("columns", "body,body", "'body,body': name each column once"),
        ("columns", "box,bdy,tpc", "bdy and tpc: no such column; name each column once"),
        ("consumer", "../x", "1 to 64 of"),
        ("path", " ", "it must not be empty"),
    ],
)
def test_a_wrong_value_is_named_with_what_is_allowed(name: str, value: str, reason: str) -> None:
    with pytest.raises(OptionError, match=f"^option {name} = ") as caught:
        parsed(**{name: value})
    assert reason in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"startingOffsets": "earliest", "startingTimestamp": "-1h"},
        {"endingOffsets": "latest", "endingTimestamp": "-1h"},
        {"maxBytesPerTrigger": "1m", "maxRowsPerTrigger": "5"},
        {"topics": "a", "topicPattern": "b"},
        {"raw": "true", "include": "all"},
    ],
)
def test_options_that_exclude_one_another_are_named_together(options: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="exclude one another") as caught:
        parsed(**options)
    assert all(name in str(caught.value) for name in options)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("topic", "topics"),
        ("startingoffset", "startingOffsets"),
        ("subscribe", "topics"),
        ("kafka.bootstrap.servers", "path"),
        ("maxOffsetsPerTrigger", "maxRowsPerTrigger"),
    ],
)
def test_a_misspelt_option_or_the_kafka_sources_is_answered_with_the_one_meant(typed: str, meant: str) -> None:
    with pytest.raises(OptionError, match=f"option {typed} is not known, did you mean {meant}[?]; known options: path"):
        parsed(**{typed: "a"})


def test_an_unknown_option_is_answered_with_none_that_this_source_lacks() -> None:
    with pytest.raises(OptionError, match="option topic is not known; known options: path, boxes"):
        parse_options({"path": "/x", "topic": "a"}, known=MANIFEST_OPTIONS)


@pytest.mark.parametrize(("first", "last"), [("startingTimestamp", "endingTimestamp"), ("storeSince", "storeUntil")])
def test_a_span_that_ends_before_it_begins_is_refused(first: str, last: str) -> None:
    parsed(**{first: "-1h", last: "-1h"})
    with pytest.raises(OptionError, match=f"option {first} is later than {last}"):
        parsed(**{first: "-1h", last: "-2h"})


def test_waiting_for_more_needs_a_limit_of_time() -> None:
    with pytest.raises(OptionError, match="minBytesPerTrigger needs maxTriggerDelay"):
        parsed(minBytesPerTrigger="1m")


def test_the_path_is_needed() -> None:
    with pytest.raises(OptionError, match="option path is missing"):
        parse_options({})


@pytest.mark.parametrize("name", [name for name, (mode, _) in OPTIONS.items() if mode == STREAM])
def test_stream_options_are_refused_in_a_batch_query(name: str) -> None:
    check_mode({name: "1"}, STREAM)
    with pytest.raises(OptionError, match=f"option {name} is for a stream query"):
        check_mode({name: "1"}, BATCH)


def test_a_pattern_is_for_the_whole_topic_name() -> None:
    options = parse_options({"path": "/x", "topicPattern": "A|B"})
    assert options.view.topic_pattern == "^(?:A|B)$"


@pytest.mark.parametrize("value", ["box,body", " body , box ", '["box", "body"]'])
def test_columns_are_named_by_a_list_in_either_form(value: str) -> None:
    assert set(parse_options({"path": "/z", "columns": value}).view.columns) == {"box", "body"}
