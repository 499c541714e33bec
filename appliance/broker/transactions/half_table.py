"""Which half messages are decided: a window over the half queue, from the oldest open one on.

A half is open, decided (its op record is written) or settled (the op record is durable). The window's base moves only
past settled halves, so what is stored about it never runs ahead of the log. One byte per half in the window.
"""

from collections import deque

OPEN, DECIDED, SETTLED = 0, 1, 2
OPS_PER_BLOCK = 256


class _Block:
    """A run of op records: enough to know when none of them matters any more."""

    __slots__ = ("count", "first_op", "highest_half")

    def __init__(self, first_op: int, count: int, highest_half: int) -> None:
        self.first_op, self.count, self.highest_half = first_op, count, highest_half


class HalfTable:
    """States of half messages by their offset in the half queue, and how far the op queue still matters."""

    def __init__(self, base: int, op_base: int) -> None:
        self.base, self.op_base = base, op_base  # the oldest offsets that still matter
        self._states = bytearray()
        self._blocks: deque[_Block] = deque()
        self._successors: dict[int, int] = {}  # a half that was stored again for a check → its copy

    def state(self, half: int) -> int:
        """Return OPEN, DECIDED or SETTLED; what is below the base is settled."""
        if half < self.base:
            return SETTLED
        at = half - self.base
        return self._states[at] if at < len(self._states) else OPEN

    def next_open(self, half: int) -> int:
        """Return the first half from this one on that is not known to be decided."""
        at = self._states.find(OPEN, max(half - self.base, 0))
        return self.base + (at if at >= 0 else max(len(self._states), half - self.base))

    def decide(self, half: int) -> None:
        """Note that a half is decided; the base does not pass it yet."""
        self._set(half, DECIDED)

    def reopen(self, half: int) -> None:
        """Note that the log took the decision back before it was durable."""
        self._set(half, OPEN)
        self._successors.pop(half, None)

    def settle(self, half: int, op: int) -> None:
        """Note that the op record at queue offset op is durable. Ops come in the order of their queue."""
        self._set(half, SETTLED)
        self._count_op(half, op)

    def replace(self, half: int, copy: int) -> None:
        """Note that a half lives on as a copy at another offset."""
        self._successors[half] = copy

    def newest(self, half: int) -> int:
        """Return the copy under which a half lives on now, itself if it was never copied."""
        while half in self._successors:
            half = self._successors[half]
        return half

    def advance(self) -> None:
        """Move the bases past what is settled."""
        settled = len(self._states) - len(self._states.lstrip(bytes((SETTLED,))))
        if settled:
            del self._states[:settled]
            self.base += settled
            self._forget_successors()
        while self._blocks and self._blocks[0].highest_half < self.base:
            block = self._blocks.popleft()
            self.op_base = block.first_op + block.count

    def skip_to(self, half: int) -> None:
        """Give up the halves below: their records are no longer in the log."""
        for gone in range(self.base, half):
            self._set(gone, SETTLED)

    def _set(self, half: int, state: int) -> None:
        at = half - self.base
        if at < 0:
            return
        if at >= len(self._states):
            self._states += bytes(at + 1 - len(self._states))
        self._states[at] = state

    def _count_op(self, half: int, op: int) -> None:
        block = self._blocks[-1] if self._blocks else None
        if block is None or block.count >= OPS_PER_BLOCK or op != block.first_op + block.count:
            self._blocks.append(_Block(op, 1, half))
        else:
            block.count += 1
            block.highest_half = max(block.highest_half, half)

    def _forget_successors(self) -> None:
        """A chain is needed until its last copy is settled: only then can no late answer to an old half matter."""
        for half in [half for half in self._successors if half < self.base and self.newest(half) < self.base]:
            del self._successors[half]
