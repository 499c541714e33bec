"""The clusters that the client is tried against: our box, and Apache's own broker where Maven is there."""

import os
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from itertools import count
from typing import Any

import pytest
import trio

from netstack.client import Instance, Message, NoRoute, Producer, ProducerOptions
from netstack.client.consume.offsets import max_offset
from netstack.client.routes import TopicRoute
from tests.interop import apache, jars
from tests.interop.box import Box
from tests.waiting import until_it

CI_VERSION, SOAK_VERSION = "4.9.7", "5.5.0"  # of Apache's broker: in every run, and in `make soak`
APACHE = (
    pytest.param(CI_VERSION, marks=pytest.mark.slow, id="apache"),
    pytest.param(SOAK_VERSION, marks=pytest.mark.soak, id=f"apache-{SOAK_VERSION}"),
)
# The same for a test of whose kind enough runs against Apache's broker in every run.
BOX_AND_LATER_APACHE = ("box", *(pytest.param(each.values[0], marks=pytest.mark.soak, id=each.id) for each in APACHE))
PATIENT = ProducerOptions(timeout_s=60)  # a broker that has just started on a busy machine takes its first seconds
_names = count()


@pytest.fixture(scope="session")
def own_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """One box for all tests of this folder."""
    box = Box(tmp_path_factory.mktemp("client_box") / "data")
    box.start()
    yield box
    assert box.stop() == 0, box.log_tail()


@pytest.fixture(scope="session")
def apache_clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Give the NameServer of Apache's cluster of a version: one of each per session, started when first asked for."""
    started: dict[str, str] = {}
    missing: dict[str, str] = {}
    with ExitStack() as running:

        def namesrv_of(version: str) -> str:
            if version not in started and version not in missing:
                home = tmp_path_factory.mktemp("apache") / "home"
                try:
                    started[version] = running.enter_context(apache.apache_cluster(version, home))
                except jars.Unavailable as error:
                    missing[version] = str(error)
            if version in missing:
                pytest.skip(missing[version])
            return started[version]

        yield namesrv_of


@pytest.fixture(scope="session")
def jvm4() -> Iterator[Any]:
    """A JVM with the official 4.9.7 client."""
    pytest.importorskip("py4j")
    from tests.interop import jars
    from tests.interop.jvm import Jvm

    try:
        jvm = Jvm("4.9.7")
    except jars.Unavailable as error:
        pytest.skip(str(error))
    yield jvm
    jvm.close()


@pytest.fixture(params=["box", *APACHE])
def namesrv(request: pytest.FixtureRequest) -> str:
    """The NameServer address of a cluster; every test that asks for it runs against the box and Apache's brokers."""
    if request.param == "box":
        return str(request.getfixturevalue("own_cluster").namesrv)
    return str(request.getfixturevalue("apache_clusters")(request.param))


@pytest.fixture
def topic() -> str:
    """A topic, and stem of group names, that no other test of this run uses."""
    return f"client_{os.getpid()}_{next(_names)}"


@asynccontextmanager
async def _cluster(namesrv: str) -> AsyncGenerator[tuple[Instance, Producer]]:
    async with (
        Instance(namesrv) as instance,
        Producer(f"p_{next(_names)}", instance=instance, options=PATIENT) as producer,
    ):
        yield instance, producer


@pytest.fixture
def cluster(namesrv: str) -> object:
    """`async with cluster() as (instance, producer)`."""
    return lambda: _cluster(namesrv)


async def fill(producer: Producer, topic: str, number: int) -> list[bytes]:
    """Send numbered messages and return their bodies, once all are stored."""
    bodies = [b"%d" % each for each in range(number)]
    for pending in [await producer.submit(Message(topic, body), timeout_s=PATIENT.timeout_s) for body in bodies]:
        await pending.wait()
    return bodies


async def arrived(instance: Instance, topic: str, number: int) -> None:
    """Return once so many messages can be pulled: Apache's broker acknowledges one before its queue has it."""
    queues = (await known(instance, topic)).subscribe

    async def all_there() -> bool:
        return sum([await max_offset(instance, queue) for queue in queues]) >= number

    await until_it(all_there)


async def known(instance: Instance, topic: str) -> TopicRoute:
    """Return the route once the NameServer has it: Apache's broker registers a new topic after the first message."""
    with trio.fail_after(60):
        while True:
            try:
                return await instance.refresh(topic)
            except NoRoute:
                await trio.sleep(0.02)
