"""Asks a box at a serial port what needs no owner: its health, its findings."""

import argparse
from collections.abc import Mapping
from typing import Any

from appliance.device.bench_console import Console, run_until_interrupted
from appliance.device.provisioning_run import find_box
from provisioning.host import BenchConversation, keep_trying


def ask_over_serial(arguments: argparse.Namespace, operation: str) -> dict[str, Any]:
    """Return the answer of the box at `--port`, or at the only adapter. Raises ProvisioningError."""
    answer: dict[str, Any] = {}
    run_until_interrupted(_ask, arguments, operation, answer)
    return answer


async def _ask(arguments: argparse.Namespace, operation: str, answer: dict[str, Any]) -> int:
    found = await find_box(arguments, Console(as_json=arguments.json))

    async def work(talk: BenchConversation, identity: Mapping[str, Any]) -> None:
        answer.update(await talk.request(operation))

    await keep_trying(found.port, work, baud=arguments.baud, serial=str(found.identity["serial"]))
    return 0
