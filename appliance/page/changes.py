"""What somebody with the token may change from the page: create a topic, reset a group, send a message, resend one.

A change is planned first, which reads only, and shown with its numbers; confirmed, it is asked of the box's own broker
port like any client's request, so that the rules of the broker hold for it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from urllib.parse import quote

from appliance.box_view import BoxView
from appliance.broker.consume.send_back import ORIGIN_ID, RETRY_TOPIC
from appliance.broker.tables.topics import DEAD_PREFIX, RETRY_PREFIX, Topic, check_topic_name, random_queue
from appliance.device.probe import OwnPortSilent
from appliance.metrics.topics import is_system
from appliance.page import search, words
from appliance.page.tickets import Change
from netstack.wire.codes import RequestCode, ResponseCode
from netstack.wire.command import FIRST_5X_VERSION, RemotingCommand, request
from netstack.wire.headers import ResetOffsetHeader, UpdateConsumerOffsetHeader
from netstack.wire.headers_admin import CreateTopicHeader
from netstack.wire.message_headers import SendMessageHeader, SendMessageReply
from storage_driver.record import MessageQueue, StoredMessage, decode_properties, encode_properties

TEMPLATE, READ_WRITE = "TBW102", 6
OWN_GROUP = "TOOLS_PAGE"
MOST_QUEUES, BODY_BYTES, WORD_CHARS = 128, 2048, 127  # a form has 8 KiB, and 3 letters for a byte
END_OF_QUEUE = -1  # as a time
TRANSACTION_BITS = 0xC  # of sys_flag
NOT_SENT_AGAIN = ("MIN_OFFSET", "MAX_OFFSET", "DELAY", "RBX_OWNER", "TRAN_MSG", "REAL_TOPIC", "REAL_QID", "UNIQ_KEY")
Ask = Callable[[RemotingCommand], Awaitable[RemotingCommand]]
Form = Mapping[str, str]


class ChangeRefused(Exception):
    """The change cannot be made; the text says why and what to do."""


class Changes:
    """Plans changes of one box; `ask` takes a request to its own broker port."""

    def __init__(self, watched: BoxView, ask: Ask) -> None:
        self._watched, self._ask = watched, ask
        self._plans: dict[str, Callable[[Form], Awaitable[Change]]] = {
            "create-topic": self._create_topic,
            "reset-group": self._reset_group,
            "send-message": self._send_message,
            "resend": self._resend,
        }

    async def plan(self, do: str, form: Form) -> Change:
        """Return the change a form asks for. Raises ChangeRefused."""
        plan = self._plans.get(do)
        if plan is None:
            raise ChangeRefused(f"do must be one of {', '.join(self._plans)}")
        return await plan(form)

    async def _asked(self, command: RemotingCommand, *also: int) -> RemotingCommand:
        """Return the broker's answer. Raises ChangeRefused."""
        try:
            answer = await self._ask(command)
        except OwnPortSilent as exc:
            raise ChangeRefused(str(exc)) from exc
        if answer.code not in (ResponseCode.SUCCESS, *also):
            raise ChangeRefused(f"the broker refused it: {answer.remark or 'no reason given'} (code {answer.code})")
        return answer

    # create a topic

    async def _create_topic(self, form: Form) -> Change:
        name, queues = form.get("name", "").strip(), number(form.get("queues", "8"), "queues", MOST_QUEUES)
        if (wrong := check_topic_name(name)) is not None:
            raise ChangeRefused(wrong)
        if self._watched.tables.topics.get(name) is not None:
            raise ChangeRefused(f"the topic {name} exists already: `rocketbox topics set {name}` changes it")
        header = CreateTopicHeader(name, TEMPLATE, queues, queues, READ_WRITE, "SINGLE_TAG")
        command = request(RequestCode.UPDATE_AND_CREATE_TOPIC, header.to_ext())
        facts = (("Topic", name), ("Queues", str(queues)), ("Permission", "read, write"))
        run = partial(self._run_create, command, f"The topic {name} exists, with {queues} queues.")
        return Change("create-topic", f"Create the topic {name}?", facts, "", at_topic(name), run)

    async def _run_create(self, command: RemotingCommand, said: str) -> str:
        await self._asked(command)
        return said

    # reset a group

    async def _reset_group(self, form: Form) -> Change:
        group, topic = form.get("group", "").strip(), self._topic(form.get("topic", "").strip())
        time_ms, when = moment_of(form)
        offsets = self._watched.tables.offsets
        if topic.name not in offsets.topics_of(group):
            raise ChangeRefused(f"the consumer group {group} has no offsets on {topic.name}")
        again = skipped = 0
        for queue_id, target in (await self._targets(topic, time_ms)).items():
            moves = target - max(0, offsets.get(group, topic.name, queue_id))
            again, skipped = again + max(0, -moves), skipped + max(0, moves)
        online = self._watched.tables.clients.consumers(group)
        facts = (
            ("Consumer group", group),
            ("Topic", topic.name),
            ("To", when),
            ("Consumed again", f"{words.count(again)} messages"),
            ("Skipped", f"{words.count(skipped)} messages"),
            ("Members", f"{len(online.members)} connected, they continue there" if online else "none connected"),
        )
        run = partial(self._run_reset, group, topic, time_ms)
        return Change("reset-group", f"Reset {group} on {topic.name}?", facts, "", at_group(group), run)

    async def _targets(self, topic: Topic, time_ms: int) -> dict[int, int]:
        store, found = self._watched.store, dict[int, int]()
        for queue_id in range(topic.read_queues):
            queue = MessageQueue(topic.name, queue_id)
            low, high = store.min_offset(queue), store.max_offset(queue)
            at_end = time_ms == END_OF_QUEUE or high == low
            found[queue_id] = high if at_end else max(low, await store.offset_by_time(queue, time_ms, boundary="lower"))
        return found

    async def _run_reset(self, group: str, topic: Topic, time_ms: int) -> str:
        """Tell the members; where nobody is connected write the offsets instead. Raises ChangeRefused."""
        header = ResetOffsetHeader(topic.name, group, time_ms, is_force=True)
        command = request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header.to_ext(), version=FIRST_5X_VERSION)
        answer = await self._asked(command, ResponseCode.CONSUMER_NOT_ONLINE, ResponseCode.SYSTEM_ERROR)
        if answer.code == ResponseCode.SUCCESS:
            return f"The members of {group} continue there."
        if self._watched.tables.clients.consumers(group) is not None:  # they would write their own over it
            raise ChangeRefused(f"the members of {group} were not told: {answer.remark}; stop them and reset again")
        for queue_id, target in (await self._targets(topic, time_ms)).items():
            offset = UpdateConsumerOffsetHeader(group, topic.name, queue_id, target)
            await self._asked(request(RequestCode.UPDATE_CONSUMER_OFFSET, offset.to_ext()))
        return f"{group} continues there when its next member connects."

    # send messages

    async def _send_message(self, form: Form) -> Change:
        topic, body = self._topic(form.get("topic", "").strip()), form.get("body", "").encode()
        if is_system(self._watched, topic.name) or topic.name.startswith((RETRY_PREFIX, DEAD_PREFIX)):
            raise ChangeRefused(f"{topic.name} is a system topic: send test messages to topics of applications")
        if not 0 < len(body) <= BODY_BYTES:
            raise ChangeRefused(f"a test message has 1 to {BODY_BYTES} bytes, this one has {len(body)}")
        given = {"KEYS": form.get("key", "").strip(), "TAGS": form.get("tag", "").strip()}
        properties = {name: value for name, value in given.items() if value}
        if any(len(value) > WORD_CHARS or not value.isprintable() for value in properties.values()):
            raise ChangeRefused(f"key and tag have at most {WORD_CHARS} printable characters")
        facts = (("Topic", topic.name), *properties.items(), ("Body", f"{len(body)} bytes"))
        note = "Consumers of the topic receive it like any other message."
        run = partial(self._run_send, topic, body, properties)
        return Change("send-message", f"Send a message to {topic.name}?", facts, note, at_topic(topic.name), run)

    async def _run_send(
        self, topic: Topic, body: bytes, properties: Mapping[str, str], sys_flag: int = 0, flag: int = 0
    ) -> str:
        if topic.write_queues < 1:
            raise ChangeRefused(f"{topic.name} has no writable queue")
        text = encode_properties(properties).decode()
        place = (topic.name, TEMPLATE, topic.write_queues, random_queue(topic.write_queues))
        header = SendMessageHeader(OWN_GROUP, *place, sys_flag, self._watched.now_ms(), flag, text)
        answer = await self._asked(request(RequestCode.SEND_MESSAGE_V2, header.to_ext(), body))
        sent = SendMessageReply.from_ext(answer.ext)
        return f"Stored in {topic.name}, queue {sent.queue_id}, offset {sent.queue_offset}, id {sent.message_id}."

    async def _resend(self, form: Form) -> Change:
        at = form.get("at", "")
        message = await self._dead_letter(at)
        group = message.topic.removeprefix(DEAD_PREFIX)
        self._topic(f"{RETRY_PREFIX}{group}")
        facts = (
            ("Consumer group", group),
            ("First topic", message.property_map.get(RETRY_TOPIC, "–")),
            ("Stored", words.moment(message.stored_ms)),
            ("Body", f"{words.count(len(message.body))} bytes"),
        )
        note = "Only this group receives it, with a new set of attempts. The dead letter itself is kept."
        back = f"/message?at={quote(at)}"
        return Change(
            "resend", f"Resend this dead letter to {group}?", facts, note, back, partial(self._run_resend, at)
        )

    async def _run_resend(self, at: str) -> str:
        message = await self._dead_letter(at)
        retry = self._topic(f"{RETRY_PREFIX}{message.topic.removeprefix(DEAD_PREFIX)}")
        properties = decode_properties(message.properties)
        properties.setdefault(ORIGIN_ID, message.message_id)
        kept = {name: value for name, value in properties.items() if name not in NOT_SENT_AGAIN}
        said = await self._run_send(
            retry, bytes(message.body), kept, message.sys_flag & ~TRANSACTION_BITS, message.flag
        )
        self._watched.tables.resent.note(message.topic, message.queue_id, message.queue_offset)
        return said

    async def _dead_letter(self, at: str) -> StoredMessage:
        message = await search.at_place(self._watched, at)
        if message is None or not message.topic.startswith(DEAD_PREFIX):
            raise ChangeRefused("only a dead letter that is still on disk can be resent")
        return message

    def _topic(self, name: str) -> Topic:
        topic = self._watched.tables.topics.get(name)
        if topic is None:
            raise ChangeRefused(f"there is no topic {name!r}")
        return topic


def number(text: str, name: str, most: int) -> int:
    """Return a count from a form. Raises ChangeRefused."""
    if not (text.isascii() and text.isdigit() and len(text) <= 6 and 1 <= int(text) <= most):
        raise ChangeRefused(f"{name} must be a number from 1 to {most}")
    return int(text)


def moment_of(form: Form) -> tuple[int, str]:
    """Return where a group is to go, as a time for the broker and in words. Raises ChangeRefused."""
    to = form.get("to", "")
    if to in ("first", "last"):
        return (
            (0, "the oldest message") if to == "first" else (END_OF_QUEUE, "the end: all waiting messages are skipped")
        )
    try:
        time_ms = search.time_ms(form.get("time", ""))
    except ValueError as exc:
        raise ChangeRefused("to must be first, last or a time such as 2026-03-02 10:11 (UTC)") from exc
    if time_ms <= 0:
        raise ChangeRefused("the time must be after 1970")
    return time_ms, words.moment(time_ms)


def at_topic(name: str) -> str:
    """Return the page's address of a topic."""
    return f"/topic?name={quote(name, safe='')}"


def at_group(name: str) -> str:
    """Return the page's address of a group."""
    return f"/group?name={quote(name, safe='')}"
