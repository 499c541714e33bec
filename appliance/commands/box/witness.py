"""`rocketbox witness`: votes in a group of two boxes, so that one of them can lead while the other is out."""

import argparse
import signal
from collections.abc import Sequence
from pathlib import Path

import trio

from appliance import sockets
from appliance.configuration.group_settings import TIMING, member_given
from appliance.errors import ConfigError, ConfigProblem, PortTaken, only_cause
from appliance.gc_tuning import give_back, give_back_code, stay_small
from appliance.logs import start_logging
from storage_driver.errors import ConsensusRefused, StateDamaged, VoteFileDamaged
from uplink_spark.bounds import factor
from uplink_spark.errors import ConfigError as CertificateError

EXAMPLE = """examples:
  rocketbox witness --group press --as w --member "w=10.1.0.20:10912 witness" --data votes --certs keys

Each member of group.members needs its --member.
"""
SMALL_EVERY_S = 60.0
CODES: tuple[tuple[type[Exception], int], ...] = (
    (ConfigError, 78),
    (PortTaken, 2),
    (StateDamaged, 74),
    (OSError, 74),
    (CertificateError, 78),
    (ConsensusRefused, 78),
    (VoteFileDamaged, 78),
)


EXPECTED: tuple[type[Exception], ...] = (ExceptionGroup, *(kind for kind, _ in CODES))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog, parser.formatter_class = EXAMPLE, argparse.RawDescriptionHelpFormatter
    parser.add_argument("--group", required=True, help="box.name of the boxes")
    parser.add_argument("--as", dest="name", required=True, help="which member this is")
    parser.add_argument(
        "--member", action="append", required=True, metavar="MEMBER", help="as in group.members of the boxes; repeat"
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of the votes; never delete or copy it")
    parser.add_argument("--certs", type=Path, required=True, help="folder with box.crt, box.key, ca.crt")
    parser.add_argument("--host", default="::", help="address to listen at; without it all of this machine")
    parser.add_argument("--timing", type=factor(*TIMING), default=1.0, help="group.timing of the boxes")


def run(arguments: argparse.Namespace) -> int:
    """Vote until a signal; return the exit code."""
    handler = start_logging()
    stay_small()
    try:
        trio.run(_until_signal, arguments)
    except EXPECTED as exc:
        cause = only_cause(exc)
        code = next((code for kind, code in CODES if isinstance(cause, kind)), None)
        if code is None:
            raise
        handler.say(f"rocketbox: {cause}")
        return code
    return 0


def members_of(texts: Sequence[str], name: str) -> tuple[str, ...]:
    """Return the members when they are a list in which this one is a witness. Raises ConfigError."""
    members = [member_given(text, "--member", "--member") for text in texts]
    if not any(member.name == name and member.witness for member in members):
        text = f'is not a witness in the list: --member "{name}=HOST:PORT witness"'
        raise ConfigError("--as", [ConfigProblem("--as", name, text, None)])
    return tuple(texts)


async def _stay_small() -> None:
    """Have what links took as they were made leave memory: what is used all the time comes back at once."""
    while True:
        await trio.sleep(SMALL_EVERY_S)
        give_back_code()


async def _until_signal(arguments: argparse.Namespace) -> None:
    from appliance.group.witness import run_witness, witness_plan  # with all that a group needs

    texts = members_of(arguments.member, arguments.name)
    plan = witness_plan(arguments.group, arguments.name, texts, arguments.timing)
    own = plan.members[arguments.name]
    listeners = await sockets.open_port(arguments.host, own.port, "--member")
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            await nursery.start(run_witness, plan, arguments.data, arguments.certs, listeners)
            print(f"ready witness={own.host}:{own.port} group={plan.group}", flush=True)
            give_back()
            nursery.start_soon(_stay_small)
            await anext(signals)
            nursery.cancel_scope.cancel()
