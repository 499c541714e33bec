"""What is kept of a client's settings while it lives: as bytes, since protobuf takes a hundred times as much for small
fields.
"""

from typing import Any

from netstack.grpc.v2.definition_pb2 import ClientType, Settings

MOST_GATHERED = 64  # topics of one client


class KeptSettings:
    """The role of a client, and what it publishes or subscribes to.

    `gathered` are the topics of one that said it by its receives alone, see `gather`; None: it gave settings.
    """

    __slots__ = ("_raw", "consumes", "gathered")

    def __init__(self, given: Settings, *, gathered: bool = False) -> None:
        made = Settings(client_type=given.client_type)
        self.consumes: bool = given.HasField("subscription")
        if self.consumes:
            made.subscription.group.CopyFrom(given.subscription.group)
            made.subscription.subscriptions.extend(given.subscription.subscriptions)
        else:
            made.publishing.topics.extend(given.publishing.topics)
        entries = made.subscription.subscriptions
        self.gathered = frozenset(each.topic.name for each in entries) if gathered else None
        made.DiscardUnknownFields()
        self._raw: bytes = made.SerializeToString()

    def __len__(self) -> int:
        return len(self._raw)

    def read(self) -> Settings:
        """Return them as messages, for a moment."""
        return Settings.FromString(self._raw)

    def lacks(self, topic: str) -> bool:
        """Tell whether a receive from a topic says something new of the client."""
        known = self.gathered
        return known is not None and topic not in known and len(known) < MOST_GATHERED


def gather(request: Any, known: KeptSettings | None) -> KeptSettings:
    """Return the settings of a consumer as a receive of it tells them, beside what its receives told before."""
    kind = ClientType.PUSH_CONSUMER if request.auto_renew else ClientType.SIMPLE_CONSUMER
    made = Settings(client_type=kind) if known is None else known.read()
    made.subscription.group.CopyFrom(request.group)
    made.subscription.subscriptions.add(topic=request.message_queue.topic, expression=request.filter_expression)
    return KeptSettings(made, gathered=True)
