"""A group that elects its leader, beside Apache's DLedger: figures with the machine that gave them.

    make bench BENCH=tests/bench/bench_group.py ARGS='load --rounds 2'

`idle`: processor time and bytes on the network of each box of three, and of two boxes and a witness, at rest, and the
memory of the witness. `load`: messages a second and latency of the stock Java client 4.9.7, with three boxes, with two
boxes and a witness, and with three brokers of Apache 4.9.7 with DLedger, in turns. `kill`: time from `kill -9` of the
leader to the next acknowledged send of the stock client with its usual times: DLedger, and three boxes without and with
an address that moves.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psutil

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.appliance.group.bridge import BridgedMember, Plugged, boxes, bridged
from tests.appliance.group.certificates import certificates
from tests.appliance.group.real_group import RealMember
from tests.bench.bench_beside_apache import Contender, report, run_load, why_not
from tests.bench.harness import in_turn, machine, table
from tests.interop.apache_pair import VERSION, ApacheBroker, apache_namesrv
from tests.interop.box import Child, until
from tests.interop.client import producer, unique
from tests.interop.jvm import Jvm
from tests.interop.test_group import TimedSenders, linked
from tests.interop.wire import route
from tests.ports import apache_port

HEAP_MB = 1024
SETTLED_S = 12.0
FLOATING = 'address = "NETWORK.200/24@eth"\n'
THREE, TWO, DLEDGER = "three boxes", "2 + witness", "DLedger"


# ---- at rest


class Rest(NamedTuple):
    """What a member had used up to a moment."""

    processor_s: float
    sent: int
    received: int


def _rest(member: Plugged) -> Rest:
    """Read the counters; what comes in at this end of the cable is what the member sent."""
    times = psutil.Process(member.pid).cpu_times()
    counters = Path("/sys/class/net", member.outlet.space, "statistics")
    sent, received = (int((counters / f"{way}_bytes").read_text()) for way in ("rx", "tx"))
    return Rest(times.user + times.system, sent, received)


def idle(seconds: int, timing: float) -> None:
    rows: list[list[object]] = []
    for witness in (False, True):
        with (
            tempfile.TemporaryDirectory(prefix="idle-") as folder,
            bridged(Path(folder), witness=witness, timing=timing) as members,
        ):
            leader = linked(list(boxes(members)))
            time.sleep(SETTLED_S)  # what a start leaves to do is done
            before, began = [_rest(each) for each in members], time.monotonic()
            time.sleep(seconds)
            took = time.monotonic() - began
            for member, base in zip(members, before, strict=True):
                used = [(now - then) / took for now, then in zip(_rest(member), base, strict=True)]
                role = "leader" if member is leader else "follower" if isinstance(member, BridgedMember) else "witness"
                figures = [f"{used[0]:.2%}", *(f"{each:.0f}" for each in used[1:]), f"{member.resident_mb():.1f}"]
                rows.append([TWO if witness else THREE, f"{member.name}, {role}", *figures])
    print(table(["group", "member", "of a core", "sent B/s", "received B/s", "resident MB"], rows))


# ---- under load


class LocalWitness(Child):
    """A witness on this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__([], folder / "w.log")
        self.listed, self._folder = f"w=127.0.0.1:{apache_port() + 1} witness", folder

    def configure(self, listed: Sequence[str]) -> None:
        words = ["-m", "appliance", "witness", "--group", "press", "--as", "w", "--data", str(self._folder / "w")]
        words += ["--certs", str(certificates() / "w")]
        self.command = [*words, *(word for each in listed for word in ("--member", each))]


def _configure(member: RealMember, listed: Sequence[str]) -> None:
    members = ", ".join(f'"{each}"' for each in listed)
    (member.data.parent / f"{member.name}.toml").write_text(
        f"[box]\nname = 'press'\n[replication]\nrole = 'member'\n[group]\nmember = '{member.name}'\n"
        f"members = [{members}]\ncerts = '{certificates() / member.name}'\n"
    )


@contextmanager
def our_group(folder: Path, *, witness: bool) -> Iterator[Contender]:
    """Run a group with the settings that a box has by default."""
    folder.mkdir()
    made = [RealMember(folder / name) for name in ("ab" if witness else "abc")]
    voting = [LocalWitness(folder)] if witness else []
    listed = [*(f"{each.name}=127.0.0.1:{each.broker_port + 1}" for each in made), *(each.listed for each in voting)]
    with ExitStack() as running:
        for member in made:
            _configure(member, listed)
        for each in voting:
            each.configure(listed)
        for child in (*voting, *made):
            child.start()
            running.callback(child.kill)
        leader = linked(made)
        namesrv = ";".join(each.namesrv for each in made)
        pids = [each.pid for each in (*made, *voting)]
        yield Contender(TWO if witness else THREE, namesrv, pids, 0.0, leader.broker_port)


class Dledger:
    """Three of Apache's brokers that elect their leader by DLedger."""

    def __init__(self, folder: Path, namesrv: str) -> None:
        self.namesrv = namesrv
        ports = [apache_port() for _ in range(3)]
        peers = ";".join(f"n{number}-127.0.0.1:{apache_port()}" for number in range(3))
        same: dict[str, Any] = {"brokerName": "apache", "heap_mb": HEAP_MB, "flushDiskType": "SYNC_FLUSH"}
        same |= {"enableDLegerCommitLog": "true", "dLegerGroup": "apache", "dLegerPeers": peers}
        self.brokers = {
            port: ApacheBroker(folder / f"n{number}", namesrv, port=port, **same, dLegerSelfId=f"n{number}")
            for number, port in enumerate(ports)
        }

    @contextmanager
    def running(self) -> Iterator[None]:
        with ExitStack() as running:
            for broker in self.brokers.values():
                broker.start()
                running.callback(broker.kill)
            self.leader()
            yield

    def leader(self) -> ApacheBroker:
        """Return who leads, once the name server knows somebody."""
        port = until(self._port, seconds=120, what="none of Apache's brokers leads")
        return self.brokers[port]

    def _port(self) -> int:
        answer = route(self.namesrv, "TBW102")
        body = answer[8 + (int.from_bytes(answer[4:8], "big") & 0xFFFFFF) :]
        addresses = json.loads(_quoted(body))["brokerDatas"][0]["brokerAddrs"] if body else {}
        return int(addresses.get("0", ":0").rpartition(":")[2])

    def pids(self) -> list[int]:
        return [each.process.pid for each in self.brokers.values() if each.process is not None]


def _quoted(body: bytes) -> str:
    """Return fastjson's text as JSON: it writes numbers as keys."""
    text = body.decode()
    for number in range(4):
        text = text.replace(f"{{{number}:", f'{{"{number}":').replace(f",{number}:", f',"{number}":')
    return text


@contextmanager
def dledger(folder: Path) -> Iterator[Dledger]:
    folder.mkdir()
    with apache_namesrv(folder / "n") as namesrv:
        made = Dledger(folder, namesrv)
        with made.running():
            yield made


def load(rounds: int, seconds: int, warm: int, threads: Sequence[int]) -> None:
    """Let the stock client send to all in turns; processor time and memory are those of all members."""
    loads = [("sync", each) for each in threads]
    with tempfile.TemporaryDirectory(prefix="group-") as name, ExitStack() as running:
        folder = Path(name)
        theirs = running.enter_context(dledger(folder / "apache"))
        contenders = [
            Contender(DLEDGER, theirs.namesrv, theirs.pids(), 0.0, theirs.leader().port),
            running.enter_context(our_group(folder / "two", witness=True)),
            running.enter_context(our_group(folder / "three", witness=False)),
        ]
        for contender in contenders:
            contender.idle_mb = contender.resident_mb()
        for each in loads:
            for number in range(rounds):
                for contender in in_turn(contenders, number):
                    run_load(contender, each, warm, seconds)
        print(report([contenders[0], contenders[1]], loads))
        print(report([contenders[0], contenders[2]], loads))


# ---- without the leader


def kill(rounds: int) -> None:
    """Kill leaders under senders with the client's usual times, in turns."""
    jvm = Jvm(VERSION)
    seen: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="group-") as name, ExitStack() as running:
        folder = Path(name)
        running.callback(jvm.close)
        theirs = running.enter_context(dledger(folder / "apache"))
        switches = {DLEDGER: Killing(theirs.namesrv, theirs.leader, ApacheBroker.kill, lambda each: each.start())}
        for what, more in ((THREE, ""), (f"{THREE}, floating address", FLOATING)):
            (folder / what).mkdir()
            made = boxes(running.enter_context(bridged(folder / what, more, timing=1.0)))
            linked(list(made))
            switches[what] = _killing(made)
        for _ in range(rounds):
            for what, each in switches.items():
                seen.setdefault(what, []).append(_one_kill(jvm, each))
                print(f"  {what}: {seen[what][-1]:.1f} s", flush=True)
    rows = [
        [what, len(each), f"{statistics.median(each):.1f}", f"{min(each):.1f}", f"{max(each):.1f}"]
        for what, each in seen.items()
    ]
    print(table(["next acknowledged send", "rounds", "median s", "least", "most"], rows))


class Killing(NamedTuple):
    """A group under test: how its leader is found, ended and started again."""

    namesrv: str
    leader: Callable[[], Any]
    end: Callable[[Any], None]
    begin: Callable[[Any], None]


def _killing(made: list[BridgedMember]) -> Killing:
    namesrv = ";".join(each.namesrv for each in made)
    return Killing(namesrv, lambda: linked(list(made)), BridgedMember.kill, BridgedMember.start)


def _one_kill(jvm: Jvm, group: Killing) -> float:
    """Return the time without an acknowledgement after the end of a leader."""
    topic = unique("killed")
    with producer(jvm, group.namesrv, SendMsgTimeout=3_000, PollNameServerInterval=30_000) as client:
        until(lambda: _stored(jvm, client, topic), seconds=60, what="no send is acknowledged")
        senders = TimedSenders(jvm, client, topic)
        with senders.running():
            senders.more(50)
            leader, began = group.leader(), time.monotonic()
            group.end(leader)
            senders.more(50)
            pause_s, _ = senders.since(began)
    group.begin(leader)
    return pause_s


def _stored(jvm: Jvm, client: Any, topic: str) -> bool:
    try:
        return str(client.send(jvm.message(topic, b"first")).getSendStatus().toString()) == "SEND_OK"
    except Exception:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("idle", "load", "kill"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=int, default=8, help="of each load (8)")
    parser.add_argument("--warm", type=int, default=4, help="seconds before it counts (4)")
    parser.add_argument("--threads", default="64,256", help="of the client (64,256)")
    parser.add_argument("--rest", type=int, default=60, help="seconds of idle (60)")
    options = parser.parse_args(arguments)
    print(machine(), flush=True)
    if options.what == "idle":
        idle(options.rest, 1.0)
    elif options.what == "kill":
        kill(options.rounds)
    elif reason := why_not():
        print(f"skipped: {reason}")
    else:
        load(options.rounds, options.seconds, options.warm, [int(each) for each in options.threads.split(",")])
    return 0


if __name__ == "__main__":
    sys.exit(main())
