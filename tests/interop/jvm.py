"""One forked JVM on the official client's jars, spoken to through py4j: Python calls it and is called back by it."""

import base64
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterable
from typing import Any

from py4j.java_gateway import CallbackServerParameters, GatewayParameters, JavaGateway, launch_gateway

from tests.interop import jars

QUIET = """<configuration><root level="OFF"/></configuration>"""


class Jvm:
    """A running JVM with one version of the client. `jvm.cls(name)` is a class, `jvm.new(name, *args)` an object."""

    def __init__(self, version: str, options: Iterable[str] = (), artifact: str = "rocketmq-tools") -> None:
        self.version = version
        home = jars.CACHE / f"home-{version}"
        (home / "log").mkdir(parents=True, exist_ok=True)
        (home / "logback.xml").write_text(QUIET)
        # Offsets of broadcasting consumers that an earlier session left would be taken up by those of the same names.
        self._offsets = tempfile.TemporaryDirectory(prefix="rocketmq-offsets-")
        path = [*jars.fetch(version, artifact), jars.spark_jar("py4j")]
        options = [
            *options,
            "-Xmx768m",
            f"-Duser.home={home}",
            f"-Dlogback.configurationFile={home / 'logback.xml'}",
            f"-Drocketmq.logback.configurationFile={home / 'logback.xml'}",
            f"-Drocketmq.client.logRoot={home / 'log'}",
            f"-Drocketmq.client.localOffsetStoreDir={self._offsets.name}",
            *jars.java_options(),
            "--add-opens=java.base/java.nio=ALL-UNNAMED",
            "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
        ]
        port, self.process = launch_gateway(
            jarpath=str(path[-1]),
            classpath=":".join(map(str, path)),
            javaopts=options,
            java_path=jars.java(),
            die_on_exit=True,
            return_proc=True,
            redirect_stdout=subprocess.DEVNULL,
            redirect_stderr=subprocess.DEVNULL,
        )
        self.gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auto_convert=True),
            callback_server_parameters=CallbackServerParameters(port=0),
        )
        server = self.gateway.get_callback_server()
        own = self.gateway.java_gateway_server
        own.resetCallbackClient(own.getCallbackClient().getAddress(), server.get_listening_port())

    def cls(self, name: str) -> Any:
        """Return a class by its name below org.apache.rocketmq, or by its full name when that begins with java."""
        full = name if name.startswith("java") else f"org.apache.rocketmq.{name}"
        found: Any = self.gateway.jvm
        for part in full.split("."):
            found = getattr(found, part)
        return found

    def new(self, name: str, *args: Any) -> Any:
        return self.cls(name)(*args)

    def message(self, topic: str, body: bytes, *, tags: str = "", keys: str = "", **properties: str) -> Any:
        """Return a Message of the client."""
        message = self.new("common.message.Message", topic, tags, keys, body)
        for name, value in properties.items():
            message.putUserProperty(name, value)
        return message

    def messages(self, topic: str, bodies: Iterable[bytes]) -> Any:
        """Return a Java list of Messages, by one call: a call for each costs a millisecond."""
        rows = [{"topic": topic, "body": base64.b64encode(body).decode()} for body in bodies]
        java = self.gateway.jvm
        kind = java.java.lang.Class.forName("org.apache.rocketmq.common.message.Message")
        return java.com.alibaba.fastjson.JSON.parseArray(json.dumps(rows), kind)

    def to_json(self, value: Any) -> str:
        """Return what fastjson, which comes with the client, makes of a Java object."""
        fastjson, new_array = self.gateway.jvm.com.alibaba.fastjson, self.gateway.new_array
        plain = fastjson.serializer.SimplePropertyPreFilter(new_array(self.gateway.jvm.java.lang.String, 0))
        plain.getExcludes().add("deliverTimeMs")  # which 5.1 cannot tell of a message without one
        features = new_array(fastjson.serializer.SerializerFeature, 0)
        return str(fastjson.JSON.toJSONString(value, plain, features))

    def list_of(self, items: Iterable[Any]) -> Any:
        result = self.cls("java.util.ArrayList")()
        for item in items:
            result.add(item)
        return result

    def callback(self, interface: str, **methods: Callable[..., Any]) -> Any:
        """Return an object that implements a Java interface by Python functions."""
        inner = type("Java", (), {"implements": [f"org.apache.rocketmq.{interface}"]})
        methods.setdefault("toString", lambda: f"{interface} in Python")
        members: dict[str, Any] = {name: _method(function) for name, function in methods.items()}
        return type("Callback", (), {**members, "Java": inner})()

    def close(self) -> None:
        self.gateway.shutdown()
        self.process.kill()
        self.process.wait()
        self._offsets.cleanup()


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    def called(_self: object, *args: Any) -> Any:
        return function(*args)

    return called
