"""The configuration: sources in order, every error at once, defaults that fit the machine."""

import re
from pathlib import Path

import pytest

from appliance.configuration.config import Config, HostFacts, load_config, unknown_variables
from appliance.configuration.parts import store_config
from appliance.configuration.settings import AdvertiseRule, UplinkWindow, rules, tables
from appliance.errors import ConfigError

FACTS = HostFacts(disk_bytes=100 << 30, serial_number="RBX-0007", host_name="bench.example")


def load(text: str = "", **more: object) -> Config:
    return load_config(text, source="box.toml", facts=FACTS, **more)  # type: ignore[arg-type]


def problems(text: str, **more: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(text, **more)
    return [str(problem) for problem in caught.value.problems]


def test_an_empty_file_gives_the_documented_defaults() -> None:
    config = load()
    assert (config.listen.host, config.listen.broker_port, config.listen.namesrv_port) == ("127.0.0.1", 10911, 9876)
    assert (config.box.cluster, config.store.retention_h, config.limits.requests_in_flight) == (
        "DefaultCluster",
        72,
        2048,
    )
    assert (config.access.mode, config.access.admin, config.uplink.gateway) == ("subnet", "loopback", "")
    assert config.origins["listen.broker_port"] == "default"


def test_the_name_comes_from_the_serial_number_and_else_from_the_host() -> None:
    assert (load().box.name, load().origins["box.name"]) == ("rbx-0007", "serial number")
    config = load_config(facts=FACTS._replace(serial_number=""))
    assert (config.box.name, config.origins["box.name"]) == ("bench-example", "host name")


@pytest.mark.parametrize(("gib", "segment_mib"), [(8, 256), (63, 256), (64, 1024), (500, 1024)])
def test_the_segment_size_follows_the_disk(gib: int, segment_mib: int) -> None:
    assert load_config(facts=FACTS._replace(disk_bytes=gib << 30)).store.segment_mib == segment_mib


def test_a_written_segment_size_wins_over_the_disk() -> None:
    config = load("[store]\nsegment_mib = 64\n")
    assert (config.store.segment_mib, config.origins["store.segment_mib"]) == (64, "file")


def test_command_line_wins_over_environment_and_that_over_the_file() -> None:
    text = "[listen]\nbroker_port = 1000\nnamesrv_port = 1001\nhost = '::1'\n"
    environ = {"ROCKETBOX_LISTEN_BROKER_PORT": "2000", "ROCKETBOX_LISTEN_NAMESRV_PORT": "2001", "ROCKETBOX_DATA": "x"}
    config = load(text, environ=environ, command_line={"listen.broker_port": 3000})
    assert (config.listen.broker_port, config.listen.namesrv_port, config.listen.host) == (3000, 2001, "::1")
    assert [config.origins[f"listen.{key}"] for key in ("broker_port", "namesrv_port", "host")] == [
        "command line",
        "environment",
        "file",
    ]


def test_a_variable_that_sets_nothing_is_named_with_the_nearest_that_does() -> None:
    environ = {"ROCKETBOX_STORE_QUOTA_GB": "20", "ROCKETBOX_STORE_QUOTA_GIB": "20", "ROCKETBOX_PURE": "1", "HOME": "/"}
    assert unknown_variables(environ) == ['ROCKETBOX_STORE_QUOTA_GB, did you mean "STORE_QUOTA_GIB"?']


def service_links(service: str, port: int) -> dict[str, str]:
    """What the kubelet sets in each pod beside a service (kubernetes, pkg/kubelet/envvars/envvars.go)."""
    name, address = service.upper().replace("-", "_"), "10.0.0.1"
    host = {"SERVICE_HOST": address, "SERVICE_PORT": f"{port}", "SERVICE_PORT_NAME": f"{port}"}
    parts = {"PROTO": "tcp", "PORT": f"{port}", "ADDR": address}
    links = {f"PORT{part}": f"tcp://{address}:{port}" for part in ("", f"_{port}_TCP")}
    return {f"{name}_{key}": text for key, text in (host | links).items()} | {
        f"{name}_PORT_{port}_TCP_{key}": text for key, text in parts.items()
    }


def test_service_links_of_kubernetes_set_nothing_and_no_start_fails_of_them() -> None:
    services = {"rocketbox": 9876, "rocketbox-grpc": 8081, "rocketbox-listen-broker": 10911, "rocketbox-gateway": 7000}
    environ = {key: text for each, port in services.items() for key, text in service_links(each, port).items()}
    config = load(environ=environ)
    assert (config.grpc.port, config.listen.broker_port, config.origins["grpc.port"]) == (0, 10911, "default")
    assert unknown_variables(environ) == [
        "ROCKETBOX_GRPC_PORT, a service link of Kubernetes",
        "ROCKETBOX_LISTEN_BROKER_PORT, a service link of Kubernetes",
    ]
    assert load(environ=environ | {"ROCKETBOX_GRPC_PORT": "8082"}).grpc.port == 8082  # the pod's own value wins there


def test_environment_values_are_read_by_the_rule_of_their_key() -> None:
    environ = {
        "ROCKETBOX_BOX_NAME": "7",
        "ROCKETBOX_LISTEN_VIP": "true",
        "ROCKETBOX_UPLINK_EXPRESS": '["alarms"]',
        "ROCKETBOX_UPLINK_MAX_DELAY_S": "2",
    }
    config = load(environ=environ)
    assert (config.box.name, config.listen.vip) == ("7", True)
    assert (config.uplink.express, config.uplink.max_delay_s) == (("alarms",), 2.0)


def test_every_problem_is_listed_with_its_line_and_the_nearest_name() -> None:
    text = '[listen]\nbroker_prot = 10911\nvip = "yes"\n\n[stroe]\nx = 1\n\n[store]\nretention_h = 0\n'
    assert problems(text) == [
        'line 2: listen.broker_prot: unknown key, did you mean "listen.broker_port"?',
        "line 3: listen.vip = 'yes': must be true or false, without quotes",
        'line 5: stroe: unknown table, did you mean "store"?',
        "line 9: store.retention_h = 0: must be 1 to 8760",
    ]


def test_problems_of_all_sources_come_together() -> None:
    found = problems(
        "[limits]\nidle_s = true\n",
        environ={"ROCKETBOX_LISTEN_BROKER_PORT": "ten"},
        command_line={"uplink.gateway": "no port"},
    )
    assert found == [
        "line 2: limits.idle_s = True: must be a whole number, 1 to 86400",
        "listen.broker_port = 'ten': must be 0 to 65535 (from the environment)",
        """uplink.gateway = 'no port': must be "host:port" (from the command line)""",
    ]


def test_a_file_that_is_not_toml_says_where() -> None:
    assert "line 2" in problems("[listen]\nport ten\n")[0]


def test_a_value_in_the_place_of_a_table_says_how_to_write_it() -> None:
    assert problems("uplink = 'gate:1'") == ["line 1: uplink = 'gate:1': is a table: write [uplink]"]


def test_dotted_keys_are_keys() -> None:
    assert load("listen.broker_port = 5\n").listen.broker_port == 5
    assert problems("listen.broker_port = 70000\n")[0].startswith("line 1: listen.broker_port")


def test_inline_tables_become_records() -> None:
    config = load(
        "[advertise]\nrules = [{ from = '10.0.0.0/8', address = '1.2.3.4', port = 7 }]\n"
        "[uplink]\ngateway = 'gate:10940'\nwindows = [{ days = 'mon-fri', hours = '07:00-19:00', kbit_s = 1000 }]\n"
        "metered = { interfaces = ['wwan0'], month_mbytes = 500 }\n"
    )
    assert config.advertise.rules == (AdvertiseRule("10.0.0.0/8", "1.2.3.4", 7),)
    assert config.uplink.windows == (UplinkWindow("mon-fri", "07:00-19:00", 1000),)
    assert (config.uplink.metered.interfaces, config.uplink.metered.month_mbytes) == (("wwan0",), 500)


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("{ address = '1.2.3.4' }", "'from' is missing"),
        ("{ from = '10.0.0.0/33', address = 'x' }", "from = '10.0.0.0/33'"),
        ("{ from = '::/0', address = 'x', prot = 1 }", "unknown key 'prot'"),
        ("7", "must be { from = ..., address = ..., port = ... }"),
    ],
)
def test_a_wrong_record_names_the_key_inside(rule: str, reason: str) -> None:
    assert reason in problems(f"[advertise]\nrules = [{rule}]\n")[0]


def test_every_default_follows_its_own_rule() -> None:
    for table, kind in tables().items():
        made = kind()
        for name in (item.removeprefix(f"{table}.") for item in rules() if item.startswith(f"{table}.")):
            if (table, name) != ("uplink", "metered"):
                rules()[f"{table}.{name}"].read(getattr(made, name))


def test_no_key_is_a_secret_and_every_key_has_a_meaning() -> None:
    for table, kind in tables().items():
        for name, each in kind.keys.items():
            assert each.meaning, f"{table}.{name}"
            assert not re.search("secret|password|token", name)


def test_two_listeners_on_one_port_are_refused_before_either_opens() -> None:
    with pytest.raises(ConfigError, match=r"broker_port = 9876: listen\.namesrv_port has the same value"):
        load(command_line={"listen.broker_port": 9876})


@pytest.mark.parametrize("name", ["broker", "namesrv"])
def test_the_port_of_grpc_is_none_of_the_others(name: str) -> None:
    reason = rf"grpc\.port = 7000: listen\.{name}_port has the same value"
    with pytest.raises(ConfigError, match=reason):
        load(command_line={f"listen.{name}_port": 7000, "grpc.port": 7000})


def test_a_key_that_only_shares_its_table_is_not_meant() -> None:
    assert problems("[broker]\nnme = 'x'\n") == ['line 2: broker.nme: unknown key, did you mean "box.name"?']
    assert problems("[tls]\nkey = '/k'\n") == ["line 2: tls.key: unknown key"]


def test_messages_larger_than_a_piece_of_the_uplink_are_refused_only_beside_an_uplink() -> None:
    gateway = '[uplink]\ngateway = "centre:10940"\n[limits]\nmessage_mib = '
    with pytest.raises(ConfigError, match=r"limits\.message_mib = 8: at most 7 with uplink\.gateway"):
        load(gateway + "8")
    assert load(gateway + "7").limits.message_mib == 7
    assert load("[limits]\nmessage_mib = 16").limits.message_mib == 16


def test_a_wrong_option_is_not_blamed_on_the_file() -> None:
    with pytest.raises(ConfigError, match=r"must be 0 to 65535 \(from the command line\)"):
        load(command_line={"listen.broker_port": 70000})


def test_topics_with_a_retention_of_their_own_reach_the_store() -> None:
    text = "[store]\nretention_h = 48\n[[store.classes]]\ntopics = ['alarm*']\nretention_h = 720\n"
    rules = store_config(load(text), Path("/d"), b"").retention
    assert [rules.keep_of(topic) // 3_600_000 for topic in ("alarm-1", "orders")] == [720, 48]


def test_slaves_of_a_network_need_an_address_that_they_reach() -> None:
    text = '[replication]\nrole = "master"\nslaves = ["10.1.0.12/32"]\n'
    with pytest.raises(ConfigError, match=r"no slave reaches this machine's own address: set listen\.host"):
        load(text)
    assert load(f"[listen]\nhost = '0.0.0.0'\n{text}").replication.slaves == ("10.1.0.12/32",)
