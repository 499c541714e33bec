"""What a heartbeat says of a subscription."""

import pytest

from netstack.client.consume.consumer_options import ConsumerOptions
from netstack.client.consume.subscriptions import Sql, Subscriptions, keeps, subscription
from netstack.client.errors import MessageRejected, UsageError
from netstack.client.messages import ReceivedMessage


def tagged(tags: str) -> ReceivedMessage:
    message = ReceivedMessage.__new__(ReceivedMessage)
    message._properties = {"TAGS": tags}
    return message


def test_tags_are_split_trimmed_and_hashed() -> None:
    data = subscription("T", " TagA ||  || TagB||TagA", 7)
    assert (data.tags_set, data.code_set, data.sub_version) == (("TagA", "TagB"), (2598919, 2598920), 7)
    assert data.sub_string == "TagA ||  || TagB||TagA"
    keep = keeps(data)
    assert keep is not None
    assert keep(tagged("TagB"))
    assert not keep(tagged("TagC"))


@pytest.mark.parametrize("expression", ["*", "", "  "])
def test_everything_is_a_star(expression: str) -> None:
    data = subscription("T", expression, 1)
    assert (data.sub_string, data.tags_set, keeps(data)) == ("*", (), None)


def test_sql_is_left_to_the_broker() -> None:
    data = subscription("T", Sql("a > 1"), 1)
    assert (data.expression_type, data.sub_string, keeps(data)) == ("SQL92", "a > 1", None)


def test_pulls_carry_a_version_that_brokers_have_heard_of() -> None:
    now = iter(range(100, 200))
    table = Subscriptions(lambda: next(now))
    table.put("T", "*")
    assert table.pull_version("T") == 0
    table.announced()
    table.touch("T")
    assert (table.pull_version("T"), table.all()[0].sub_version) == (100, 101)
    table.drop("T")
    table.touch("T")
    assert "T" not in table
    with pytest.raises(MessageRejected):
        table.put("not a topic", "*")


@pytest.mark.parametrize(
    ("name", "value"), [("pull_batch", 0), ("queue_messages", 65536), ("queue_mib", 0), ("max_span", 0)]
)
def test_settings_outside_their_range_are_refused_with_the_range(name: str, value: int) -> None:
    with pytest.raises(UsageError, match=r"allowed: \d+"):
        ConsumerOptions(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="shorter"):
        ConsumerOptions(pull_timeout_s=1)
