"""Why tests of Apache's fail at a box, in our words."""

from tests.interop.verdicts import Verdict

STATIC = "static topics, whose queues move between brokers, are not supported"
REASONS = {  # a part of `Class.test`, or of what the test said → the reason
    "BatchSendIT.testBatchSend_SysInnerBatch": "a topic with `queue.type=BatchCQ` is refused",
    "StaticTopicIT": STATIC,
    "CreateAndUpdateTopicIT.testStaticTopicNotAffected": STATIC,
    "PopPriorityIT": "it sets a switch inside the broker's process",
    "inside the broker's process": "it needs an object or a switch inside the broker's process",
}


def reason_of(each: Verdict) -> str:
    """Return why a test failed, in our words where it is known."""
    name = f"{each.suite}.{each.name}"
    known = next((text for part, text in REASONS.items() if part in name or part in each.reason), None)
    return known or each.reason.replace("|", "/")[:300]
