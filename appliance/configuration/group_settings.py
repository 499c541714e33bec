"""The settings of a group of boxes that hold one log, and what its list of members says."""

from collections.abc import Iterator

from appliance.configuration.config_rules import Choice, Many, Real, Section, Text, Whole, key
from appliance.errors import ConfigError, ConfigProblem
from netstack.serving.addresses import host_port, split_host_port
from storage_driver.named_tuple import NamedTuple

LOCAL, ONE, BOTH = "local", "one", "both"
AUTOMATIC, MANUAL = "automatic", "manual"
MEMBER = Text(
    r"[a-z0-9-]{1,16}=\[?[0-9A-Za-z.:\-_%]+\]?:\d{1,5}( witness)?",
    '"NAME=HOST:PORT", for a witness "NAME=HOST:PORT witness"; NAME is 1 to 16 of a-z 0-9 -',
)
ADDRESS = Text(r"|[0-9a-fA-F.:]+/\d{1,3}@[\w.-]{1,15}", '"ADDRESS/PREFIX@INTERFACE" such as "10.1.0.10/24@eth0"')
BROKER_BELOW = 1  # a member's broker port is the one below its port for copies: Apache's rule
MOST_BOXES = 3
TIMING = (0.5, 10)


class GroupMember(NamedTuple):
    """One member of the list: where it takes the log, `host:port`."""

    name: str
    host: str
    port: int
    witness: bool = False

    @property
    def client_address(self) -> str:
        """Where its broker is, host:port."""
        return host_port(self.host, self.port - BROKER_BELOW)

    @property
    def link_address(self) -> str:
        """Where it takes the log, host:port."""
        return host_port(self.host, self.port)


class GroupSection(Section):
    """Boxes that hold one log; with replication.role = "member". The group's name is box.name, the same on each."""

    member: str = key("", Text(r"|[a-z0-9-]{1,16}", "1 to 16 of a-z 0-9 -"), "which of `members` this box is")
    members: tuple[str, ...] = key(
        (),
        Many(MEMBER, 4),
        "all members and where each takes the log, the port above its broker_port; the same list on each",
    )
    elections: str = key(
        AUTOMATIC,
        Choice((AUTOMATIC, MANUAL)),
        "automatic: the members elect a leader; manual: `rocketbox replica promote` makes one",
    )
    acknowledge: str = key(
        BOTH,
        Choice((LOCAL, ONE, BOTH)),
        "when a send is answered: both: on two disks; one: on the leader's, others follow; local: the same, no alarm",
    )
    copies: int = key(
        2, Whole(1, 2), "disks with the log that a witness may not stand in for; 1: one box and the witness go on"
    )
    wait_ms: int = key(3000, Whole(100, 60_000), "time a send waits for the second disk, then code 14")
    catch_up_mib_s: int = key(
        0,
        Whole(0, 10_000),
        "MiB a second that a member which is behind is sent from the disk; "
        "0: what it takes, beside clients 64 or twice what they send",
    )
    preferred: str = key("", Text(r"|[a-z0-9-]{1,16}", "a member"), "the member that leads when it can")
    address: str = key("", ADDRESS, "address that the leader takes, for clients; empty: none")
    timing: float = key(1.0, Real(*TIMING), "factor of all times of elections; above 1 for slow links")
    certs: str = key(
        "", Text(r"(?s).{0,1000}", "a folder"), "folder with box.crt, box.key, ca.crt; empty: that of the uplink"
    )


def read_member(text: str) -> GroupMember:
    """Return one item of `members`, which follows the rule."""
    name, _, rest = text.partition("=")
    address, _, kind = rest.partition(" ")
    return GroupMember(name, *split_host_port(address), kind == "witness")


def member_given(text: str, command: str, argument: str) -> GroupMember:
    """Return a member that a command line names. Raises ConfigError, which names command and argument."""
    try:
        MEMBER.read(text)
    except ValueError as exc:
        raise ConfigError(command, [ConfigProblem(argument, text, str(exc), None)]) from exc
    return read_member(text)


def read_members(section: GroupSection) -> dict[str, GroupMember]:
    """Return name → member, in the order of the list."""
    return {member.name: member for member in map(read_member, section.members)}


def problems_of(section: GroupSection, uplink_certs: str) -> Iterator[ConfigProblem]:
    """Return what is wrong with the settings of a member."""
    members = list(map(read_member, section.members))
    names = [member.name for member in members]
    boxes = [member for member in members if not member.witness]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield _problem("members", section.members, f"{twice[0]!r} is there twice: each member has a name of its own")
    if section.member not in names:
        text = f"is none of group.members ({', '.join(names) or 'empty'}): name the one that this box is"
        yield _problem("member", section.member, text)
    elif section.member not in {box.name for box in boxes}:
        yield _problem("member", section.member, "is a witness, which holds no messages: run `rocketbox witness` there")
    yield from _of_counts(section, len(boxes), len(members) - len(boxes))
    if section.preferred and section.preferred not in {box.name for box in boxes}:
        yield _problem("preferred", section.preferred, "is not a box of group.members")
    if not (section.certs or uplink_certs) and any(member.host not in ("127.0.0.1", "::1") for member in members):
        text = "members know each other by certificates: name the folder with box.crt, box.key, ca.crt"
        yield _problem("certs", section.certs, text)


def _of_counts(section: GroupSection, boxes: int, witnesses: int) -> Iterator[ConfigProblem]:
    if not 2 <= boxes <= MOST_BOXES or witnesses > 1 or (witnesses and boxes != 2):
        text = f"{boxes} boxes, {witnesses} witnesses: a group is two boxes, two and a witness, or three"
        yield _problem("members", section.members, text)
    elif section.elections == AUTOMATIC and boxes + witnesses < MOST_BOXES:
        text = 'two boxes alone elect nobody, as neither knows that the other is down: add a witness or set "manual"'
        yield _problem("elections", section.elections, text)
    if section.copies == 1 and not witnesses:
        yield _problem("copies", section.copies, "is for a group with a witness, and this one has none")


def _problem(name: str, value: object, text: str) -> ConfigProblem:
    return ConfigProblem(f"group.{name}", value, text, None)
