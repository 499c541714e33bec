"""Transactions over a real store, for the tests of their parts."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import trio

from appliance.broker.acknowledging import SendAcknowledging
from appliance.broker.intake import Intake, MessageDraft
from appliance.broker.tables.clients import ClientTable, Member
from appliance.broker.tables.offsets import OffsetTable
from appliance.broker.tables.topics import TopicRules, TopicTable
from appliance.broker.transactions.checks import TransactionChecks
from appliance.broker.transactions.half_messages import TransactionEnds, TransactionRules, half_divert
from appliance.testing import STORE_HOST, FakePeer, MemoryStateFile, SmallStore, answered, small_store, wall_ms
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand, request
from storage_driver.files.disk import Disk
from storage_driver.interfaces import Marks
from storage_driver.store import AppendResult

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
GIVEN_UP = "TRANS_CHECK_MAX_TIME_TOPIC"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
QUICK = TransactionRules(STORE_HOST, timeout_ms=0, most_checks=3, check_s=0.02)
ON_DEMAND = QUICK._replace(check_s=1000.0)  # `Bench.round`
NEVER = TransactionRules(STORE_HOST, check_s=1000.0)


@dataclass(frozen=True, slots=True)
class Bench:
    """Transactions over a real store."""

    small: SmallStore
    transactions: TransactionEnds
    checks: TransactionChecks
    clients: ClientTable
    intake: Intake
    offsets: OffsetTable
    made: list[str]  # topics that the checks made

    async def half(self, body: bytes = b"x", born_ms: int | None = None, **properties: str) -> AppendResult:
        """Store a half message as a producer of group P would."""
        pairs = {"TRAN_MSG": "true", "PGROUP": "P", "UNIQ_KEY": "K", "TAGS": "t", **properties}
        placed = self.intake.put(MessageDraft("T", 1, body, pairs, 0, 4, born_ms or wall_ms(), STORE_HOST))
        await self.small.store.wait_committed(placed.end)
        return placed

    async def end(self, half: AppendResult, verdict: int, group: str = "P", **changes: int) -> RemotingCommand:
        """END_TRANSACTION as a client sends it."""
        fields = {"tranStateTableOffset": half.queue_offset, "commitLogOffset": half.log_offset, **changes}
        ext = {"producerGroup": group, "commitOrRollback": str(verdict), **{k: str(v) for k, v in fields.items()}}
        return await answered(self.transactions.handle_end(request(RequestCode.END_TRANSACTION, ext), FakePeer()))

    async def round(self) -> None:
        """Look once at every half that is open now."""
        await self.checks._round()

    def producer(self, number: int = 1) -> FakePeer:
        peer = FakePeer(number)
        self.clients.producer_joined(peer, "P", Member(f"p{number}", "JAVA", 409, wall_ms()))
        return peer


def copy_of(half: AppendResult, ext: Mapping[str, str]) -> AppendResult:
    """Return where a check-back says that a half message is now."""
    place = int(ext["tranStateTableOffset"]), int(ext["commitLogOffset"])
    return AppendResult(*place, half.size, half.end, half.stored_ms)


def acknowledging(store: Marks) -> SendAcknowledging:
    """Return what tells when ends are answered, for topics without a policy."""
    rules = TopicRules("DefaultCluster", "box")
    return SendAcknowledging(store, TopicTable(MemoryStateFile(), rules, now_ms=wall_ms))


@asynccontextmanager
async def bench(
    folder: Path,
    rules: TransactionRules = NEVER,
    offsets: MemoryStateFile | None = None,
    *,
    disk: Disk | None = None,
    now_ms: Callable[[], int] = wall_ms,
) -> AsyncIterator[Bench]:
    async with small_store(folder, disk=disk, now_ms=now_ms) as small, trio.open_nursery() as nursery:
        table = OffsetTable(offsets or MemoryStateFile())
        transactions = TransactionEnds(
            rules,
            small.store,
            table,
            now_ms=now_ms,
            put_stat=lambda *_: None,
            acknowledging=acknowledging(small.store),
        )
        clients = ClientTable(now_ms=now_ms)
        made = list[str]()
        checks = TransactionChecks(transactions, clients, now_ms=now_ms, make_topic=made.append)
        nursery.start_soon(checks.run)
        yield Bench(small, transactions, checks, clients, Intake(small.store, [half_divert]), table, made)
        nursery.cancel_scope.cancel()
