"""QUERY_ASSIGNMENT (400): the queues of a 5.x member, assigned by the broker (`setClientRebalance(false)`).

Source: RocketMQ 5.3 QueryAssignmentProcessor. Such a member pulls, as in groups without a request mode; newer clients
have no other way to come by queues.
"""

from collections.abc import Callable

from appliance.broker.tables.clients import ClientTable
from appliance.requests import Answer, Handle, Reply, RequestPeer
from netstack.client.consume.rebalance import Averagely, AveragelyByCircle, Strategy, allocate
from netstack.errors import Refused
from netstack.wire.bodies import MessageModel, QueryAssignment, QueueAssignment, QueueAssignments
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.json_body import MessageQueue

STRATEGIES: dict[str, Strategy] = {each.name: each for each in (Averagely(), AveragelyByCircle())}


class Assignments:
    """Assigns queues; `readable` returns those of a topic on all brokers."""

    def __init__(self, clients: ClientTable, readable: Callable[[str], list[MessageQueue]]) -> None:
        self._clients, self._readable = clients, readable

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {RequestCode.QUERY_ASSIGNMENT: self.handle}

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """QUERY_ASSIGNMENT (400). Raises Refused for a strategy that only clients know."""
        asked = QueryAssignment.from_bytes(request.body)
        queues = self._queues_of(asked)
        found = None if queues is None else tuple(QueueAssignment(queue) for queue in queues)
        return Reply(request.reply(body=QueueAssignments(found).to_bytes()))

    def _queues_of(self, asked: QueryAssignment) -> list[MessageQueue] | None:
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
        return allocate(strategy, asked.client_id, queues, set(group.client_ids()))
