from storage_driver.consensus.effects import Effects
from storage_driver.consensus.messages import Outdated
from storage_driver.consensus.pending import PendingEffects


def test_effects_are_taken_once() -> None:
    pending = PendingEffects()
    pending.committed = 5
    pending.send.append(("a", Outdated(3)))
    assert pending.take(None) == Effects(committed=5, send=(("a", Outdated(3)),))
    assert pending.take(None) == Effects()
