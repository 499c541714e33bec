"""Administration of groups and their connections."""

from pathlib import Path

import orjson

from appliance.broker.tables.clients import Member
from appliance.broker.tables.groups import GroupTable, group_from_json, group_to_json
from appliance.testing import FakePeer, MemoryStateFile
from netstack.wire.codes import RequestCode as Code
from tests.appliance.admin_bench import bench


async def test_a_group_is_created_listed_and_deleted_with_its_offsets(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        body = b'{"groupName":"g","consumeEnable":false,"retryMaxTimes":3,"brokerId":0,"consumeMessageOrderly":true}'
        assert (await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
        one = orjson.loads((await b.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")).body)
        assert (one["consumeEnable"], one["retryMaxTimes"], one["consumeMessageOrderly"]) == (False, 3, True)
        absurd = b'{"groupName":"h","retryQueueNums":-5}'
        assert (await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, absurd)).code == 1
        everything = orjson.loads((await b.ask(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)).body)
        assert {"g", "TOOLS_CONSUMER"} <= everything["subscriptionGroupTable"].keys()
        b.offsets.commit("g", "T", 0, 5)
        assert (await b.ask(Code.DELETE_SUBSCRIPTIONGROUP, groupName="g")).code == 0
        assert b.offsets.get("g", "T", 0) == 5
        assert (await b.ask(Code.DELETE_SUBSCRIPTIONGROUP, groupName="g", cleanOffset="true")).code == 0
        assert b.offsets.get("g", "T", 0) == -1
        assert (await b.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")).code == 26
        assert (await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, b'{"groupName":"no way"}')).code == 1
        listed = b'{"groupConfigList":[{"groupName":"x"},{"groupName":"y"}]}'
        assert (await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, listed)).code == 0
        assert b.groups.get("y") is not None


async def test_attributes_of_a_group_are_changes(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for change, attributes in (
            (b'{"+priority.factor":"50","+x":"1"}', {"priority.factor": "50", "x": "1"}),
            (b'{"-x":""}', {"priority.factor": "50"}),
            (b"{}", {"priority.factor": "50"}),
            (b'{"priority.factor":"0"}', {"priority.factor": "0"}),
        ):
            body = b'{"groupName":"g","attributes":%b}' % change
            assert (await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
            one = orjson.loads((await b.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")).body)
            assert one["attributes"] == attributes


async def test_a_group_keeps_its_retry_policy(tmp_path: Path) -> None:
    growing = {"exponentialRetryPolicy": {"initial": 1000, "max": 60000, "multiplier": 2}, "type": "EXPONENTIAL"}
    async with bench(tmp_path) as b:
        for policy, kept in (
            (growing, growing),
            ({"type": "CUSTOMIZED", "customizedRetryPolicy": None}, None),
            ({"customizedRetryPolicy": {"next": [1000, 2000]}, "type": "CUSTOMIZED"},) * 2,
        ):
            body = orjson.dumps({"groupName": "g", "groupRetryPolicy": policy})
            assert (await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)).code == 0
            one = orjson.loads((await b.ask(Code.GET_SUBSCRIPTIONGROUP_CONFIG, group="g")).body)
            assert one.get("groupRetryPolicy") == kept
            group = b.groups.get("g")
            assert group is not None
            assert group_from_json(orjson.loads(orjson.dumps(group_to_json(group)))) == group
        for pauses, text in (
            ([0], "groupRetryPolicy: next is 0, allowed 1..604800000"),
            ([1] * 65, "groupRetryPolicy has 65 pauses, at most 64 are allowed"),
        ):
            body = orjson.dumps({"groupName": "g", "groupRetryPolicy": {"customizedRetryPolicy": {"next": pauses}}})
            refused = await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
            assert (refused.code, refused.remark) == (1, text)


async def test_attributes_of_a_group_have_an_end_and_a_list_may_name_it_twice(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        for change in (b",".join(b'"+a%d":"1"' % n for n in range(33)), b'"+a":"%b"' % (b"x" * 257)):
            body = b'{"groupName":"g","attributes":{%b}}' % change
            refused = await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body)
            assert (refused.code, refused.remark) == (1, "a group has at most 32 attributes of 256 characters")
        twice = b",".join(b'{"groupName":"g","attributes":{"+%b":"1"}}' % name for name in (b"x", b"y"))
        assert (
            await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":[%b]}' % twice)
        ).code == 0
        group = b.groups.get("g")
        assert group is not None
        assert group.attributes == {"x": "1", "y": "1"}


async def test_connections_are_listed_with_what_they_subscribe_to(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.consumer(language="NODE_JS")
        connection = orjson.loads((await b.ask(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="g")).body)
        assert connection["connectionSet"] == [
            {"clientAddr": "10.0.0.1:1", "clientId": "c1", "language": "OTHER", "version": 409}
        ]
        assert connection["subscriptionTable"]["T"]["tagsSet"] == ["a", "b"]
        assert connection["messageModel"] == "CLUSTERING"
        refused = await b.refusal(Code.GET_CONSUMER_CONNECTION_LIST, consumerGroup="x")
        assert refused == (206, "the consumer group[x] not online")
        b.clients.producer_joined(FakePeer(7, ("10.0.0.2", 7)), "P", Member("p", "GO", 317, 55))
        producers = await b.ask(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="P")
        assert orjson.loads(producers.body)["connectionSet"][0]["language"] == "GO"
        assert await b.refusal(Code.GET_PRODUCER_CONNECTION_LIST, producerGroup="x") == (
            1,
            "the producer group[x] not exist",
        )
        assert (await b.ask(Code.GET_ALL_PRODUCER_INFO)).body == (
            b'{"data":{"P":[{"clientId":"p","language":"GO","lastUpdateTimestamp":55,"remoteIP":"10.0.0.2","version":317}]}}'
        )
        found = orjson.loads((await b.ask(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, group="g", topic="T")).body)
        assert found["subscriptionData"]["subString"] == "a || b"
        b.offsets.commit("g", "T", 0, 1)
        topics = await b.ask(Code.QUERY_TOPICS_BY_CONSUMER, group="g")
        assert orjson.loads(topics.body)["topicList"] == ["T"]


async def test_a_group_is_forbidden_a_topic_and_allowed_it_again_and_a_restart_knows(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        code, named = Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {"group": "TOOLS_CONSUMER", "topic": "T"}
        assert (await b.ask(code, **named)).body == b'{"group":"TOOLS_CONSUMER","readable":true,"topic":"T"}'
        assert b'"readable":false' in (await b.ask(code, **named, readable="false")).body
        assert b.groups.forbidden("TOOLS_CONSUMER", "T")
        saved = GroupTable(MemoryStateFile(b.groups.to_json()), now_ms=lambda: 1)
        assert saved.forbidden("TOOLS_CONSUMER", "T")
        assert b'"readable":true' in (await b.ask(code, **named, readable="true")).body
        assert not b.groups.forbidden("TOOLS_CONSUMER", "T")
        assert (await b.ask(code, group="nobody", topic="T")).code == 26


async def test_of_a_list_all_groups_are_made_or_none(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.groups._most = len(b.groups) + 1
        for body, words in (
            (b'{"groupConfigList":[{"groupName":"x"},{"groupName":"y"}]}', "limits.groups"),
            (b'{"groupConfigList":[{"groupName":"x"},{"groupName":"no way"}]}', "illegal characters"),
            (b'{"groupConfigList":[{"groupName":"x"},{"groupName":"z","retryQueueNums":1025}]}', "allowed 0..1024"),
        ):
            answer = await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body)
            assert (answer.code, words in (answer.remark or "")) == (1, True)
            assert b.groups.get("x") is None
        assert (await b.post(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, b'{"groupConfigList":[]}')).code == 0


async def test_a_group_nobody_knows_is_deleted_already_and_takes_no_other_with_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as b:
        b.groups.find("g")
        b.offsets.commit("g", "T", 0, 5)
        b.offsets.commit("gg", "T", 0, 6)
        assert (await b.ask(Code.DELETE_SUBSCRIPTIONGROUP, groupName="nobody", cleanOffset="true")).code == 0
        assert (await b.ask(Code.DELETE_SUBSCRIPTIONGROUP, groupName="g", removeOffset="true")).code == 0
        assert (b.groups.get("g"), b.offsets.get("g", "T", 0), b.offsets.get("gg", "T", 0)) == (None, -1, 6)
