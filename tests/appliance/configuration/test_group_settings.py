"""The settings of a group: its list of members, and every way to get it wrong."""

import pytest

from appliance.configuration.config import HostFacts, load_config
from appliance.configuration.group_settings import GroupMember, GroupSection, read_members
from appliance.errors import ConfigError

FACTS = HostFacts(1 << 40, "", "host")
PAIR = ("a=10.1.0.11:10912", "b=10.1.0.12:10912")
WITH_WITNESS = (*PAIR, "w=10.1.0.20:10912 witness")


def load(*, name: str = 'name = "press"', role: str = "member", **group: object) -> None:
    said = {"member": "a", "members": list(WITH_WITNESS), "certs": "/etc/keys", **group}
    lines = "\n".join(
        f"{key} = {str(value).lower() if isinstance(value, bool) else repr(value)}" for key, value in said.items()
    )
    text = f'[box]\n{name}\n[replication]\nrole = "{role}"\n[group]\n{lines}\n'.replace("'", '"')
    load_config(text, facts=FACTS)


def problem(**said: object) -> str:
    with pytest.raises(ConfigError) as caught:
        load(**said)  # type: ignore[arg-type]
    return str(caught.value)


def test_members_are_read_with_their_addresses() -> None:
    members = read_members(GroupSection(members=("a=[fe80::1]:10912", "w=gate:7 witness")))
    assert members == {"a": GroupMember("a", "fe80::1", 10912), "w": GroupMember("w", "gate", 7, witness=True)}
    assert members["a"].client_address == "[fe80::1]:10911"


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"members": list(PAIR), "elections": "manual"},
        {"members": [*PAIR, "c=10.1.0.13:10912"], "preferred": "c"},
        {"copies": 1},
        {"members": ["a=127.0.0.1:1", "b=127.0.0.1:2"], "elections": "manual", "certs": ""},
    ],
)
def test_groups_that_are_allowed(said: dict[str, object]) -> None:
    load(**said)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"member": "x"}, "is none of group.members (a, b, w)"),
        ({"member": "w"}, "is a witness, which holds no messages"),
        ({"members": ["a=h:1", "a=h:2", "b=h:3"]}, "'a' is there twice"),
        ({"members": ["a=h:1"], "elections": "manual"}, "1 boxes, 0 witnesses: a group is"),
        ({"members": ["a=h:1", "v=h:2 witness", "w=h:3 witness"]}, "1 boxes, 2 witnesses"),
        ({"members": [*PAIR, "c=h:1", "w=h:3 witness"]}, "3 boxes, 1 witnesses"),
        ({"members": list(PAIR)}, "two boxes alone elect nobody"),
        ({"members": [*PAIR, "c=h:1"], "copies": 1}, "is for a group with a witness"),
        ({"preferred": "w"}, "is not a box of group.members"),
        ({"certs": ""}, "members know each other by certificates"),
        ({"members": ["a 10.1.0.11"]}, "NAME=HOST:PORT"),
        ({"address": "10.1.0.10"}, "ADDRESS/PREFIX@INTERFACE"),
        ({"address": "10.1.0.10/24@eth0"}, 'set listen.host = "0.0.0.0"'),
        ({"name": ""}, "is the group's name, the same on each of its boxes"),
        ({"role": "alone"}, 'set replication.role = "member"'),
    ],
)
def test_what_is_wrong_is_said(said: dict[str, object], words: str) -> None:
    assert words in problem(**said)
