"""SET_MESSAGE_REQUEST_MODE (401), GET_ALL_MESSAGE_REQUEST_MODE (402): which groups consume by POP.

Members with `setClientRebalance(false)` learn it with their queues, by QUERY_ASSIGNMENT (400).
Source: RocketMQ 5.5.0 QueryAssignmentProcessor.setMessageRequestMode.
"""

from functools import partial

from appliance.broker.tables.groups import GroupTable
from appliance.broker.tables.request_modes import POP, PULL, ConsumeMode, RequestModes
from appliance.broker.tables.topics import RETRY_PREFIX, TopicTable
from appliance.requests import Answer, DeferredReply, Handle, Reply, RequestPeer
from netstack.errors import Refused
from netstack.wire.bodies_pop import RequestMode
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import RemotingCommand
from netstack.wire.json_body import encode


class Modes:
    """Handles request modes; one object per broker."""

    def __init__(self, modes: RequestModes, topics: TopicTable, groups: GroupTable) -> None:
        self._modes, self._topics, self._groups = modes, topics, groups

    def handlers(self) -> dict[int, Handle]:
        """Return request code -> handler."""
        return {
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.handle_set,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self.handle_all,
        }

    def handle_set(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Set how a group consumes a topic. Raises Refused."""
        asked = RequestMode.from_bytes(request.body)
        if asked.topic.startswith(RETRY_PREFIX):
            raise Refused(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        if self._topics.get(asked.topic) is None:
            raise Refused(ResponseCode.TOPIC_NOT_EXIST, f"topic[{asked.topic}] not exist")
        if self._groups.find(asked.consumer_group, peer.remote[0]) is None:
            raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if asked.mode not in (PULL, POP):
            raise Refused(ResponseCode.SYSTEM_ERROR, f"mode {asked.mode[:40]!r}, use {PULL} or {POP}")
        mode = ConsumeMode(asked.mode, asked.pop_share_queue_num)
        mark = self._modes.put(asked.topic, asked.consumer_group, mode)
        failed = partial(request.reply, ResponseCode.SYSTEM_ERROR)
        return DeferredReply(self._modes.when_saved, mark, request.reply(), failed)

    def handle_all(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """List all that were set."""
        return Reply(request.reply(body=encode(self._modes.to_json())))
