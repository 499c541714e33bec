"""A name server configuration written for Apache's."""

from pathlib import Path

import pytest

from appliance.__main__ import main
from appliance.configuration.config import HostFacts, load_config
from appliance.namesrv.apache_config import namesrv_options, read_apache

IN_ORDER = (
    *("rocketmqHome", "kvConfigPath", "configStorePath", "productEnvName", "clusterTest", "orderMessageEnable"),
    *("configBlackList", "listenPort", "bindAddress", "serverWorkerThreads", "serverCallbackExecutorThreads"),
    *("serverSelectorThreads", "serverOnewaySemaphoreValue", "serverAsyncSemaphoreValue"),
    *("serverChannelMaxIdleTimeSeconds", "serverSocketSndBufSize", "serverSocketRcvBufSize"),
    *("writeBufferHighWaterMark", "writeBufferLowWaterMark", "serverSocketBacklog"),
    *("serverPooledByteBufAllocatorEnable", "useEpollNativeSelector"),
)


def test_keys_are_sorted_into_meant_without_effect_and_unknown() -> None:
    found = read_apache({"listenPort": "9877", "serverWorkerThreads": "8", "odd": "1"})
    assert found.settings == {"listen.namesrv_port": "9877"}
    assert (found.without_effect, found.unknown) == (("serverWorkerThreads",), ("odd",))


def test_every_option_is_shown_in_order_with_the_value_in_force() -> None:
    config = load_config("[listen]\nnamesrv_port = 9877\n", facts=HostFacts(8 << 30, "", "box"))
    options = namesrv_options(config)
    assert tuple(options) == IN_ORDER
    assert (options["listenPort"], options["orderMessageEnable"]) == (9877, False)
    assert None not in options.values()


def test_the_command_prints_options_or_toml(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "namesrv.properties"
    file.write_text("# by hand\nlistenPort=9877\norderMessageEnable = true\nserverSelectorThreads=3\nmine=1\n")
    assert main(["namesrv", "-c", str(file), "-p"]) == 0
    printed = capsys.readouterr()
    lines = dict(line.split("=", 1) for line in printed.out.splitlines())
    assert (lines["listenPort"], lines["orderMessageEnable"]) == ("9877", "true")
    assert "serverSelectorThreads has no effect here" in printed.err
    assert "mine is unknown" in printed.err
    assert main(["namesrv", "-c", str(file)]) == 0
    toml = capsys.readouterr().out
    config = load_config(toml, facts=HostFacts(8 << 30, "", "box"))
    assert (config.listen.namesrv_port, config.namesrv.order_messages) == (9877, True)


def test_a_missing_or_wrong_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["namesrv", "-c", str(tmp_path / "none")]) == 255
    assert "none" in capsys.readouterr().err
    wrong = tmp_path / "wrong"
    wrong.write_text("listenPort=many\n")
    assert main(["namesrv", "-c", str(wrong)]) == 78
    assert "listen.namesrv_port" in capsys.readouterr().err
