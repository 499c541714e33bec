"""What is remembered of conditions over all standings of a box.

The broker of a member of a group is composed anew at each change of leader, and the watch with it; what lasts goes on.
"""

from appliance.health.group_watch import GroupWatch

FORGET_S = 30.0  # a change of leader takes less


class ConditionMemory:
    """Of which conditions the log was told, and since when what lasts has held."""

    def __init__(self) -> None:
        self.said = set[str]()  # keys
        self.groups: GroupWatch | None = None
        self._held_s: dict[str, tuple[float, float]] = {}  # since when, and when it was last seen

    def forget(self, now_s: float) -> None:
        """A new watch begins: what nobody has looked at for long, as on a box that followed, has its time again."""
        self._held_s = {name: row for name, row in self._held_s.items() if now_s - row[1] <= FORGET_S}
        if self.groups is not None and now_s - self.groups.looked_s > FORGET_S:
            self.groups = None

    def lasts(self, name: str, holds: bool, now_s: float) -> float:
        """Return for how long something has held."""
        if not holds:
            self._held_s.pop(name, None)
            return 0.0
        since_s, _ = self._held_s.get(name, (now_s, now_s))
        self._held_s[name] = since_s, now_s
        return now_s - since_s
