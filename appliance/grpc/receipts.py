"""Receipt handles of gRPC clients are those of POP over remoting: what one generation got the other acknowledges."""

from appliance.broker.pop.taking import PopSlice
from appliance.broker.pop_requests.receipts import ORDERED_QUEUE, PLAIN_QUEUE, PopReceipt, read_receipt
from appliance.grpc.outcome import Rejection
from netstack.grpc.v2.definition_pb2 import Code

LONGEST, LARGEST = 512, 1 << 62


def receipt_of(found: PopSlice, queue_offset: int, pop_ms: int, invisible_ms: int, *, ordered: bool) -> PopReceipt:
    """Return what names the delivery of one message of a take."""
    revive = ORDERED_QUEUE if ordered else PLAIN_QUEUE
    return PopReceipt(queue_offset, pop_ms, invisible_ms, revive, found.kind, found.queue.queue_id, queue_offset)


def receipt_from(text: str) -> PopReceipt:
    """Return what a handle says. Raises Rejection."""
    try:
        found = read_receipt(text[:LONGEST])
        if not all(0 <= number < LARGEST for number in (found.pop_ms, found.queue_id, found.queue_offset)):
            raise ValueError("a number out of range")
    except ValueError as exc:
        reason = f"receipt handle {text[:100]!r} is not one of this box: {exc}"
        raise Rejection(Code.INVALID_RECEIPT_HANDLE, reason) from exc
    return found


def is_over(receipt: PopReceipt, now_ms: int) -> bool:
    """Tell whether the time that a handle names is over; a renewal may have moved it."""
    return now_ms > receipt.pop_ms + receipt.invisible_ms
