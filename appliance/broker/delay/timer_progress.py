"""GET_TIMER_CHECK_POINT (60): what slaves are told of the progress of timed messages."""

from collections.abc import Callable

from appliance.requests import Answer, Handle, Reply, RequestPeer
from netstack.wire.codes import RequestCode
from netstack.wire.command import RemotingCommand
from netstack.wire.replication import TimerCheckpoint


class TimerProgress:
    """Handles the request; `checkpoint` gives what is on disk of the progress, never more."""

    def __init__(self, checkpoint: Callable[[], TimerCheckpoint]) -> None:
        self._checkpoint = checkpoint

    def handlers(self) -> dict[int, Handle]:
        """Return request code → handler."""
        return {RequestCode.GET_TIMER_CHECK_POINT: self.handle}

    def handle(self, request: RemotingCommand, peer: RequestPeer) -> Answer:
        """Return the checkpoint. Source: RocketMQ 5.3 AdminBrokerProcessor.getTimerCheckPoint."""
        return Reply(request.reply(body=self._checkpoint().to_bytes()))
