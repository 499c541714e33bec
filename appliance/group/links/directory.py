"""Where the members of a group are: as the log says of those who came later, else as configured. Sans I/O."""

from collections.abc import Iterable, Mapping

from appliance.configuration.group_settings import BROKER_BELOW, MEMBER, GroupMember, read_member
from appliance.group.links.links import LinkPeer
from netstack.serving.addresses import host_port
from storage_driver.consensus.members import Members
from storage_driver.named_tuple import NamedTuple

MOST_PORT = 65_535


class MemberAddress(NamedTuple):
    """Where a member's link and, of a box, its broker is."""

    host: str
    port: int
    client: str  # host:port
    witness: bool = False


def addresses_of(members: Iterable[GroupMember]) -> dict[str, MemberAddress]:
    """Return members by name."""
    return {each.name: MemberAddress(each.host, each.port, each.client_address, each.witness) for each in members}


def member_in(text: str) -> GroupMember | None:
    """Return the member that a text names, as in `group.members`; None when it names none."""
    try:
        MEMBER.read(text)
    except ValueError:
        return None
    found = read_member(text)
    return found if 0 < found.port - BROKER_BELOW < MOST_PORT else None


class MemberDirectory:
    """The members of the moment by name, as one of them knows them."""

    def __init__(self, member: str, configured: Mapping[str, MemberAddress]) -> None:
        self.member = member
        self._configured, self._known = dict(configured), dict(configured)

    def update(self, members: Members) -> None:
        """Take over who belongs to the group."""
        later = addresses_of(filter(None, map(member_in, members.addresses)))
        found = {**self._configured, **later}
        self._known = {name: found[name] for name in members.all if name in found}

    def link_address(self, member: str) -> str:
        """Return where a member's link is, host:port; empty when it is unknown."""
        found = self._known.get(member)
        return host_port(found.host, found.port) if found else ""

    def client_address(self, member: str) -> str:
        """Return where a member's broker is, host:port; empty when it is unknown."""
        found = self._known.get(member)
        return found.client if found else ""

    def peers(self) -> dict[str, LinkPeer]:
        """Return the others. A box dials a witness, and of two boxes or two witnesses the later in order of names."""
        own = self._known.get(self.member)
        votes_only = own is not None and own.witness
        return {
            name: LinkPeer(member.host, member.port, (member.witness, self.member) > (votes_only, name))
            for name, member in self._known.items()
            if name != self.member
        }
