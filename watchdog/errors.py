"""What can go wrong in this package and reaches a caller."""


class WatchdogError(Exception):
    """Root of this package's errors."""


class SettingIllegal(WatchdogError):
    """A limit does not fit systemd's: carries both figures."""

    def __init__(self, proof_limit_s: float, watchdog_s: float) -> None:
        super().__init__(
            f"watchdog.proof_limit_s is {proof_limit_s:g}, the unit's WatchdogSec {watchdog_s:g}: it must be at least "
            f"twice the limit; raise WatchdogSec= in a drop-in or lower the key"
        )
        self.proof_limit_s, self.watchdog_s = proof_limit_s, watchdog_s
