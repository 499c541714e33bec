"""`rocketbox device`: the command line of the box's end of the serial line."""

import pytest

from appliance.__main__ import main


@pytest.mark.parametrize("serial", ["a b", "", "-1", "x" * 65, "ä"])
def test_a_serial_number_that_no_bench_takes_is_refused(serial: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["device", "--pty", f"--serial={serial}", "--root", "/nowhere"])
    assert ended.value.code == 2
    assert f"{serial!r} is not a serial number: letters, digits, dots" in capsys.readouterr().err
