"""Allocation equals Apache's: vectors, the worked ring, and random inputs against the official jar."""

import json
import random
import re
from functools import partial
from typing import Any

import pytest

from netstack.client.consume.rebalance import (
    Averagely,
    AveragelyByCircle,
    ByConfig,
    ByMachineRoom,
    ConsistentHash,
    NearMachineRoom,
    Strategy,
    _hash,
    allocate,
    room_of,
)
from netstack.client.errors import UsageError
from netstack.wire.json_body import MessageQueue

EIGHT = [MessageQueue("TopicTest", "broker-a", number) for number in range(8)]
SEED, BATCH = 20_261_121, 2_500
FIELDS = "topic", "brokerName", "queueId"
PLACE = "client.consumer.rebalance"


def shares(strategy: Strategy, members: int) -> list[list[int]]:
    names = [f"m{number:02}" for number in range(members)]
    return [[queue.queue_id for queue in allocate(strategy, name, EIGHT, names)] for name in names]


@pytest.mark.parametrize(
    ("members", "average", "circle"),
    [
        (3, [[0, 1, 2], [3, 4, 5], [6, 7]], [[0, 3, 6], [1, 4, 7], [2, 5]]),
        (5, [[0, 1], [2, 3], [4, 5], [6], [7]], [[0, 5], [1, 6], [2, 7], [3], [4]]),
        (10, [[n] for n in range(8)] + [[], []], [[n] for n in range(8)] + [[], []]),
    ],
)
def test_shares_are_those_of_the_java_client(members: int, average: list[list[int]], circle: list[list[int]]) -> None:
    assert shares(Averagely(), members) == average
    assert shares(AveragelyByCircle(), members) == circle


def test_the_ring_of_the_worked_example_comes_out() -> None:
    assert _hash("10.0.0.3@C-9") == 96210610
    assert _hash("10.0.0.1@A-1") == 4049756471
    assert _hash("MessageQueue [topic=TopicTest, brokerName=broker-a, queueId=2]") == 853506239
    members = ["10.0.0.1@A", "10.0.0.2@B", "10.0.0.3@C"]
    owners = {
        queue.queue_id: member[-1] for member in members for queue in allocate(ConsistentHash(), member, EIGHT, members)
    }
    assert [owners[number] for number in range(8)] == list("ACBCCBBC")


def test_who_is_no_member_gets_nothing_and_nobody_gets_anything_of_nothing() -> None:
    for strategy in (Averagely(), AveragelyByCircle(), ConsistentHash(), ByMachineRoom(frozenset("a"))):
        assert allocate(strategy, "stranger", EIGHT, ["m"]) == []
        assert allocate(strategy, "m", [], ["m"]) == []
    for me in ("m", "stranger"):
        assert allocate(ByConfig(tuple(EIGHT[:2])), me, EIGHT, ["m"]) == EIGHT[:2]


@pytest.mark.parametrize(
    ("broker", "room"),
    [("r@b", "r"), ("b", None), ("r@b@c", None), ("@b", ""), ("r@", None), ("r@b@", "r"), ("@", None)],
)
def test_the_room_of_a_broker_is_what_javas_split_says(broker: str, room: str | None) -> None:
    assert room_of(broker) == room


def test_near_rooms_share_their_own_and_all_share_the_deserted_ones() -> None:
    queues = [MessageQueue("T", f"{room}@b", number) for room in "xyz" for number in range(2)]
    near = NearMachineRoom(Averagely(), lambda queue: queue.broker_name[0], lambda member: member[0])
    members = ["x1", "x2", "y1"]
    got = {member: allocate(near, member, queues, members) for member in members}
    assert [(q.broker_name[0], q.queue_id) for q in got["x1"]] == [("x", 0), ("z", 0)]
    assert [(q.broker_name[0], q.queue_id) for q in got["x2"]] == [("x", 1), ("z", 1)]
    assert [(q.broker_name[0], q.queue_id) for q in got["y1"]] == [("y", 0), ("y", 1)]
    assert near.name == "MACHINE_ROOM_NEARBY-AVG"
    nameless = NearMachineRoom(Averagely(), lambda queue: "x", lambda member: member.removeprefix("y1"))
    with pytest.raises(UsageError, match="no machine room for y1"):
        allocate(nameless, "x1", queues, members)


def random_case(chance: random.Random) -> tuple[str, list[MessageQueue], list[str]]:
    rooms = ["", "r1@", "r2@", "r3@"]
    brokers = [f"{chance.choice(rooms)}broker-{name}" for name in chance.sample("abcdefß中😀", chance.randint(1, 3))]
    topic = chance.choice(["TopicTest", "%RETRY%g", "t"])
    queues = [MessageQueue(topic, broker, number) for broker in brokers for number in range(chance.randint(1, 6))]
    members = [f"10.0.{chance.randint(0, 3)}.{chance.randint(0, 9)}@{number}" for number in range(chance.randint(1, 7))]
    chance.shuffle(queues)
    return chance.choice([*members, *members, "stranger"]), queues, members


def new_array(jvm: Any, kind: str, *items: Any) -> Any:
    made = jvm.gateway.new_array(jvm.cls(f"java.lang.{kind}"), len(items))
    for place, item in enumerate(items):
        made[place] = item
    return made


class Official:
    """One of Java's strategies, asked for many cases in one call: a call through py4j costs more than an allocation.

    Method handles do what a loop in Java would: a line is split, its lists are read and sorted as a client sorts them.
    """

    def __init__(self, jvm: Any, strategy: Any) -> None:
        self._jvm = jvm
        self._handles = handles = jvm.cls("java.lang.invoke.MethodHandles")
        self._named = named = jvm.cls("java.lang.Class").forName
        text = named("java.lang.String")
        queue = jvm.new("common.message.MessageQueue").getClass()
        allocate = self._method(strategy.getClass(), "allocate").bindTo(strategy)
        allocate = handles.insertArguments(allocate, 0, new_array(self._jvm, "Object", "group"))
        read = new_array(self._jvm, "invoke.MethodHandle", self._sorted_list_of(queue), self._sorted_list_of(text))
        allocate = handles.filterArguments(allocate, 1, read)
        split = self._method(text, "split", text)
        split = handles.insertArguments(split, 1, new_array(self._jvm, "Object", "\t"))
        whole = handles.filterReturnValue(split, allocate.asSpreader(named("[Ljava.lang.String;"), 3))
        proxies = jvm.cls("java.lang.invoke.MethodHandleProxies")
        self._allocate = proxies.asInterfaceInstance(named("java.util.function.Function"), whole)

    def answers(self, cases: list[tuple[str, list[MessageQueue], list[str]]]) -> list[str]:
        """Return what each member gets, as Java writes a list."""
        lines = "\n".join(
            "\t".join(
                (me, json.dumps([dict(zip(FIELDS, queue, strict=True)) for queue in queues]), json.dumps(members))
            )
            for me, queues, members in cases
        )
        stream = self._jvm.cls("java.util.regex.Pattern").compile("\n").splitAsStream(lines)
        every = stream.map(self._allocate).toArray()
        return str(self._jvm.cls("java.util.Arrays").deepToString(every))[1:-1].replace("], [", "]\n[").split("\n")

    def _sorted_list_of(self, kind: Any) -> Any:
        """Return a handle from JSON to a list in Java's order."""
        parser = self._named("com.alibaba.fastjson.JSON")
        read = self._method(parser, "parseArray", self._named("java.lang.String"), self._named("java.lang.Class"))
        read = self._handles.insertArguments(read, 1, new_array(self._jvm, "Object", kind))
        some_list = self._named("java.util.List")
        sort = self._method(self._named("java.util.Collections"), "sort", some_list)
        return self._handles.filterReturnValue(
            read, self._handles.foldArguments(self._handles.identity(some_list), sort)
        )

    def _method(self, owner: Any, name: str, *kinds: Any) -> Any:
        """Return the handle of a method; without parameters given, of the one that has the name."""
        if kinds:
            found = owner.getMethod(name, new_array(self._jvm, "Class", *kinds))
        else:
            found = next(each for each in owner.getMethods() if each.getName() == name)
        return self._handles.publicLookup().unreflect(found)


# The room of a queue or member by its text, for both sides: r1 out of "brokerName=r1@b" and "10.0.1.7@0", else r.
ROOM, NAMED = r"(?s)(?:.*?brokerName=(?:r(\d)@)?.*|10\.0\.(\d)\..*)", "r$1$2"


def near_room(text: str) -> str:
    found = re.fullmatch(ROOM, text)
    assert found is not None
    return f"r{found[1] or found[2] or ''}"


def near_rooms(jvm: Any) -> tuple[Strategy, Any]:
    """Return Apache's strategy for near rooms and ours, with resolvers that read the same out of the same text.

    Java's is a proxy over method handles, since a resolver in Python would be asked 300,000 times.
    """
    handles, named = jvm.cls("java.lang.invoke.MethodHandles"), jvm.cls("java.lang.Class").forName
    text, anything = named("java.lang.String"), named("java.lang.Object")
    array = partial(new_array, jvm)
    lookup = handles.publicLookup()
    replace = lookup.unreflect(text.getMethod("replaceAll", array("Class", text, text)))
    replace = handles.insertArguments(replace, 1, array("Object", ROOM, NAMED))
    as_text = lookup.unreflect(text.getMethod("valueOf", array("Class", anything)))
    first = handles.insertArguments(handles.arrayElementGetter(named("[Ljava.lang.Object;")), 1, array("Object", 0))
    room = handles.filterReturnValue(handles.filterReturnValue(first, as_text), replace)
    invoke = handles.dropArguments(room, 0, array("Class", anything, named("java.lang.reflect.Method")))
    proxies = jvm.cls("java.lang.invoke.MethodHandleProxies")
    handler = proxies.asInterfaceInstance(named("java.lang.reflect.InvocationHandler"), invoke)
    resolver = named(f"org.apache.rocketmq.{PLACE}.AllocateMachineRoomNearby$MachineRoomResolver")
    proxy = jvm.cls("java.lang.reflect.Proxy")
    resolves = proxy.newProxyInstance(resolver.getClassLoader(), array("Class", resolver), handler)
    inner = jvm.new(f"{PLACE}.AllocateMessageQueueAveragely")
    theirs = jvm.new(f"{PLACE}.AllocateMachineRoomNearby", inner, resolves)
    ours = NearMachineRoom(Averagely(), lambda queue: near_room(str_of(queue)), near_room)
    return ours, theirs


def str_of(queue: MessageQueue) -> str:
    topic, broker, number = queue
    return f"MessageQueue [topic={topic}, brokerName={broker}, queueId={number}]"


def official_pairs(jvm: Any) -> list[tuple[Strategy, "Official"]]:
    """Return each of our strategies with Apache's."""
    room, fixed = (
        jvm.new(f"{PLACE}.AllocateMessageQueueByMachineRoom"),
        jvm.new(f"{PLACE}.AllocateMessageQueueByConfig"),
    )
    allowed = jvm.cls("java.util.HashSet")()
    for name in ("r1", "r2"):
        allowed.add(name)
    room.setConsumeridcs(allowed)
    fixed.setMessageQueueList(jvm.list_of(jvm.new("common.message.MessageQueue", *queue) for queue in EIGHT[3:5]))
    pairs: list[tuple[Strategy, Any]] = [
        (Averagely(), jvm.new(f"{PLACE}.AllocateMessageQueueAveragely")),
        (AveragelyByCircle(), jvm.new(f"{PLACE}.AllocateMessageQueueAveragelyByCircle")),
        (ConsistentHash(), jvm.new(f"{PLACE}.AllocateMessageQueueConsistentHash")),
        (ByMachineRoom(frozenset(("r1", "r2"))), room),
        (ByConfig(tuple(EIGHT[3:5])), fixed),
        near_rooms(jvm),
    ]
    for ours, theirs in pairs:
        assert ours.name == theirs.getName()
    return [(ours, Official(jvm, theirs)) for ours, theirs in pairs]


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_random_allocations_equal_those_of_the_official_jar(jvm4: Any, rounds: int) -> None:
    print(f"seed {SEED}")
    chance, pairs = random.Random(SEED), official_pairs(jvm4)
    for _ in range(rounds):
        cases = [random_case(chance) for _ in range(BATCH)]
        for ours, official in pairs:
            answers = official.answers(cases)
            assert len(answers) == BATCH
            for (me, queues, members), expected in zip(cases, answers, strict=True):
                got = ", ".join(map(str_of, allocate(ours, me, queues, members)))
                assert f"[{got}]" == expected, (ours.name, me, queues, members)
