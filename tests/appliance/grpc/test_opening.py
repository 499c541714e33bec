"""A box whose libraries are incomplete says so instead of serving half."""

import sys

import pytest
import trio

import appliance.grpc
from appliance.configuration.settings import Config
from appliance.errors import ConfigError
from appliance.grpc.opening import serve_grpc
from netstack.serving.governor import Governor


async def test_a_missing_library_is_an_error_that_names_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(appliance.grpc, "service", raising=False)
    monkeypatch.setitem(sys.modules, "appliance.grpc.service", None)
    with pytest.raises(ConfigError) as failed:
        await serve_grpc(Config(), (), None, Governor(), None)  # type: ignore[arg-type]
    assert "make proto" in str(failed.value)
    await trio.lowlevel.checkpoint()
