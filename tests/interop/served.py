"""What gRPC clients are run against: a box with its port open, or Apache's proxy (`apache_proxy.py`)."""

from pathlib import Path
from typing import Protocol

from tests.interop.apache_proxy import VERSION, new_group, new_topic
from tests.interop.box import Box
from tests.interop.wire import make_topic
from tests.ports import free_port

APACHE = f"Apache {VERSION}"
QUICK = "[broker]\ntransaction_timeout_s = 1\ntransaction_check_s = 2\n"


class GrpcBox(Box):
    """A box with its gRPC port open."""

    apache = False

    def __init__(self, data: Path, config: str = QUICK) -> None:
        self.grpc_port = free_port()
        super().__init__(data, config=f"[grpc]\nport = {self.grpc_port}\n{config}")

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.grpc_port}"

    def topic(self, what: str, queues: int = 4) -> str:
        """Return the name of a new topic."""
        return new_topic(self.broker, what, queues)

    def group(self, what: str) -> str:
        """Return the name of a new consumer group."""
        return new_group(self.broker, what)

    def make_topic(self, name: str, queues: int = 4) -> None:
        make_topic(self.broker, name, queues)


class Served(Protocol):
    """A box, or Apache's proxy: where its parts listen, how topics and groups are made there, its end and start."""

    @property
    def apache(self) -> bool: ...
    @property
    def endpoint(self) -> str: ...
    @property
    def namesrv(self) -> str: ...
    @property
    def broker(self) -> str: ...
    def topic(self, what: str, queues: int = 4) -> str: ...
    def group(self, what: str) -> str: ...
    def start(self) -> None: ...
    def kill(self) -> None: ...
