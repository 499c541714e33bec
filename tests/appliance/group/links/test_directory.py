"""Where members are: as configured, or as the log says of those who came later."""

from appliance.configuration.group_settings import GroupMember
from appliance.group.links.directory import MemberDirectory, addresses_of, member_in
from storage_driver.consensus.members import Members

CONFIGURED = addresses_of([GroupMember("a", "h", 10912), GroupMember("b", "i", 20912), GroupMember("c", "j", 30912)])


def test_who_came_later_is_where_the_log_says_and_who_was_removed_is_nowhere() -> None:
    found = MemberDirectory("b", CONFIGURED)
    assert {name: peer.dialed for name, peer in found.peers().items()} == {"a": True, "c": False}
    later = ("d=[fd00::1]:40912", "w=k:50912 witness", "garbage", "e=h:1")
    found.update(Members(("a", "b"), ("w",), ("d", "unknown"), later))
    assert {name: (peer.host, peer.port, peer.dialed) for name, peer in found.peers().items()} == {
        "a": ("h", 10912, True),
        "d": ("fd00::1", 40912, False),
        "w": ("k", 50912, True),
    }
    assert (found.link_address("a"), found.client_address("d")) == ("h:10912", "[fd00::1]:40911")
    assert found.link_address("c") == found.client_address("c") == ""


def test_of_two_members_one_dials_and_a_witness_is_dialed() -> None:
    texts = ("m=h:10912", "a=h:20912", "w=h:30912 witness", "b=h:40912 witness")
    known = addresses_of(filter(None, map(member_in, texts)))
    dialed = {name: {peer for peer, at in MemberDirectory(name, known).peers().items() if at.dialed} for name in known}
    assert dialed == {"m": {"a", "w", "b"}, "a": {"w", "b"}, "w": {"b"}, "b": set()}


def test_a_text_that_names_no_member_is_none() -> None:
    assert member_in("d=h:10912") == GroupMember("d", "h", 10912)
    for text in ("d", "d=h", "d=h:0", "d=h:1", "d=h:65536", "D=h:10912", "d=h:10912 x", "d" * 17 + "=h:10912"):
        assert member_in(text) is None
