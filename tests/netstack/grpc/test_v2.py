import subprocess
import sys

import pytest

ASKED = """
import sys
from netstack.grpc.v2 import UNUSED
from netstack.grpc.v2.definition_pb2 import Settings
from netstack.grpc.v2.service_pb2 import SendMessageResponse

settings = Settings()
settings.user_agent.version = "5.0"
assert Settings.FromString(settings.SerializeToString()) == settings
SendMessageResponse().entries.add().message_id = "1"
print("google.protobuf.text_format" in sys.modules)
print(sys.modules[UNUSED]._AttachFieldHelpers.__name__, "google.protobuf.text_format" in sys.modules)
print(str(settings).split())
"""


@pytest.mark.slow
def test_the_librarys_implementation_in_python_is_loaded_by_who_asks_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", ASKED], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "False",
        "_AttachFieldHelpers True",
        "['user_agent', '{', 'version:', '\"5.0\"', '}']",
    ]
