"""Apache's name server options: which of ours they are, and all of them with the box's values.

Source: RocketMQ 4.9.8 NamesrvConfig, NettyServerConfig; the order is that of `mqnamesrv -p`.
"""

from collections.abc import Callable, Mapping

from appliance.configuration.settings import Config
from storage_driver.named_tuple import NamedTuple

MEANT = {
    "listenPort": "listen.namesrv_port",
    "bindAddress": "listen.host",
    "orderMessageEnable": "namesrv.order_messages",
    "serverChannelMaxIdleTimeSeconds": "limits.idle_s",
}
_FROM_CONFIG: dict[str, Callable[[Config], object]] = {
    "listenPort": lambda config: config.listen.namesrv_port,
    "bindAddress": lambda config: config.listen.host,
    "orderMessageEnable": lambda config: config.namesrv.order_messages,
    "serverChannelMaxIdleTimeSeconds": lambda config: config.limits.idle_s,
}
_FIXED: dict[str, object] = {
    "rocketmqHome": "",
    "kvConfigPath": "namesrv/kvConfig.json",  # in the data folder
    "configStorePath": "",  # the configuration is never written over the network
    "productEnvName": "center",
    "clusterTest": False,
    "orderMessageEnable": None,
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "listenPort": None,
    "bindAddress": None,
    "serverWorkerThreads": 1,
    "serverCallbackExecutorThreads": 0,
    "serverSelectorThreads": 1,
    "serverOnewaySemaphoreValue": 256,
    "serverAsyncSemaphoreValue": 64,
    "serverChannelMaxIdleTimeSeconds": None,
    "serverSocketSndBufSize": 0,
    "serverSocketRcvBufSize": 0,
    "writeBufferHighWaterMark": 0,
    "writeBufferLowWaterMark": 0,
    "serverSocketBacklog": 1024,
    "serverPooledByteBufAllocatorEnable": True,
    "useEpollNativeSelector": False,
}


class ApacheFile(NamedTuple):
    """What a file for `mqnamesrv -c` means here."""

    settings: Mapping[str, str]  # "table.key" → text of its value
    without_effect: tuple[str, ...]  # Apache's, but the box has no such setting
    unknown: tuple[str, ...]


def read_apache(properties: Mapping[str, str]) -> ApacheFile:
    """Sort the keys of a properties file into those that have a meaning here and those that do not."""
    settings = {MEANT[key]: value for key, value in properties.items() if key in MEANT}
    without = tuple(key for key in properties if key in _FIXED and key not in MEANT)
    unknown = tuple(key for key in properties if key not in _FIXED)
    return ApacheFile(settings, without, unknown)


def namesrv_options(config: Config) -> dict[str, object]:
    """Return every option of `mqnamesrv -p`, in its order, with the value in force."""
    return {key: _FROM_CONFIG[key](config) if key in _FROM_CONFIG else value for key, value in _FIXED.items()}
