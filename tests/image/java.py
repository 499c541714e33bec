"""The official Java client sends through the forwarded ports and gets everything back."""

import sys
import time

from tests.image.load import NAMESRV
from tests.interop.client import producer, push_consumer
from tests.interop.jvm import Jvm


def main(count: int) -> int:
    """Send and receive `count` messages; return how many came back."""
    jvm, topic = Jvm("4.9.7"), f"FromJava{time.time_ns()}"  # of this run: the box may have lived through others
    try:
        with producer(jvm, NAMESRV) as client:
            sent = [client.send(jvm.message(topic, str(number).encode())) for number in range(count)]
            assert {result.getSendStatus().toString() for result in sent} == {"SEND_OK"}
            with push_consumer(jvm, NAMESRV, topic) as collected:
                return len({each.body for each in collected.wait_count(count, 120)})
    finally:
        jvm.close()


if __name__ == "__main__":
    count = int(sys.argv[1])
    back = main(count)
    print(f"{back} of {count}")
    sys.exit(0 if back == count else 1)
