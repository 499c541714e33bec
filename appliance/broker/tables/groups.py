"""Subscription groups: what each consumer group may do. A missing one is made with defaults when that is allowed."""

from collections.abc import Callable, Iterable, Mapping

from appliance.broker.tables.creations import GROUP, Creations
from appliance.broker.tables.retry_policy import RetryPolicy, stored_retry_policy
from appliance.broker.tables.saving import SavedTable, TableFile, TableVersion, load_table, number, rows_of
from appliance.broker.tables.topics import LEGAL
from netstack.errors import Refused
from netstack.wire.codes import ResponseCode
from storage_driver.named_tuple import NamedTuple

FIRST_GROUPS = (
    "TOOLS_CONSUMER",
    "FILTERSRV_CONSUMER",
    "SELF_TEST_C_GROUP",
    "CID_ONS-HTTP-PROXY",
    "CID_ONSAPI_PULL",
    "CID_ONSAPI_PERMISSION",
    "CID_ONSAPI_OWNER",
)
READ_BIT = 4  # as 5.x keeps what is forbidden: 1 << PermName.INDEX_PERM_READ
MOST_NAME = 255  # characters, as RocketMQ's clients allow
INNER_PREFIX = "CID_RMQ_SYS_"


class Group(NamedTuple):
    """One group record, with RocketMQ's defaults; the last five are of 5.x."""

    name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queues: int = 1
    retry_max_times: int = 16
    broker_id: int = 0
    which_broker_when_slow: int = 1
    notify_members: bool = True
    consume_orderly: bool = False
    sys_flag: int = 0
    consume_timeout_minutes: int = 15
    attributes: Mapping[str, str] = {}
    retry_policy: RetryPolicy | None = None  # None: the delay levels

    @property
    def priority_factor(self) -> int:
        """The percentage of its receives that go by priority."""
        text = self.attributes.get("priority.factor", "")
        return int(text) if text.isdecimal() and len(text) <= 3 else 100


def is_group_name(name: str) -> bool:
    """Tell whether a group may come into being under a name. Source: RocketMQ 4.9.8 SubscriptionGroupManager."""
    return len(name) <= MOST_NAME and LEGAL.fullmatch(name) is not None


class GroupTable(SavedTable):
    """name -> Group, with its version; the save mark of a change is what `when_saved` waits for."""

    def __init__(
        self, file: TableFile, *, auto_create: bool = True, most: int = 10_000, now_ms: Callable[[], int]
    ) -> None:
        self._auto_create, self._most, self._now_ms = auto_create, most, now_ms
        self.creations: Creations | None = None  # what was made by consuming alone
        super().__init__(file, self.to_json)
        self._file = file
        self.load_again()

    def load_again(self) -> None:
        """Take what the file says: at the start, and what others wrote since."""
        content = load_table(self._file, "groups")
        self.version = TableVersion.from_json(content.get("dataVersion"), self._now_ms())
        self._groups = rows_of(content.get("subscriptionGroupTable"), group_from_json, "groups")
        self._groups |= {name: Group(name) for name in FIRST_GROUPS if name not in self._groups}
        self._forbidden = rows_of(content.get("forbiddenTable"), _bits_from_json, "forbidden")

    def get(self, name: str) -> Group | None:
        """Return the group's record, None when there is none."""
        return self._groups.get(name)

    def find(self, name: str, by: str = "") -> Group | None:
        """Return the group's record, made with defaults when that is allowed, `by` this address. Raises Refused."""
        group = self._groups.get(name)
        if group is None and is_group_name(name) and (self._auto_create or name.startswith(INNER_PREFIX)):
            group = Group(name)
            creations = self.creations
            if creations is not None and not creations.allows(by, crowded=len(self._groups) * 2 > self._most):
                text = f"subscription group [{name}] does not exist, {creations.refusal('group')}"
                raise Refused(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, text)
            self.put(group)
            if creations is not None:
                creations.made(GROUP, name)
        return group

    def all(self) -> list[Group]:
        """Return every group."""
        return list(self._groups.values())

    def __len__(self) -> int:
        return len(self._groups)

    def put(self, group: Group) -> int:
        """Create or replace a group and return the save mark. Raises Refused at the limit."""
        if len(group.name) > MOST_NAME:
            text = f"group name of {len(group.name)} characters, at most {MOST_NAME} are allowed"
            raise Refused(ResponseCode.SYSTEM_ERROR, text)
        self.check_room([group.name])
        if self.creations is not None:
            self.creations.forget(GROUP, group.name)
        self._groups[group.name] = group
        return self._changed()

    def check_room(self, names: Iterable[str]) -> None:
        """Raise Refused when the limit allows not all of these groups."""
        more = sum(name not in self._groups for name in set(names))
        if more and len(self._groups) + more > self._most:
            raise Refused(
                ResponseCode.SYSTEM_ERROR,
                f"{len(self._groups)} groups, limits.groups allows {self._most}: raise the limit or delete some",
            )

    def delete(self, name: str) -> int:
        """Remove a group if it is there and return the save mark."""
        self._forbidden.pop(name, None)
        return self._changed() if self._groups.pop(name, None) else self._saver.mark

    def forbidden(self, name: str, topic: str) -> bool:
        """Return whether a group may not read a topic."""
        return bool(self._forbidden) and bool(self._forbidden.get(name, {}).get(topic, 0) & READ_BIT)

    def forbid(self, name: str, topic: str, *, read: bool) -> int:
        """Forbid a group to read a topic, or allow it again, and return the save mark."""
        topics = self._forbidden.setdefault(name, {})
        topics[topic] = topics.get(topic, 0) | READ_BIT if read else topics.get(topic, 0) & ~READ_BIT
        self._forbidden[name] = {topic: bits for topic, bits in topics.items() if bits}
        return self._changed()

    def to_json(self) -> dict[str, object]:
        """Return what `subscriptionGroup.json` holds."""
        table = {name: group_to_json(group) for name, group in self._groups.items()}
        version = self.version.to_json()
        return {"dataVersion": version, "forbiddenTable": self._forbidden, "subscriptionGroupTable": table}

    def _changed(self) -> int:
        self.version = self.version.next(self._now_ms())
        return self._saver.changed()


def _bits_from_json(row: Mapping[str, int]) -> dict[str, int]:
    return {str(topic): int(bits) for topic, bits in row.items()}


def group_to_json(group: Group) -> dict[str, object]:
    """Return a group as `subscriptionGroup.json` and code 201 spell it."""
    policy = {} if group.retry_policy is None else {"groupRetryPolicy": group.retry_policy.to_json()}
    return policy | {
        "attributes": dict(group.attributes),
        "brokerId": group.broker_id,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "consumeMessageOrderly": group.consume_orderly,
        "consumeTimeoutMinute": group.consume_timeout_minutes,
        "groupName": group.name,
        "groupSysFlag": group.sys_flag,
        "notifyConsumerIdsChangedEnable": group.notify_members,
        "retryMaxTimes": group.retry_max_times,
        "retryQueueNums": group.retry_queues,
        "whichBrokerWhenConsumeSlowly": group.which_broker_when_slow,
    }


def _attributes_from_json(content: object) -> Mapping[str, str]:
    """Return attributes; the first builds kept them with the signs of a change."""
    if not isinstance(content, dict):
        return {}
    return {str(name).removeprefix("+"): str(value) for name, value in content.items() if not str(name).startswith("-")}


def group_from_json(item: Mapping[str, object]) -> Group:
    """Return the group of a stored or sent record; absent fields take the defaults. Raises KeyError, ValueError."""
    attributes = item.get("attributes")
    return Group(
        name=str(item["groupName"]),
        consume_enable=bool(item.get("consumeEnable", True)),
        consume_from_min_enable=bool(item.get("consumeFromMinEnable", True)),
        consume_broadcast_enable=bool(item.get("consumeBroadcastEnable", True)),
        retry_queues=number(item, "retryQueueNums", 1),
        retry_max_times=number(item, "retryMaxTimes", 16),
        broker_id=number(item, "brokerId", 0),
        which_broker_when_slow=number(item, "whichBrokerWhenConsumeSlowly", 1),
        notify_members=bool(item.get("notifyConsumerIdsChangedEnable", True)),
        consume_orderly=bool(item.get("consumeMessageOrderly", False)),
        sys_flag=number(item, "groupSysFlag", 0),
        consume_timeout_minutes=number(item, "consumeTimeoutMinute", 15),
        attributes=_attributes_from_json(attributes),
        retry_policy=stored_retry_policy(item.get("groupRetryPolicy")),
    )
