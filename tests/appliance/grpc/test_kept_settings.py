"""What is kept of settings: what is looked at later, in few bytes."""

from appliance.grpc.kept_settings import MOST_GATHERED, KeptSettings, gather
from netstack.grpc.v2.definition_pb2 import ClientType
from tests.appliance.grpc.asking import consumer_settings, producer_settings, receiving


def test_role_group_and_subscriptions_are_kept() -> None:
    given = consumer_settings("G", "T", "U", push=True, tags="a || b")
    given.client_properties["k"] = "v" * 4000
    given.user_agent.hostname = "h" * 4000
    given.subscription.receive_batch_size = 32
    kept = KeptSettings(given)
    read = kept.read()
    assert (kept.consumes, read.client_type) == (True, ClientType.PUSH_CONSUMER)
    assert read.subscription.group == given.subscription.group
    assert list(read.subscription.subscriptions) == list(given.subscription.subscriptions)
    assert len(kept) < 100


def test_the_topics_of_a_producer_are_kept() -> None:
    kept = KeptSettings(producer_settings("T", "U"))
    assert (kept.consumes, [topic.name for topic in kept.read().publishing.topics]) == (False, ["T", "U"])
    assert KeptSettings(producer_settings()).read().publishing.topics == []


def test_what_nobody_knows_is_not_kept() -> None:
    given = consumer_settings("G", "T")
    size = len(KeptSettings(given))
    given.MergeFromString(b"\xfa\x7f\x64" + bytes(100))  # field 2047
    given.subscription.group.MergeFromString(b"\xfa\x7f\x64" + bytes(100))
    assert len(KeptSettings(given)) == size


def test_receives_tell_of_topics_up_to_a_bound() -> None:
    kept = gather(receiving("G", "T0", tags="a", invisible_s=20), None)
    for number in range(1, MOST_GATHERED):
        assert (kept.lacks("T0"), kept.lacks(f"T{number}")) == (False, True)
        kept = gather(receiving("G", f"T{number}"), kept)
    read = kept.read()
    assert (kept.consumes, read.client_type, read.subscription.group.name) == (True, ClientType.SIMPLE_CONSUMER, "G")
    names = [each.topic.name for each in read.subscription.subscriptions]
    assert names == [f"T{number}" for number in range(MOST_GATHERED)]
    assert read.subscription.subscriptions[0].expression.expression == "a"
    assert not kept.lacks("one more")
    assert gather(receiving("G", "T"), None).read().client_type == ClientType.PUSH_CONSUMER
    assert not KeptSettings(consumer_settings("G", "T")).lacks("U"), "it gave settings"
