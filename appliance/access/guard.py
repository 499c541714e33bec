"""Access control: permissions by place, keys, TLS, and how the box itself gets through its own doors."""

import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from appliance.access.access import Keys, accounts_path
from appliance.access.lazy_tls import LazyTls
from appliance.admin import Action
from appliance.broker.access.permissions import KEYS, AccessRules, Permissions
from appliance.clock import clock_trusted
from appliance.configuration.settings import Config
from appliance.device.probe import LocalCredentials
from appliance.errors import ApplianceError, ConfigError, ConfigProblem
from appliance.health.condition_rules import certificate
from appliance.health.conditions import Condition
from appliance.interfaces import Network, everywhere, read_addresses, read_networks, remembered
from appliance.requests import Handle, deferred
from netstack.serving.addresses import is_loopback
from netstack.serving.tls import ClientAuth, TlsConfig, TlsDoor, TlsMode, TlsStatistics, TlsUnusable, client_context
from netstack.wire.codes import RequestCode
from storage_driver.log.clock import wall_ms
from storage_driver.named_tuple import NamedTuple

log = logging.getLogger("appliance")
NO_NETWORKS: list[Network] = []
NAME_NETWORKS = 'name your own networks in access.allow, or set access.mode = "keys"'
ACCOUNT_CODES = (
    *(RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, RequestCode.DELETE_ACL_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_INFO),
    *(RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG),
)


class Guard(NamedTuple):
    """What stands at the two ports."""

    permissions: Permissions
    keys: Keys
    door: TlsDoor | LazyTls | None
    local_credentials: LocalCredentials
    mode: str
    open_to: tuple[str, ...] = ()  # networks of access.allow that are everybody's

    @property
    def loops(self) -> tuple[Callable[[], Awaitable[None]], ...]:
        return (self.keys.run, self.door.run) if self.door else (self.keys.run,)

    def handlers(self, broker: str, cluster: str, address: str) -> dict[int, Handle]:
        """Return the handlers of Apache's account commands, loaded when the first is asked."""

        def make() -> dict[int, Handle]:
            from appliance.broker.admin.accounts import AccountAdmin

            return AccountAdmin(self.keys, broker=broker, cluster=cluster, address=address).handlers()

        return deferred(ACCOUNT_CODES, make)

    def actions(self) -> dict[str, Action]:
        """Return what admin.sock may ask."""
        return self.keys.actions({"mode": self.mode, "tls": self.local_credentials.tls is not None})

    def conditions(self) -> Iterable[Condition]:
        """Return what is wrong with keys and certificate."""
        if self.mode == "open":
            text = "access.mode is open: anybody who reaches the port can read and write"
            yield Condition("access_open", text, 'set access.mode = "subnet" or "keys"')
        if self.open_to:
            yield Condition("access_open", allows_everybody(self.open_to), NAME_NETWORKS, "allow")
        keys = self.keys.statistics()
        if keys.failure:
            step = f"repair {self.keys.path.name}; the previous keys stay in use"
            yield Condition("accounts_unusable", f"accounts: {keys.failure}", step)
        elif self.mode == KEYS and not keys.accounts:
            step = "rocketbox access add NAME --publish TOPIC --subscribe TOPIC"
            yield Condition("accounts_unusable", "access.mode is keys and there is no key: no client has access", step)
        seen = self.door.statistics() if self.door else None
        if seen is not None:
            yield from certificate_conditions(seen, wall_ms(), clock_trusted())


def certificate_conditions(seen: TlsStatistics, now_ms: int, trusted: bool) -> Iterable[Condition]:
    """Return that the certificate ends soon, if the clock can tell, or that the files on disk are not in force."""
    step, left_s = "`rocketbox tls make`, or put a new one in place", (seen.not_after_ms - now_ms) / 1000
    yield from certificate("certificate_ends", "the TLS certificate", left_s, step, trusted=trusted)
    if seen.failure:
        text = f"new TLS files are not in use: {seen.failure}"
        step = "put a certificate and its key in place, or `rocketbox tls make`; the one in use stays until then"
        yield Condition("certificate_refused", text, step)


def make_guard(config: Config, data: Path, *, now_ms: Callable[[], int]) -> Guard:
    """Return the guard of a box, with a certificate made when one is needed. Blocks. Raises ConfigError."""
    keys = Keys(accounts_path(data, config.access.accounts), now_ms=now_ms)
    closed = is_loopback(config.listen.host)  # a box that only its own programs reach need not know its networks
    rules = AccessRules(config.access.mode, config.access.admin, config.access.allow, closed, config.access.replay)
    permissions = Permissions(
        rules, networks=(lambda: NO_NETWORKS) if closed else remembered(read_networks), account_of=keys
    )
    door = open_door(config, data)
    enforced = door is not None and config.tls.mode == TlsMode.ENFORCING
    local_credentials = LocalCredentials(
        keys.sign if config.access.mode == KEYS else None, client_context() if enforced else None
    )
    return Guard(permissions, keys, door, local_credentials, config.access.mode, open_to(config))


def open_to(config: Config) -> tuple[str, ...]:
    """Return the networks of `access.allow` that let in everybody, where that is what decides."""
    return tuple(everywhere(config.access.allow)) if config.access.mode == "subnet" else ()


def allows_everybody(networks: Iterable[str]) -> str:
    """Return what is wrong with such networks."""
    return f"access.allow has {', '.join(networks)}: anybody who reaches the port can read and write"


def tls_files(config: Config, data: Path) -> tuple[Path, Path]:
    """Return where certificate and key are."""
    folder = data / "tls"
    cert = Path(config.tls.cert) if config.tls.cert else folder / "box.crt"
    return cert, Path(config.tls.private_key) if config.tls.private_key else folder / "box.key"


def open_door(config: Config, data: Path) -> TlsDoor | LazyTls | None:
    """Return what accepts TLS, None for a box without TLS. Raises ConfigError if TLS is required and unavailable."""
    said, (cert, _) = config.tls, tls_files(config, data)
    plain = (said.mode, said.client_auth, said.cert) == (TlsMode.PERMISSIVE, ClientAuth.NONE, "")
    if plain and (is_loopback(config.listen.host) or cert.exists()):
        return LazyTls(lambda: _door(config, data))
    return _door(config, data)


def _door(config: Config, data: Path) -> TlsDoor | None:
    mode, (cert, key) = TlsMode(config.tls.mode), tls_files(config, data)
    if config.tls.client_auth == ClientAuth.REQUIRE and mode is not TlsMode.ENFORCING:
        text = "without tls.mode = enforcing, plain-text clients need no certificate"
        raise ConfigError("tls", [ConfigProblem("tls.client_auth", config.tls.client_auth, text, None)])
    if mode is TlsMode.DISABLED:
        return None
    try:
        if not config.tls.cert and not cert.exists():
            _make_own(cert, key, config.box.name)
        trust = Path(config.tls.trust) if config.tls.trust else None
        password = Path(config.tls.passphrase_file) if config.tls.passphrase_file else None
        auth = ClientAuth(config.tls.client_auth)
        settings = TlsConfig(cert, key, mode, password, auth, trust, trusting_self=True)
        return TlsDoor(settings, clock_trusted=clock_trusted)
    except (TlsUnusable, ApplianceError, OSError) as exc:
        if mode is TlsMode.ENFORCING or config.tls.cert or config.tls.client_auth != ClientAuth.NONE:
            step = "" if config.tls.cert else "; `rocketbox tls make` makes a new certificate"
            raise ConfigError("tls", [ConfigProblem("tls.mode", mode.value, f"{exc}{step}", None)]) from exc
        log.error("event=no_tls reason=%r next_step=rocketbox_tls_make", str(exc))
        return None


def _make_own(cert: Path, key: Path, name: str) -> None:
    from datetime import UTC, datetime

    from appliance.access.certificate import make_certificate  # once in the life of a box

    make_certificate(cert, key, name, own_addresses(), now=datetime.now(UTC))
    log.info("event=certificate_made path=%s", cert)


def own_addresses() -> list[str]:
    """Return the addresses others may reach this machine at, as they stand in its certificate."""
    found = [address for _, address, _ in read_addresses()]
    return [str(address) for address in found if not address.is_loopback and not address.is_link_local]
