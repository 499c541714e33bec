"""What a fleet file says of groups, and that each mistake is told with line and column."""

import pytest

from provisioning.errors import ProvisioningError
from provisioning.fleet import FleetRow, read_rows
from provisioning.fleet_groups import GroupCells, common_settings

HEAD = "serial,group,member,role,address,link,set.group.preferred,set.group.address\n"
THREE = "A1,press,a,,10.1.0.11/24,,a,\nA2,press,b,,10.1.0.12/24,,,10.1.0.10/24@eth0\nA3,press,c,box,10.1.0.13/24,,,\n"


def place(row: FleetRow) -> GroupCells:
    assert row.place is not None
    return row.place


def errors_of(text: str) -> list[str]:
    with pytest.raises(ProvisioningError) as caught:
        read_rows(text)
    return list(caught.value.facts["errors"])


def test_members_are_listed_by_their_address_and_settings_of_the_group_come_from_any_row() -> None:
    rows = read_rows(HEAD + THREE)
    assert [row.name for row in rows] == ["press-a", "press-b", "press-c"]
    places = [place(row) for row in rows]
    assert [each.listed for each in places] == ["a=10.1.0.11:10912", "b=10.1.0.12:10912", "c=10.1.0.13:10912"]
    assert common_settings(places) == {"group.preferred": "a", "group.address": "10.1.0.10/24@eth0"}


def test_a_witness_is_no_box_and_a_link_may_be_elsewhere() -> None:
    rows = read_rows(
        "name,group,member,role,link,set.listen.broker_port,address\nx,press,a,,box-a.example:10912,,\n"
        "y,press,b,,,20911,fd00::12/64\nz,press,w,witness,10.1.0.20:10912,,\n"
    )
    assert [place(row).listed for row in rows] == [
        "a=box-a.example:10912",
        "b=[fd00::12]:20912",
        "w=10.1.0.20:10912 witness",
    ]
    assert [row.box for row in rows] == [True, True, False]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("A1,,a,,10.1.0.11/24,,,\n", "line 2, column group: '', allowed: 1 to 40 of a-z 0-9 -; it becomes box.name"),
        ("A1,press,A!,,10.1.0.11/24,,,\n", "line 2, column member: 'A!', allowed: 1 to 16 of a-z 0-9 -"),
        ("A1,press,a,boss,10.1.0.11/24,,,\n", "line 2, column role: 'boss', allowed: box (or empty), witness"),
        ("A1,press,w,witness,10.1.0.11/24,,,\n", "line 2, column serial: a witness is a process on another machine"),
        ("A1,press,a,,dhcp,,,\n", "line 2, column link: is needed without a fixed address"),
        ("A1,press,a,,,here,,\n", "line 2, column link: 'here' is not HOST:PORT"),
        ("A1,press,a,,10.1.0.11/24,10.1.0.12:10912,,\n", "line 2, column link: 10.1.0.12:10912 is not at this row's"),
        (THREE + "A4,press,a,,10.1.0.14/24,,,\n", "line 5, column member: a is in line 2 already"),
        ("A1,press,a,,,h:10912,,\nA2,press,b,,,h:10912,,\n", "line 3, column link: h:10912 is in line 2 already"),
        (THREE.replace("c,box,10.1.0.13/24,,", "c,box,10.1.0.13/24,,b"), "line 4, column set.group.preferred: 'b'"),
        (
            "A1,press,a,,10.1.0.11/24,,,\n",
            "line 2, column group: press has 1 boxes and 0 witnesses: two boxes, two and",
        ),
    ],
)
def test_what_cannot_be_right_is_named_with_line_and_column(body: str, expected: str) -> None:
    assert any(error.startswith(expected) for error in errors_of(HEAD + body)), errors_of(HEAD + body)


def test_an_address_that_moves_may_be_on_another_interface_of_each_box() -> None:
    rows = read_rows(HEAD + THREE.replace("a,\nA2", "a,10.1.0.10/24@enp1s0\nA2"))
    assert [row.settings.get("group.address", "") for row in rows] == ["10.1.0.10/24@enp1s0", "10.1.0.10/24@eth0", ""]


def test_what_the_columns_say_is_not_said_again_as_a_setting() -> None:
    text = "name,group,member,link,set.group.members\nx,press,a,h:10912,[]\ny,press,b,i:10912,\n"
    assert errors_of(text) == [
        "line 2, column set.group.members: comes from the columns group, member and link: leave it out"
    ]
