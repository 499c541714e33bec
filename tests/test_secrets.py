"""What holds a secret does not show it: values end up in logs, in tracebacks and on screens."""

import pytest

from appliance.broker.access.accounts import Account
from appliance.commands.contexts import Context
from netstack.client import Credentials
from provisioning.host import Bench
from provisioning.session import Owner

SECRET = "not-to-be-seen"


@pytest.mark.parametrize(
    "holder",
    [
        Account("device-1", SECRET, previous=SECRET),
        Context("127.0.0.1:9876", "device-1", SECRET),
        Credentials("device-1", SECRET, SECRET),
        Bench(SECRET.encode(), "acme"),
        Owner("acme", SECRET.encode()),
    ],
    ids=lambda holder: type(holder).__name__,
)
def test_no_value_shows_its_secret(holder: object) -> None:
    assert SECRET not in repr(holder)
    assert SECRET not in f"{holder}"
