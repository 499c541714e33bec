"""Bodies of POP requests. Source: RocketMQ 5.5.0 remoting.protocol.body, bytes seen from its client."""

from typing import Annotated

from netstack.lazy import value_class
from netstack.wire.fastjson import FROM_PEER
from netstack.wire.json_body import Body

ACKS_FROM_PEER = FROM_PEER._replace(bytes=256 << 10)  # a take of 32 messages has 110


@value_class
class BatchAck(Body):
    """Messages of one take: bit i of `bits` (Base64 of bytes, the lowest bit first) is offset `start_offset` + i."""

    consumer_group: Annotated[str, "c"] = ""
    topic: Annotated[str, "t"] = ""
    retry: Annotated[str, "r"] = "0"
    start_offset: Annotated[int, "so"] = 0
    queue_id: Annotated[int, "q"] = 0
    revive_queue_id: Annotated[int, "rq"] = 0
    pop_ms: Annotated[int, "pt"] = 0
    invisible_ms: Annotated[int, "it"] = 0
    bits: Annotated[str, "b"] = ""


@value_class
class BatchAcks(Body):
    """200151."""

    broker_name: str = ""
    acks: tuple[BatchAck, ...] = ()


@value_class
class RequestMode(Body):
    """401, and each row of the answer to 402. `mode` is PULL or POP."""

    topic: str = ""
    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: int = 0
