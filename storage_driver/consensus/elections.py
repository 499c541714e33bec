"""Elections: pre-vote, vote, and who may begin one. Source: Ongaro's thesis on Raft, 3.4, 4.2.3, 9.6."""

from storage_driver.consensus import leading, safety
from storage_driver.consensus.hard_state import HardState
from storage_driver.consensus.member_state import MemberState
from storage_driver.consensus.members import forced_term
from storage_driver.consensus.messages import CampaignNow, PreVote, PreVoteReply, Vote, VoteReply
from storage_driver.consensus.quorum import has_majority
from storage_driver.consensus.roles import Campaigning, Following, Leading
from storage_driver.consensus.rules import ELECTION_S, REFUSAL_S, Rules
from storage_driver.errors import ConsensusRefused

UNKNOWN = "?"  # for whom a witness voted that has lost its disk; nobody's id
FORGOTTEN_TERMS = 1024  # among which a member takes one by force whose disk has forgotten those before


def election_timeout(me: str, rules: Rules, random: float) -> float:
    """Return how long this member waits for a leader, the preferred one least."""
    least, most = ELECTION_S
    third = (most - least) / 3
    if me == rules.preferred:
        most = least + third
    elif rules.preferred:
        least += third
    return (least + (most - least) * random) * rules.scale


def may_campaign(state: MemberState) -> bool:
    """Whether this member could lead."""
    return state.is_box and state.cutting is None and not state.disk_error


def on_timeout(state: MemberState, now_s: float) -> None:
    """Nobody was heard for an election timeout: ask whether an election would be won."""
    if may_campaign(state):
        _begin(state, now_s, pre=True)


def by_hand(state: MemberState, now_s: float, *, forced: bool) -> None:
    """Begin an election because a person wants it. Raises ConsensusRefused."""
    if isinstance(state.part, Leading):
        raise ConsensusRefused(f"{state.me} leads already")
    if not state.is_box:
        raise ConsensusRefused(f"{state.me} does not have a log and a vote in this group: it cannot lead")
    if state.cutting is not None:
        raise ConsensusRefused("a cut of the log is under way: try again when it is done")
    if state.disk_error:
        raise ConsensusRefused(f"the disk failed ({state.disk_error}): restart this box first")
    if not forced and _refuses(state, now_s):
        raise ConsensusRefused(f"{state.leader or 'a leader'} was heard moments ago: transfer the leadership instead")
    if forced:
        further = state.asked.question % FORGOTTEN_TERMS if state.hard.filling else 0
        term = forced_term(state.me, state.hard.term, further=further)
        state.promise(state.hard._replace(term=term, voted_for=state.me))
        leading.begin(state, now_s, solo=len(state.log.members.voters) > 1)
    else:
        _begin(state, now_s, pre=True)


def _begin(state: MemberState, now_s: float, *, pre: bool, transfer: bool = False) -> None:
    term = state.hard.term + 1
    state.leader = ""
    state.timer.since_s, state.timer.timeout_s = now_s, 0.0
    if not pre:
        state.promise(state.hard._replace(term=term, voted_for=state.me))
    state.part = Campaigning(state.me, term, pre=pre, transfer=transfer)
    log = state.log
    filling = state.hard.filling
    ask = (
        PreVote(term, log.last_term, log.end, filling) if pre else Vote(term, log.last_term, log.end, transfer, filling)
    )
    for voter in log.members.voters:
        if voter != state.me:
            state.send(voter, ask)
    _count(state, now_s)


def _count(state: MemberState, now_s: float) -> None:
    part = state.part
    if isinstance(part, Campaigning) and has_majority(state.log.members, part.votes):
        if part.pre:
            _begin(state, now_s, pre=False)
        else:
            leading.begin(state, now_s, solo=False)


def campaign_at_once(state: MemberState, now_s: float) -> None:
    """Begin an election for which the lease of the term before was given up."""
    _begin(state, now_s, pre=False, transfer=True)


def on_campaign_now(state: MemberState, now_s: float, sender: str, message: CampaignNow) -> None:
    """The leader hands over to this member."""
    if message.term == state.hard.term and sender == state.leader and may_campaign(state):
        campaign_at_once(state, now_s)


def on_pre_vote(state: MemberState, now_s: float, sender: str, message: PreVote) -> None:
    """Say whether the sender would get this member's vote; nothing changes here."""
    granted = message.term > state.hard.term and not _refuses(state, now_s) and _has_all(state, message)
    state.send(sender, PreVoteReply(state.hard.term, message.term, granted))
    ahead = (state.log.last_term, state.log.end) > (message.last_term, message.end)
    if state.rules.manual and ahead and isinstance(state.part, Following) and not _refuses(state, now_s):
        on_timeout(state, now_s)  # the one that led before has less than this member: without this nobody would lead


def on_vote(state: MemberState, now_s: float, sender: str, message: Vote) -> None:
    """Vote, or do not; a vote is synced before the answer leaves."""
    if message.term > state.hard.term:
        if not message.transfer and _refuses(state, now_s):
            return  # a leader lives: its term is not touched
        state.adopt_term(message.term)
    granted = message.term == state.hard.term and safety.vote_is_free(state.hard, sender) and _has_all(state, message)
    if granted:
        state.promise(state.hard._replace(voted_for=sender))
        state.timer.since_s = now_s
    state.send(sender, VoteReply(state.hard.term, granted))


def _refuses(state: MemberState, now_s: float) -> bool:
    """Whether a leader is alive as far as this member knows."""
    if isinstance(state.part, Leading):
        return True
    return safety.refuses_to_vote(now_s, state.heard_s, REFUSAL_S * state.rules.scale)


def _has_all(state: MemberState, message: PreVote | Vote) -> bool:
    own_term, own_end = safety.row_counts(state.hard, state.log.last_term, state.log.end)
    members, filling = state.log.members, state.hard.filling
    if not safety.knows_its_votes(state.is_new_witness, state.knows_terms):
        return False
    all_have_all = not state.is_witness and safety.boxes_have_all(
        state.rules.copies, len(members.boxes), has_witness=bool(members.witnesses), voter_is_filling=filling
    )
    if not safety.may_elect(filling, message.filling, all_have_all):
        return False
    return safety.has_all(message.last_term, message.end, own_term, own_end)


def ask_terms(state: MemberState) -> None:
    """Let a member with a new disk ask the boxes for their terms: a PreVote changes nothing, and its answer has it."""
    if state.hard.filling and not state.rules.manual and not state.knows_terms:
        for box in state.log.members.boxes:
            if box != state.me and box not in state.asked.terms:
                state.send(box, PreVote(state.asked.question, 0, 0, filling=True))


def _note_term(state: MemberState, box: str, term: int) -> None:
    """Take note of a box's term; with the last of them it is clear in which terms a new witness has not voted."""
    known = state.knows_terms
    state.asked.terms[box] = term
    last = max(state.asked.terms.values())
    if state.is_new_witness and state.knows_terms and not known and state.hard.term <= last:
        state.promise(state.hard._replace(term=last, voted_for=UNKNOWN))


def on_pre_vote_reply(state: MemberState, now_s: float, sender: str, message: PreVoteReply) -> None:
    """Count an answer; a higher term is taken over."""
    if state.hard.filling and message.asked == state.asked.question and sender in state.log.members.boxes:
        _note_term(state, sender, message.term)
        return
    if message.term > state.hard.term and not message.granted:
        state.adopt_term(message.term)
        return
    part = state.part
    if message.granted and isinstance(part, Campaigning) and part.pre and message.asked == part.term:
        part.votes.add(sender)
        _count(state, now_s)


def on_vote_reply(state: MemberState, now_s: float, sender: str, message: VoteReply) -> None:
    """Count a vote; a higher term is taken over."""
    if message.term > state.hard.term:
        state.adopt_term(message.term)
        return
    part = state.part
    if message.granted and isinstance(part, Campaigning) and not part.pre and message.term == part.term:
        part.votes.add(sender)
        _count(state, now_s)


def led_before(hard: HardState, me: str) -> bool:
    """Whether this member was the leader, or about to be, when it stopped."""
    return hard.term > 0 and hard.voted_for == me
