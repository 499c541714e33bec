"""request: the reply of whoever consumes the topic, or exit code 3."""

import threading
from typing import Any

from netstack.client import ConsumerOptions, StartFrom, make_reply
from netstack.client.blocking import Producer, PushConsumer
from tests.interop.box import Box

FIRST = ConsumerOptions(start_from=StartFrom.FIRST)


def test_a_request_prints_the_reply_or_ends_with_3(rocketbox: Any, box: Box) -> None:
    assert rocketbox("request", "Ask", "anybody?", "--timeout", "0.3")[0] == 3
    with (
        Producer("responder", box.namesrv) as producer,
        PushConsumer("responder", box.namesrv, options=FIRST, topics={"Ask": "*"}) as consumer,
    ):

        def respond() -> None:
            for message in consumer:
                consumer.ack(message)
                if message.body == b"anybody?":
                    continue  # who asked has gone
                producer.send(make_reply(message, b"re: " + message.body))
                if message.body == b"again?":
                    return

        thread = threading.Thread(target=respond)
        thread.start()
        code, (row,), _ = rocketbox("request", "Ask", "again?", "--timeout", "10")
        thread.join()
    assert (code, row["body"]) == (0, "re: again?")
