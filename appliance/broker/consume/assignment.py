"""QUERY_ASSIGNMENT (400): the queues of a 5.x member, assigned by the broker (`setClientRebalance(false)`).

Source: RocketMQ 5.5.0 QueryAssignmentProcessor. Such a member pulls, or receives by POP where an operator set that for
its group and topic; retry topics are pulled. A member that receives by POP gets brokers (queue -1: all of it), or its
own queues and those of so many members after it.
"""

from collections.abc import Callable

from appliance.broker.tables.clients import ClientTable
from appliance.broker.tables.request_modes import POP, PULLS, ConsumeMode, RequestModes
from appliance.broker.tables.topics import RETRY_PREFIX
from appliance.requests import Answer, Handle, Reply, RequestPeer
from netstack.client.consume.rebalance import Averagely, AveragelyByCircle, Strategy, allocate, queue_order
from netstack.client.text import code_units
from netstack.errors import Refused
from netstack.wire.bodies import MessageModel, QueryAssignment, QueueAssignment, QueueAssignments
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.json_body import MessageQueue

STRATEGIES: dict[str, Strategy] = {each.name: each for each in (Averagely(), AveragelyByCircle())}


class Assignments:
    """Assigns queues; `readable` returns those of a topic on all brokers."""

    def __init__(
        self, clients: ClientTable, modes: RequestModes, readable: Callable[[str], list[MessageQueue]]
    ) -> None:
        self._clients, self._modes, self._readable = clients, modes, readable

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {RequestCode.QUERY_ASSIGNMENT: self.handle}

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_ASSIGNMENT (400). Raises Refused for a strategy that only clients know."""
        asked = QueryAssignment.from_bytes(request.body)
        pulled = asked.topic.startswith(RETRY_PREFIX)
        mode = PULLS if pulled else self._modes.get(asked.topic, asked.consumer_group)
        queues = self._queues_of(asked, mode)
        found = None if queues is None else tuple(QueueAssignment(queue, mode.mode) for queue in queues)
        return Reply(request.reply(body=QueueAssignments(found).to_bytes()))

    def _queues_of(self, asked: QueryAssignment, mode: ConsumeMode) -> list[MessageQueue] | None:
        """Return the member's queues, None when topic or group are not known (yet)."""
        queues = self._readable(asked.topic)
        if not queues or asked.message_model is MessageModel.BROADCASTING:
            return queues or None
        group, strategy = self._clients.consumers(asked.consumer_group), STRATEGIES.get(asked.strategy_name)
        if group is None:
            return None
        if strategy is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"strategy {asked.strategy_name[:100]}: a broker assigns queues by {' or '.join(STRATEGIES)}; "
                "any other works with setClientRebalance(true)",
            )
        members = sorted(set(group.client_ids()), key=code_units)
        if mode.mode == POP:
            return _for_pop(strategy, asked.client_id, queues, members, mode.share)
        return allocate(strategy, asked.client_id, queues, set(members))


def _for_pop(
    strategy: Strategy, client_id: str, queues: list[MessageQueue], members: list[str], share: int
) -> list[MessageQueue]:
    """Return where a member receives by POP. Source: RocketMQ 5.5.0 QueryAssignmentProcessor.allocate4Pop."""
    if share <= 0 or share >= len(members) - 1:
        return list(dict.fromkeys(queue._replace(queue_id=-1) for queue in queues))
    if client_id not in members:
        return []
    own = members.index(client_id)
    if len(members) > len(queues):  # each of them gets one
        return [sorted(queues, key=queue_order)[own % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for step in range(share + 1):
        found |= dict.fromkeys(allocate(strategy, members[(own + step) % len(members)], queues, set(members)))
    return list(found)
