"""Where a query begins: what retention has removed is told, or passed over; no shard is read backwards."""

import json

import pytest

from uplink_spark.errors import LandingError
from uplink_spark.spark.source_options import OptionError, parse_options
from uplink_spark.spark.source_positions import check_order, checked_start, positions, save_consumer
from uplink_spark.testing import MadeLanding, MadeRecord, log_piece
from uplink_spark.zone.reader import ZoneReader


def test_a_start_that_retention_removed_is_an_error_or_the_oldest_that_is_left(landing: MadeLanding) -> None:
    landing.land(log_piece([MadeRecord()]))
    zone = ZoneReader(str(landing.root))
    strict = parse_options({"path": str(landing.root)})
    with pytest.raises(LandingError, match=r"shard 0 of .* begins at seq 4, this query needs 2: retention"):
        checked_start(zone, strict, {0: 2}, {0: 4})
    assert checked_start(zone, strict, {0: 5}, {0: 4}) == {0: 5}
    lenient = parse_options({"path": str(landing.root), "failOnDataLoss": "false"})
    assert checked_start(zone, lenient, {0: 2}, {0: 4}) == {0: 4}


def test_a_position_is_found_and_a_consumer_saves_it(landing: MadeLanding) -> None:
    landing.land(log_piece([MadeRecord()]))
    zone, options = ZoneReader(str(landing.root)), parse_options({"path": str(landing.root)})
    assert (positions(zone, options, options.start), positions(zone, options, options.end)) == ({0: 0}, {0: 1})
    save_consumer(zone, "nightly", {0: 1})
    assert json.loads((landing.root / "consumers/nightly.json").read_text())["offsets"] == {"0": 1}


def test_a_shard_is_not_read_backwards() -> None:
    check_order({0: 3}, {0: 3})
    with pytest.raises(OptionError, match="begins at seq 3 of shard 0 and ends at 2: start is after end"):
        check_order({0: 3}, {0: 2})
