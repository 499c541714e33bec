"""The commands of the centre, one module each theme."""

from __future__ import annotations

from uplink_spark.commands import care, certs, gateway, look, stick
from uplink_spark.commands.parts import Subcommand

COMMANDS: tuple[Subcommand, ...] = (
    *gateway.COMMANDS,
    *look.COMMANDS,
    *care.COMMANDS,
    *stick.COMMANDS,
    *certs.COMMANDS,
)
