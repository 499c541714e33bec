"""What is kept of a client's settings while it lives: as bytes, since protobuf takes a hundred times as much for small
fields.
"""

from netstack.grpc.v2.definition_pb2 import Settings


class KeptSettings:
    """The role of a client, and what it publishes or subscribes to."""

    __slots__ = ("_raw", "consumes")

    def __init__(self, given: Settings) -> None:
        made = Settings(client_type=given.client_type)
        self.consumes: bool = given.HasField("subscription")
        if self.consumes:
            made.subscription.group.CopyFrom(given.subscription.group)
            made.subscription.subscriptions.extend(given.subscription.subscriptions)
        else:
            made.publishing.topics.extend(given.publishing.topics)
        made.DiscardUnknownFields()
        self._raw: bytes = made.SerializeToString()

    def __len__(self) -> int:
        return len(self._raw)

    def read(self) -> Settings:
        """Return them as messages, for a moment."""
        return Settings.FromString(self._raw)
