"""`rocketbox bench`: how many messages a second a cluster takes and gives, measured by one process of this client."""

import argparse
import os
import resource
import sys
import time
from typing import Any

import trio

from appliance.commands.messaging.cluster import (
    FAILED,
    OK,
    USAGE,
    ProgressLine,
    add_cluster_arguments,
    open_instance,
    print_json,
    run_command,
)
from netstack.client import (
    ClientError,
    ConsumerOptions,
    Instance,
    Message,
    Pending,
    Producer,
    ProducerOptions,
    PushConsumer,
    StartFrom,
)
from netstack.client.admin import Admin
from uplink_spark.bounds import amount, whole

CLEAN_UP_S = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line."""
    parser.epilog = "Prints one JSON object. This client uses one core: its figures are not the limit of the broker."
    parser.add_argument(
        "--topic", metavar="NAME", help="an existing topic, which is kept (default: a new one, deleted afterwards)"
    )
    parser.add_argument("-n", "--messages", type=whole(1), default=50_000, metavar="N")
    parser.add_argument("--size", type=whole(1, 16 << 20), default=1024, metavar="BYTES")
    parser.add_argument("--window", type=whole(1), default=512, help="sends in flight (default: 512)")
    parser.add_argument("--batch", type=whole(1), default=1, metavar="N", help="messages per send (default: 1)")
    parser.add_argument("--pull-batch", type=whole(1), default=64, metavar="N", help="messages per pull (default: 64)")
    parser.add_argument(
        "--only", choices=("produce", "consume"), help="only this half; consume needs --topic with messages"
    )
    parser.add_argument("--timeout", type=amount(), default=60.0, metavar="S", help="for each half (default: 60)")
    add_cluster_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure; return 0, or 1 when messages failed or did not come back, 2 when there is nothing to consume."""
    if arguments.only == "consume" and not arguments.topic:
        print("rocketbox: --only consume needs --topic with messages in it", file=sys.stderr)
        return USAGE
    return run_command(_main, arguments)


async def _main(arguments: argparse.Namespace) -> int:
    own, arguments.topic = not arguments.topic, arguments.topic or f"bench_{os.getpid()}_{time.time_ns():x}"
    arguments.group = f"rocketbox_bench_{os.getpid()}_{time.time_ns()}"
    figures: dict[str, Any] = {"messages": arguments.messages, "size": arguments.size, "topic": arguments.topic}
    figures["failed"] = 0
    good = True
    async with open_instance(arguments) as instance:
        try:
            if arguments.only != "consume":
                good &= await _produce(instance, arguments, figures)
            if arguments.only != "produce":
                good &= await _consume(instance, arguments, figures)
        finally:
            with trio.move_on_after(CLEAN_UP_S, shield=True):  # after Ctrl-C, too
                await _clean_up(instance, arguments, figures, topic=own and arguments.only != "produce")
    figures["rss_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, 1)
    print_json(figures)
    return OK if good else FAILED


async def _clean_up(instance: Instance, arguments: argparse.Namespace, figures: dict[str, Any], *, topic: bool) -> None:
    """Delete the group and, if it is the bench's own and nobody is to read it yet, the topic."""
    admin = Admin(instance)
    try:
        if arguments.only != "produce":
            await admin.delete_group(arguments.group)
        if topic:
            await admin.delete_topic(arguments.topic)
    except ClientError as error:
        figures["left_behind"] = f"{arguments.topic}, {arguments.group}: {error}"


async def _produce(instance: Instance, arguments: argparse.Namespace, figures: dict[str, Any]) -> bool:
    progress = ProgressLine("messages sent")
    body, failed = os.urandom(arguments.size // 2).hex().encode().ljust(arguments.size, b"."), 0
    options = ProducerOptions(window=arguments.window, timeout_s=10.0, compress_from=1 << 30)
    message = Message(arguments.topic, body)
    async with Producer("rocketbox_bench", instance=instance, options=options) as producer:
        await producer.send(Message(arguments.topic, b"warm"))
        began, cpu = time.perf_counter(), time.process_time()
        under_way: list[Pending] = []
        with trio.move_on_after(arguments.timeout):
            for _ in range(0, arguments.messages, arguments.batch):
                if arguments.batch > 1:
                    under_way.append(await producer.submit_batch([message] * arguments.batch))
                else:
                    under_way.append(await producer.submit(message))
                progress.add(arguments.batch)
                if len(under_way) >= 4 * arguments.window:
                    failed += await _failures(under_way[: -arguments.window], figures)
                    del under_way[: -arguments.window]
            await producer.wait_sent()
        seconds = time.perf_counter() - began
        answered = [pending for pending in under_way if pending.done]
        failed += await _failures(answered, figures)
    progress.end()
    if late := (len(under_way) - len(answered)) * arguments.batch:
        figures["first_failure"] = f"{late} messages were not acknowledged within {arguments.timeout:g} s"
    figures["failed"] = failed * arguments.batch + late
    figures["produced_per_s"] = round((progress.count - figures["failed"]) / seconds)
    figures["produce_cpu"] = round((time.process_time() - cpu) / seconds, 3)
    return figures["failed"] == 0 and progress.count >= int(arguments.messages)


async def _failures(under_way: list[Pending], figures: dict[str, Any]) -> int:
    """Return how many failed; the first reason is kept."""
    failed = 0
    for pending in under_way:
        try:
            await pending.wait()
        except ClientError as error:
            failed += 1
            figures.setdefault("first_failure", str(error))
    return failed


async def _consume(instance: Instance, arguments: argparse.Namespace, figures: dict[str, Any]) -> bool:
    progress = ProgressLine("messages consumed")
    options = ConsumerOptions(start_from=StartFrom.FIRST, pull_batch=arguments.pull_batch)
    first = last = began_cpu = 0.0
    wanted = int(arguments.messages) - int(figures["failed"])
    async with PushConsumer(
        arguments.group, instance=instance, options=options, topics={arguments.topic: "*"}
    ) as consumer:
        with trio.move_on_after(arguments.timeout):
            while progress.count < wanted:
                messages = await consumer.take(32)
                if not first:
                    first, began_cpu = time.perf_counter(), time.process_time()
                for message in messages:
                    consumer.ack(message)
                progress.add(len(messages))
            last = time.perf_counter()
    progress.end()
    last = last or time.perf_counter()
    figures["consumed_per_s"] = round(progress.count / max(1e-9, last - first)) if first else 0
    figures["consume_cpu"] = round((time.process_time() - began_cpu) / max(1e-9, last - first), 3) if first else 0
    return progress.count >= wanted
