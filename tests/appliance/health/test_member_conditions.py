"""What is wrong in a group, and nothing where all is well."""

from typing import Any

from appliance.health.member_conditions import certificate_conditions, member_conditions, quorum_conditions

BOX = {"witness": False, "connected": True, "behind_bytes": 0, "behind_s": 0.0, "refuses": "", "clock_drift_s": 0.1}
WELL: dict[str, Any] = {
    "role": "member", "member": "a", "is": "leader", "serves": True, "term": 3, "leader": "a", "diverged": None,
    "alone_since_ms": None,
    "copies": 2, "copies_there": 2,
    "members": [{**BOX, "member": "a"}, {**BOX, "member": "b"}, {**BOX, "member": "w", "witness": True}],
}  # fmt: skip


def found(told: dict[str, Any], held_s: float = 240) -> list[tuple[str, str]]:
    lasts = lambda name, holds: held_s if holds else 0  # noqa: E731
    conditions = quorum_conditions(told, lasts) + member_conditions(told, 1_000_000_000, lasts)
    return [(one.key, one.text) for one in conditions]


def members(**changes: dict[str, object]) -> dict[str, Any]:
    return {**WELL, "members": [{**each, **changes.get(each["member"], {})} for each in WELL["members"]]}


def test_a_group_that_is_well_has_no_condition() -> None:
    assert found(WELL) == found({**WELL, "serves": False, "leader": "b"}) == []


def test_each_trouble_of_a_group_is_one_condition_with_its_numbers() -> None:
    assert found({**WELL, "serves": False, "leader": ""}, 40) == [
        ("no_quorum", "no leader for 40 s: sends are refused")
    ]
    cut = {"start": 8192, "end": 12288, "at_ms": 1_000_000_000 - 5, "quarantine": "q", "messages": 3}
    text = "4 KiB, 3 messages, at 8192 were taken back: this log had what its leader's has not; kept: q"
    assert found({**WELL, "diverged": cut}) == [("diverged", text)]
    assert found({**WELL, "diverged": {**cut, "at_ms": 0}}) == []
    away: dict[str, object] = {"connected": False}
    text = "no other copy for 4 min: this box has the only one of what came since"
    assert found(members(b=away)) == [("one_copy", text)]
    alone = {"alone_since_ms": 1_000_000_000 - 90_000}
    text = "by order of a person only this disk has acknowledged for 90 s: it has the one copy of that"
    assert found({**WELL, **alone}, 0) == found({**members(b=away), **alone}) == [("one_copy", text)]
    assert found({**WELL, **alone, "leader": "b", "copies_there": None}) == [], "the next leader has it"
    behind: dict[str, object] = {"behind_bytes": 40 << 20, "behind_s": 65.0}
    assert found(members(b=behind)) == [("copy_behind:b", "the copy on b is 40 MiB and 65 s behind")]
    silent: dict[str, object] = {"behind_bytes": None, "behind_s": None}
    text = "b is connected and has not told for 4 min what it has"
    assert found(members(b=silent)) == [("copy_behind:b", text)]
    assert found(members(b=silent), 119) == found(members(b=silent | away), 119) == []
    full: dict[str, object] = {"behind_bytes": 1 << 20, "behind_s": 0.5, "refuses": "has no space: 97 % used"}
    text = "b has no space: 97 % used; its copy is 1 MiB behind"
    assert found(members(b=full), 0) == [("copy_behind:b", text)]
    text = "no connection to the witness w for 4 min: if a box fails now, nobody leads"
    assert found(members(w=away)) == [("witness_lost:w", text)]
    text = "no connection to the witness w for 4 min: a box is out, too: if this one restarts, nobody leads"
    assert found(members(b=away, w=away))[1:] == [("witness_lost:w", text)]
    drift: dict[str, object] = {"clock_drift_s": -12.0}
    assert found(members(b=drift)) == [("member_clock:b", "the clock of b is 12 s behind this one's")]
    drift = {"clock_drift_s": 86_400.0}
    assert found(members(b=drift)) == [("member_clock:b", "the clock of b is 24.0 h ahead of this one's")]


def test_a_leader_whose_first_record_no_other_disk_takes_says_so_and_why() -> None:
    full: dict[str, object] = {"behind_bytes": 173, "behind_s": 20.0, "refuses": "has no space: 97 % used"}
    assert found({**members(b=full), "serves": False}, 40) == [
        ("no_quorum", "this box leads, and no other disk takes its first record for 40 s: sends are refused"),
        ("copy_behind:b", "b has no space: 97 % used; its copy is 173 B behind"),
    ]


def test_a_leader_without_the_copies_that_a_message_is_to_have_says_so_at_once() -> None:
    text = "this box leads, and 1 of 2 copies is there: sends are refused"
    assert found({**WELL, "copies_there": 1}, 0) == [("no_quorum", text)]
    assert found({**WELL, "copies": 1, "copies_there": 1}, 0) == []
    assert found({**WELL, "serves": False, "leader": "b", "copies_there": None}) == [], "only a leader knows"


def test_what_lasts_only_a_moment_is_no_trouble() -> None:
    assert found({**WELL, "serves": False, "leader": ""}, 9) == []
    assert found({**WELL, "serves": False}, 1.9) == []
    assert [key for key, _ in found({**WELL, "serves": False}, 2)] == ["no_quorum"], "its sends are refused meanwhile"
    assert found(members(b={"connected": False}, w={"connected": False}), 119) == []


DAY_MS = 86_400_000


def test_a_certificate_that_ends_is_told_by_its_member_and_by_the_leader() -> None:
    ends_ms = {"b": 12 * DAY_MS, "w": -1, "gone": -1}
    leads = {**WELL, "certificates": {"own_ends_ms": 31 * DAY_MS, "ends_ms": ends_ms, "failure": ""}}
    found = [(one.key, one.text) for one in certificate_conditions(leads, 0, trusted=True)]
    assert found == [
        ("member_certificate_ends:b", "the certificate of member b expires in 12 days"),
        ("member_certificate_ends:w", "the certificate of member w has expired"),
    ]
    assert certificate_conditions(leads, 0, trusted=False) == []
    follows = {**leads, "leader": "b"}
    assert certificate_conditions(follows, 0, trusted=True) == []
    assert [one.key for one in certificate_conditions(follows, 2 * DAY_MS, trusted=True)] == [
        "member_certificate_ends:a"
    ]
    refused = {**follows, "certificates": {**leads["certificates"], "failure": "key values mismatch"}}
    assert [one.text for one in certificate_conditions(refused, 0, trusted=False)] == [
        "new files of this member are not in use: key values mismatch"
    ]


def test_the_next_step_without_a_leader_is_that_of_a_group_or_of_a_pair() -> None:
    nobody = {**WELL, "serves": False, "leader": ""}
    [three] = quorum_conditions(nobody, lambda name, holds: 40.0 if holds else 0.0)
    [pair] = quorum_conditions({**nobody, "members": WELL["members"][:2]}, lambda name, holds: 40.0 if holds else 0.0)
    assert ("docs/group.md#" in three.next, "replica promote" in three.next) == (True, False)
    assert "replica promote" in pair.next
    [lacks] = quorum_conditions({**WELL, "copies_there": 1}, lambda name, holds: 0.0)
    assert "replica solo" in lacks.next


def test_one_of_three_boxes_that_is_gone_is_told() -> None:
    c = {**BOX, "member": "c"}
    three = {**WELL, "members": [*WELL["members"][:2], {**c, "connected": False}]}
    text = "no connection to c for 4 min: its copy stays behind; if a box fails now, nobody leads"
    assert found(three) == [("copy_behind:c", text)]
    assert found(three, 119) == found({**three, "leader": "b", "serves": False}) == []
