"""The ingest gateway: listens, admits boxes, lands their pieces, until cancelled."""

from __future__ import annotations

import logging
import os
import random
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

import trio

from uplink_spark.centre.admission import LOOPBACK, Admission, Begun, address_of
from uplink_spark.centre.hub import Hub
from uplink_spark.centre.ingest import LONGEST_S, BoxSession
from uplink_spark.centre.lander import ShardLander, Writer
from uplink_spark.centre.local_socket import NAME, open_door
from uplink_spark.centre.shard_group import BEAT_S, BUCKET_BEAT_S, ShardGroup
from uplink_spark.centre.zone_files.contents import ContentCheck
from uplink_spark.centre.zone_files.coverage import ShardCover
from uplink_spark.centre.zone_files.inbox import Inbox
from uplink_spark.centre.zone_files.keeping import open_keeping
from uplink_spark.centre.zone_files.landing import ShardWriter, open_zone
from uplink_spark.centre.zone_files.records import CentreRecords
from uplink_spark.centre.zone_files.retention import clean
from uplink_spark.config import GatewayConfig, need_certs
from uplink_spark.errors import ConfigError, LandingError, ProtocolError, Refused, UplinkError, first_error
from uplink_spark.wire.expiry import not_after
from uplink_spark.wire.failpoints import Failpoint, failpoint_from
from uplink_spark.wire.link import LinkClosed, Stream
from uplink_spark.wire.tls import TlsStream, box_of, check_alpn, gateway_context, serial_of
from uplink_spark.zone.files import shown
from uplink_spark.zone.manifest import DAY_MS, Zone

log = logging.getLogger("uplink_spark.gateway")
TLS_S = 10
DISK_LOOK_S = 5
RETAIN_FIRST_S, RETAIN_S = 60, 3600
Used = Callable[[], float]
Open = Callable[[trio.SocketStream, str], Awaitable[BoxSession]]


class PeerLog:
    """One line per peer and minute; the rest is counted, and the next line says how many."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}  # when the last line was written, how many were not since

    def due(self, host: str) -> int | None:
        """Return how many lines were left out before this one, None when this one is to be left out too."""
        now = trio.current_time()
        at, left_out = self._last.get(host, (-60.0, 0))
        if now - at < 60:
            self._last[host] = (at, left_out + 1)
            return None
        if len(self._last) > 10_000:
            self._last.clear()
        self._last[host] = (now, 0)
        return left_out


def _stamp(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class Certificates:
    """The TLS context, read again when a file changed; the deny list, read at each handshake."""

    def __init__(self, config: GatewayConfig) -> None:
        self._folder, self._deny = config.certs, config.deny
        self._stamps: tuple[int, ...] = ()
        self._made: ssl.SSLContext | None = None
        self.ends_s: float | None = None  # when the gateway's certificate ends, seconds since 1970

    def context(self) -> ssl.SSLContext | None:
        if self._folder is None:
            return None
        stamps = tuple(_stamp(self._folder / name) for name in ("gateway.crt", "gateway.key", "ca.crt"))
        if stamps != self._stamps or self._made is None:
            try:
                self._made, self._stamps = gateway_context(self._folder), stamps
                self.ends_s = not_after((self._folder / "gateway.crt").read_text())
            except ConfigError as error:  # half replaced: what is loaded continues until the files fit together
                if self._made is None:
                    raise
                log.error("%s; the certificates loaded before stay in use", error)
        return self._made

    def denied(self, *names: str) -> bool:
        if self._deny is None:
            return False
        try:
            lines = self._deny.read_text().split()
        except OSError as error:
            log.error("deny list cannot be read path=%s error=%s; no box is admitted", self._deny, error.strerror)
            return True
        return any(name.lower() in {line.lower() for line in lines} for name in names if name)


def _cause_of(error: BaseException) -> tuple[str, str]:
    """Return cause and text of what ended a connection; a bug of ours is logged with its traceback."""
    error = first_error(error)
    if isinstance(error, (ProtocolError, Refused)):
        return error.code, str(error)
    if isinstance(error, (ssl.SSLError, trio.BrokenResourceError)):
        return "tls" if isinstance(error.__cause__, ssl.SSLError) else "network", f"{error} {error.__cause__ or ''}"
    if isinstance(error, (LinkClosed, OSError, trio.ClosedResourceError)):
        return "closed", str(error)
    log.error("internal error in a connection", exc_info=error)
    return "internal", repr(error)


class Gateway:
    """Admission of connections; what they share is in the hub."""

    def __init__(self, hub: Hub, certificates: Certificates) -> None:
        self._hub, self._certificates = hub, certificates
        self._admission, self._log = Admission(), PeerLog()

    async def admit(self, stream: trio.SocketStream) -> None:
        """Serve one connection to its end; whatever it does wrong ends it and nothing else."""
        try:
            host, port = stream.socket.getpeername()[:2]
        except OSError:
            await trio.aclose_forcefully(stream)
            return
        peer, who = f"{host}:{port}", address_of(host)
        who = host if who == LOOPBACK else who
        try:
            begun = self._admission.begin(host, trio.current_time())
        except Refused as reason:
            self._hub.counts.handshakes["busy"] += 1
            self._tell(who, peer, "busy", str(reason))
            await trio.aclose_forcefully(stream)
            return
        try:
            await self._to_its_end(stream, who, peer, partial(self._open, begun))
        finally:
            begun.ended()

    async def admit_stick(self, stream: trio.SocketStream) -> None:
        """Serve a sweep that came through the local socket."""
        await self._to_its_end(stream, "door", "door", self._open_stick)

    async def _to_its_end(self, stream: trio.SocketStream, host: str, peer: str, opening: Open) -> None:
        cause, text = "closed", "the box closed the connection"
        session: BoxSession | None = None
        try:
            session = await opening(stream, peer)
            await session.run()
        except Exception as error:
            cause, text = _cause_of(error)
        finally:
            if session is None or not session.welcomed:
                self._hub.counts.handshakes[cause] += 1
            await trio.aclose_forcefully(stream)
        self._tell(host, peer, cause, text)

    def _tell(self, host: str, peer: str, cause: str, text: str) -> None:
        left_out = self._log.due(host)
        if left_out is not None:
            more = f" not_logged_before={left_out}" if left_out else ""
            log.info("connection ended peer=%s cause=%s reason=%s%s", peer, cause, text, more)

    async def _open(self, begun: Begun, stream: trio.SocketStream, peer: str) -> BoxSession:
        context = self._certificates.context()
        self._hub.certificate_ends_s = self._certificates.ends_s
        certified: str | None = None
        link: Stream = stream
        if context is not None:
            link, certified = await self._secure(stream, context)
        deadline_s = LONGEST_S + random.uniform(-7200, 7200)
        return BoxSession(
            link, peer, self._hub, certified=certified, deadline_s=deadline_s, when_welcomed=begun.welcomed
        )

    async def _open_stick(self, stream: trio.SocketStream, peer: str) -> BoxSession:
        return BoxSession(stream, peer, self._hub, certified=None, deadline_s=LONGEST_S, stick=True)

    async def _secure(self, stream: trio.SocketStream, context: ssl.SSLContext) -> tuple[Stream, str]:
        secured = TlsStream(stream, context)
        with trio.move_on_after(TLS_S) as late:
            await secured.do_handshake()
        if late.cancelled_caught:
            raise LinkClosed(f"no TLS handshake in {TLS_S} s")
        check_alpn(secured.session.selected_alpn_protocol())
        certificate = secured.session.getpeercert()
        box, serial = box_of(certificate), serial_of(certificate)
        if box is None:
            raise Refused("identity", f"certificate {serial} has no SAN URI urn:rocketbox:box:NAME")
        if self._certificates.denied(box, serial):
            raise Refused("identity", f"box {box}, certificate {serial}, is on the deny list")
        return secured, box


def used_share(path: Path) -> float:
    """The used share of the file system of path, as df counts."""
    facts = os.statvfs(path)
    used = facts.f_blocks - facts.f_bfree
    return used / max(1, used + facts.f_bavail)


def free_bytes(path: Path) -> int:
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize


async def _watch_disk(hub: Hub, used: Used) -> None:
    told = ""
    while True:
        try:
            hub.disk_free = await trio.to_thread.run_sync(free_bytes, Path(hub.config.landing))
            hub.note_disk(await trio.to_thread.run_sync(used))
        except OSError as error:  # unmounted, perhaps: commits fail with a code until it is back
            if told != str(error):
                log.error("landing zone cannot be checked: %s", error)
            told = str(error)
        await trio.sleep(DISK_LOOK_S)


async def _retain(config: GatewayConfig, hub: Hub, now_ms: Callable[[], int]) -> None:
    """Retention once an hour, the first after a minute; by a clock that boxes doubt nothing goes."""
    files = open_keeping(config.landing)
    await trio.sleep(RETAIN_FIRST_S)
    while True:
        try:
            if (ahead_ms := hub.clock_ahead_ms()) > DAY_MS:
                raise LandingError(
                    f"the clock here is {ahead_ms / DAY_MS:.1f} days ahead of those of connected boxes; set it right"
                )
            await trio.to_thread.run_sync(clean, files, sorted(hub.landers), config.keep_days, now_ms)
        except (OSError, UplinkError) as error:
            log.error("retention stopped: %s; it continues in an hour", error)
        await trio.sleep(RETAIN_S)


@contextmanager
def open_landers(config: GatewayConfig, now_ms: Callable[[], int]) -> Iterator[tuple[list[ShardLander], Hub]]:
    """Open every shard of the landing zone for writing and yield its landers and the hub; blocking."""
    zone, make_lander, records = open_parts(config, now_ms)
    landers = list[ShardLander]()
    try:
        for shard in range(zone.shards):
            lander = make_lander(shard)
            landers.append(lander)
            try:
                lander.writer.open(lander.cover)
            except OSError as error:
                raise LandingError(
                    f"landing zone {shown(config.landing)}: {error}; is it mounted and writable?"
                ) from error
        yield landers, _hub(config, zone, landers, records, now_ms)
    finally:
        for lander in landers:
            lander.writer.close()


Parts = tuple[Zone, Callable[[int], ShardLander], CentreRecords]


def open_parts(config: GatewayConfig, now_ms: Callable[[], int]) -> Parts:
    """Return the zone, what makes the lander of a shard, not yet opened, and the small files; blocking."""
    zone, make_writer, records = _object_zone(config) if _is_url(config) else _disk_zone(config)
    contents = ContentCheck(records.read_part, records.quarantine)
    linger_s = config.linger_ms / 1000

    def make_lander(shard: int) -> ShardLander:
        writer = make_writer(shard)
        return ShardLander(shard, writer, linger_s=linger_s, now_ms=now_ms, cover=ShardCover(), contents=contents)

    return zone, make_lander, records


def _hub(
    config: GatewayConfig, zone: Zone, landers: list[ShardLander], records: CentreRecords, now_ms: Callable[[], int]
) -> Hub:
    return Hub(config, zone, {lander.shard: lander for lander in landers}, records, now_ms=now_ms, step=_failpoint())


def _failpoint() -> Failpoint:
    return failpoint_from(os.environ.get("UPLINK_STOP_AT"))


def _is_url(config: GatewayConfig) -> bool:
    return "://" in config.landing


Opened = tuple[Zone, Callable[[int], Writer], CentreRecords]


def _disk_zone(config: GatewayConfig) -> Opened:
    root, step = Path(config.landing), _failpoint()
    zone = open_zone(root, config.shards)
    return zone, lambda shard: ShardWriter(root, shard, step=step), CentreRecords(root, zone.shards)


def _object_zone(config: GatewayConfig) -> Opened:
    from uplink_spark.centre.zone_files.object_store import open_store
    from uplink_spark.centre.zone_files.objects import ObjectRecords, ObjectShardWriter, open_object_zone

    store, step = open_store(config.landing), _failpoint()
    zone = open_object_zone(store, config.shards)
    return zone, lambda shard: ObjectShardWriter(store, shard, step=step), ObjectRecords(store, zone.shards)


@asynccontextmanager
async def _landing(config: GatewayConfig, now_ms: Callable[[], int]) -> AsyncIterator[Hub]:
    """Land until cancelled: every shard, or those which this one of several gateways has."""
    if config.advertise is None:
        with open_landers(config, now_ms) as (landers, hub):
            async with trio.open_nursery() as nursery:
                for lander in landers:
                    nursery.start_soon(lander.run)
                yield hub
        return
    zone, make_lander, records = open_parts(config, now_ms)
    hub = _hub(config, zone, [], records, now_ms)
    beat_s = BUCKET_BEAT_S if _is_url(config) else BEAT_S
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ShardGroup(hub, config.advertise, make_lander, beat_s=beat_s).run)
        yield hub


async def _listen(address: tuple[str, int]) -> list[trio.SocketListener]:
    host, port = address
    try:
        return await trio.open_tcp_listeners(port, host=host, backlog=1024)
    except OSError as error:
        reason = "is taken by another program; choose another" if error.errno == 98 else str(error)
        raise ConfigError(f"port {port} on {host} {reason}") from error


def _door_name(config: GatewayConfig) -> str:
    """Each of several gateways has a socket of its own."""
    return NAME if config.advertise is None else f"gateway-{config.advertise.rpartition(':')[2]}.sock"


def _inbox(config: GatewayConfig, secrets: Path, hub: Hub, gateway: Gateway) -> Inbox:
    from uplink_spark.centre.zone_files.object_store import open_store

    return Inbox(open_store(config.landing), secrets, hub.zone.landing_id, gateway.admit_stick)


def _check(config: GatewayConfig) -> None:
    """Raises ConfigError for settings that do not go together."""
    need_certs(config.listen[0], config.certs, "listening on")
    if config.inbox_secrets is not None and not _is_url(config):
        raise ConfigError(
            f"--inbox-secrets is for a zone in an object store; {config.landing} is a folder: "
            f"python -m uplink_spark sweep {config.landing}/inbox --landing {config.landing} --secrets DIR"
        )


async def run_gateway(
    config: GatewayConfig,
    *,
    now_ms: Callable[[], int],
    used: Used | None = None,
    task_status: trio.TaskStatus[tuple[str, int]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve boxes until cancelled; started() is given the address when the port is open. Raises UplinkError."""
    _check(config)
    certificates = Certificates(config)
    certificates.context()  # a broken certificate is a start error
    listeners = await _listen(config.listen)
    scraped = await _listen(config.metrics) if config.metrics is not None else []
    try:
        async with _landing(config, now_ms) as hub:
            gateway, hub.certificate_ends_s = Gateway(hub, certificates), certificates.ends_s
            async with AsyncExitStack() as doors, trio.open_nursery() as nursery:
                nursery.start_soon(hub.records.keep_status, now_ms)
                nursery.start_soon(_retain, config, hub, now_ms)
                if not _is_url(config):
                    nursery.start_soon(_watch_disk, hub, used or (lambda: used_share(Path(config.landing))))
                    door = await doors.enter_async_context(open_door(Path(config.landing), _door_name(config)))
                    if door:
                        nursery.start_soon(trio.serve_listeners, gateway.admit_stick, door)
                elif config.inbox_secrets is not None:
                    nursery.start_soon(_inbox(config, config.inbox_secrets, hub, gateway).run)
                if scraped:
                    from uplink_spark.centre.metrics import known_names, serve_metrics

                    nursery.start_soon(serve_metrics, hub, scraped, known_names(config))
                nursery.start_soon(trio.serve_listeners, gateway.admit, listeners)
                task_status.started(listeners[0].socket.getsockname()[:2])
    finally:
        for listener in (*listeners, *scraped):
            listener.socket.close()
