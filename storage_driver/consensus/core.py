"""The consensus core: events in, Effects out. No clock, no randomness, no bytes, no disk.

Raft as etcd builds it (pre-vote, check-quorum, lease, leader transfer, single-step membership, learners), over byte
ranges of the CommitLog: the log index is the log offset. `safety.py` has the rules on which safety rests, `roles.py`
what a member keeps per role; `elections`, `leading`, `leaving`, `following` and `membership` act on both.
"""

from collections.abc import Callable
from math import inf
from typing import Any

from storage_driver.consensus import elections, following, leading, leaving, membership, safety
from storage_driver.consensus.effects import Effects, FollowerProgress, MemberStatus, Start
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.members import Members, check_members
from storage_driver.consensus.messages import (
    Append,
    CampaignNow,
    FollowerReply,
    LeaderHeartbeat,
    Match,
    Message,
    Outdated,
    Position,
    PreVote,
    PreVoteReply,
    Synced,
    Unrelated,
    Vote,
    VoteReply,
    WitnessRow,
    WitnessSynced,
)
from storage_driver.consensus.roles import Following, Leading
from storage_driver.consensus.rules import Acknowledge, Rules
from storage_driver.errors import ConsensusRefused

_Handler = Callable[[MemberState, float, str, Any], None]
_ELECTION: dict[type[Message], _Handler] = {
    PreVote: elections.on_pre_vote,
    PreVoteReply: elections.on_pre_vote_reply,
    Vote: elections.on_vote,
    VoteReply: elections.on_vote_reply,
}
_FROM_LEADER: dict[type[Message], _Handler] = {
    LeaderHeartbeat: following.on_heartbeat,
    Match: following.on_match,
    Unrelated: following.on_unrelated,
    Append: following.on_append,
    WitnessRow: following.on_witness_row,
    CampaignNow: elections.on_campaign_now,
}
_TO_LEADER: dict[type[Message], _Handler] = {
    FollowerReply: leading.on_follower_reply,
    Position: leading.on_position,
    Synced: leading.on_synced,
    WitnessSynced: leading.on_witness_synced,
}


class Core:
    """One member of a group. Every event carries the time of a monotonic clock that counts suspend (CLOCK_BOOTTIME).

    Not reentrant. Each call returns what is to be done; the driver carries Effects out one after the other, in the
    order of the calls. Sends of one call never pass the synced hard state of an earlier one.
    """

    def __init__(self, member_id: str, rules: Rules, start: Start, now_s: float) -> None:
        """Raises ConsensusRefused when vote file, log and members cannot be of one member."""
        check_members(start.table.configs[0].members)
        self._state = MemberState(member_id, rules, start, now_s)
        self._told: MemberStatus | None = None
        self._resuming = rules.manual and elections.led_before(start.hard_state, member_id)
        self._rounds = 0  # of elections by itself since the start, while it is resuming

    @property
    def status(self) -> MemberStatus:
        """What this member is now."""
        return self._state.status()

    @property
    def committed(self) -> int:
        """The log offset below which everything is committed, as far as this member knows."""
        return self._state.log.committed

    @property
    def told_committed(self) -> int:
        """What the group has committed, as far as this member was told: its own log may not have all of it."""
        own = self._state.log.committed
        return own if isinstance(self._state.part, Leading) else max(own, self._state.told)

    @property
    def changing(self) -> bool:
        """Whether the newest change of the members is not committed yet, as far as this member knows."""
        return self._state.log.committed <= self._state.log.last_change

    @property
    def heard_s(self) -> float | None:
        """When a leader last said what is committed; None: not since the start."""
        return self._state.heard_s if self._state.told else None

    def next_tick_s(self) -> float:
        """Return when `tick` has something to do if nothing else happens; calling it earlier does no harm."""
        state, part = self._state, self._state.part
        if isinstance(part, Leading):
            return min(part.heartbeat_s, part.transfer.deadline_s if part.transfer else inf)
        asleep = state.rules.manual and not self._resuming and isinstance(part, Following)
        return inf if asleep or not state.is_box else state.campaign_s

    def tick(self, now_s: float, random: float) -> Effects:
        """Time has passed. `random` in [0, 1) spreads the elections of members."""
        state, part = self._state, self._state.part
        if isinstance(part, Leading):
            if leaving.on_tick(state, part, now_s):
                elections.campaign_at_once(state, now_s)
            elif state.part is part and now_s >= part.heartbeat_s:
                leading.send_heartbeats(state, part, now_s)
            return self._done(now_s)
        if state.timer.timeout_s == 0:
            state.timer.timeout_s = elections.election_timeout(state.me, state.rules, random)
        if now_s >= state.campaign_s:
            state.timer.since_s = now_s
            state.timer.timeout_s = elections.election_timeout(state.me, state.rules, random)
            self._on_timeout(now_s)
        return self._done(now_s)

    def _on_timeout(self, now_s: float) -> None:
        state = self._state
        if not state.rules.manual:
            elections.on_timeout(state, now_s)
        elif self._resuming:
            self._resume(now_s)
        else:
            state.follow_nobody()  # an election by hand that nobody answered

    def _resume(self, now_s: float) -> None:
        """With manual elections the one that led goes on after a restart.

        It needs the others' votes where they hold acknowledged records. Where its own disk is all that counts, it waits
        two rounds for them and then goes on alone.
        """
        state = self._state
        self._rounds += 1
        alone = self._rounds > 2 and not state.rules.counts_copies and state.log.last_term == state.hard.term
        if alone and elections.may_campaign(state):
            elections.by_hand(state, now_s, forced=True)
        else:
            elections.on_timeout(state, now_s)

    def step(self, now_s: float, sender: str, message: Message) -> Effects:
        """A message of an authenticated member has come."""
        state, kind, term = self._state, type(message), message.term
        if not safety.may_follow(term, state.hard.term):
            return self._done(now_s)
        if kind in _ELECTION:
            _ELECTION[kind](state, now_s, sender, message)
        elif term < state.hard.term:
            if kind in _FROM_LEADER:
                state.send(sender, Outdated(state.hard.term))
        else:
            if term > state.hard.term:
                state.adopt_term(term)
            handler = _FROM_LEADER.get(kind) or _TO_LEADER.get(kind)
            if handler is not None and not (kind in _FROM_LEADER and isinstance(state.part, Leading)):
                handler(state, now_s, sender, message)
        elections.ask_terms(state)
        return self._done(now_s)

    def connected(self, now_s: float, member: str) -> Effects:
        """A new link to a member is open: whatever was sent on the old one may be lost."""
        state, part = self._state, self._state.part
        if isinstance(part, Leading) and member in part.progress:
            part.progress[member].matched = False
            if member in state.log.members.witnesses:
                part.progress[member].next = part.progress[member].synced = 0
            state.send(member, LeaderHeartbeat(state.hard.term, state.log.committed, -1, now_s))
        elections.ask_terms(state)
        return self._done(now_s)

    def tell_committed(self, now_s: float) -> Effects:
        """As leader, tell everybody now what is committed: without it the next bytes or heartbeat do."""
        state, part = self._state, self._state.part
        if isinstance(part, Leading):
            leading.send_heartbeats(state, part, now_s)
        return self._done(now_s)

    def appended(self, now_s: float, end: int) -> Effects:
        """The own log now ends here: the leader appended records, or the bytes of `accepted` are in the log."""
        self._append(now_s, end)
        return self._done(now_s)

    def _append(self, now_s: float, end: int) -> None:
        state, part = self._state, self._state.part
        if end < state.log.end:
            raise ValueError(f"the log ends at {state.log.end}, an append cannot end at {end}")
        members = state.log.members
        state.log.extend(end)
        if isinstance(part, Leading):
            if part.first_end is None:
                part.first_end = end
            if state.log.members != members:
                leading.know_members(state, part)
            if part.unsynced_s is None:
                part.unsynced_s = now_s

    def synced(self, now_s: float, log_offset: int) -> Effects:
        """Everything below is on this disk."""
        self._sync(now_s, log_offset)
        return self._done(now_s)

    def _sync(self, now_s: float, log_offset: int) -> None:
        state, part, log = self._state, self._state.part, self._state.log
        log.synced = max(log.synced, min(log_offset, log.end))
        if isinstance(part, Leading):
            part.unsynced_s = now_s if log.synced < log.end else None
            leading.advance(state, part)
            leading.advance_witness(state, part, now_s)
        elif isinstance(part, Following) and state.cutting is None:
            following.report(state, part)

    def note_log(self, now_s: float, end: int, synced: int) -> None:
        """The own log ends here and is on this disk up to there; what comes of it is with the next event's Effects.

        For a leader that `commits_own_disk`: nothing waits for what it has to say of that.
        """
        self._append(now_s, end)
        self._sync(now_s, synced)

    def retained(self, first: int) -> None:
        """The log now begins here."""
        self._state.log.first = first
        if isinstance(part := self._state.part, Leading):
            for progress in part.progress.values():
                progress.matched = progress.matched and progress.next >= first

    def stand_back(self, back: bool) -> None:
        """Let the other boxes have their turn in an election first, from now on or no longer: this one has no room."""
        self._state.timer.stands_back = back

    def disk_failed(self, now_s: float, reason: str) -> Effects:
        """This disk takes nothing any more: the member hands over, and reports nothing."""
        state, part = self._state, self._state.part
        state.disk_error = reason
        if isinstance(part, Leading):
            leaving.resign(state, part, now_s)
        return self._done(now_s)

    def cut_done(self, now_s: float, log_offset: int) -> Effects:
        """The cut that was asked for is finished."""
        following.on_cut_done(self._state, now_s, log_offset)
        return self._done(now_s)

    def to_ship(self, member: str) -> tuple[int, int]:
        """Return the range that a follower may be sent now: of one term, equal ends when there is nothing."""
        part = self._state.part
        return leading.to_ship(self._state, part, member) if isinstance(part, Leading) else (0, 0)

    def ship(self, member: str, length: int, crc: int) -> Append:
        """Return the message for the next bytes of `to_ship`; they count as sent. Raises ValueError beyond it."""
        return leading.ship(self._state, self._leading(), member, length, crc)

    def progress(self) -> tuple[FollowerProgress, ...]:
        """How far the others are; empty unless this member leads."""
        part = self._state.part
        return leading.progress_of(part) if isinstance(part, Leading) else ()

    def copied(self) -> int:
        """Return the log offset below which what is committed is on two disks; 0 unless this member leads."""
        part = self._state.part
        return leading.copied(self._state, part) if isinstance(part, Leading) else 0

    @property
    def alone(self) -> bool:
        """Whether this member leads and a person said that it is to go on alone."""
        part = self._state.part
        return isinstance(part, Leading) and part.alone

    @property
    def commits_own_disk(self) -> bool:
        """Whether what is on the disk of this leader is committed, whatever others have."""
        state, part = self._state, self._state.part
        begun = isinstance(part, Leading) and part.first_end is not None and not part.alone
        return begun and not state.rules.counts_copies

    @property
    def waits_for_copies(self) -> bool:
        """Whether what this member commits as leader waits for other disks."""
        part = self._state.part
        return self._state.rules.counts_copies and not (isinstance(part, Leading) and part.alone)

    def lease_held(self, now_s: float) -> bool:
        """Whether this leader can be sure that no other one has been elected: what is not a log offset may be read."""
        part = self._state.part
        return isinstance(part, Leading) and leading.lease_held(self._state, part, now_s)

    def campaign(self, now_s: float, *, forced: bool = False) -> Effects:
        """Begin an election by hand.

        Forced: lead alone without any vote, in a term that no other member can take; what only others had
        acknowledged is lost. Raises ConsensusRefused.
        """
        self._resuming = False
        elections.by_hand(self._state, now_s, forced=forced)
        return self._done(now_s)

    def transfer(self, now_s: float, to: str) -> Effects:
        """Hand the leadership over: appends are refused until it is done, or given up. Raises ConsensusRefused."""
        leaving.transfer(self._state, self._leading(), now_s, to)
        return self._done(now_s)

    def wanted_leader(self, now_s: float) -> str:
        """Return the member that this leader is to hand over to now, as an order would; "": none. Told once."""
        part = self._state.part
        return leaving.wanted_leader(self._state, part, now_s) if isinstance(part, Leading) else ""

    def check_transfer(self, now_s: float, to: str) -> None:
        """Raise ConsensusRefused where `transfer` would do so now."""
        leaving.check_transfer(self._state, self._leading(), now_s, to)

    def solo(self, now_s: float) -> Effects:
        """As leader, acknowledge alone until another disk has everything again. Raises ConsensusRefused."""
        part = self._leading()
        part.solo = part.alone = True
        leading.advance(self._state, part)
        return self._done(now_s)

    def resign(self, now_s: float) -> Effects:
        """Stop leading, whoever takes over. Raises ConsensusRefused."""
        self._leading()
        self._resuming = False
        self._state.follow_nobody()
        return self._done(now_s)

    def propose_members(self, now_s: float, members: Members) -> Effects:
        """Change the members, one voter at a time. Raises ConsensusRefused."""
        membership.propose(self._state, self._leading(), now_s, members)
        return self._done(now_s)

    def set_acknowledge(self, now_s: float, acknowledge: Acknowledge) -> Effects:
        """Change what committed waits for. Never moves it down."""
        state, part = self._state, self._state.part
        state.rules = state.rules._replace(acknowledge=acknowledge)
        if isinstance(part, Leading):
            leading.advance(state, part)
        return self._done(now_s)

    def _leading(self) -> Leading:
        state, part = self._state, self._state.part
        if not isinstance(part, Leading):
            raise ConsensusRefused(f"{state.me} does not lead; {state.leader or 'nobody'} does")
        return part

    def _done(self, now_s: float) -> Effects:
        state, told = self._state, self._told
        status = state.status()
        if told is not None and told.role == "leader" and status.role != "leader":
            state.timer.since_s = max(state.timer.since_s, now_s)
        if self._resuming and (state.leader or state.hard.voted_for not in ("", state.me)):
            self._resuming = False
        self._told = status
        return state.out.take(None if status == told else status)
