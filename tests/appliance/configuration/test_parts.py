import pytest

from appliance.configuration.config import HostFacts, load_config
from appliance.configuration.parts import page_hint

FACTS = HostFacts(1 << 40, "", "host")


@pytest.mark.parametrize(
    ("page", "came_to", "said"),
    [
        ("", "127.0.0.1", "is off: set page.port"),
        ("port = 8080", "127.0.0.1", "page: http://127.0.0.1:8080/"),
        ("port = 8080", "10.0.0.5", "on the box itself: http://127.0.0.1:8080/"),
        ('port = 8080\nhost = "0.0.0.0"', "10.0.0.5", "page: http://10.0.0.5:8080/"),
        ('port = 8080\nhost = "::"', "fd00::5", "page: http://[fd00::5]:8080/"),
        ('port = 8080\nhost = "10.0.0.6"', "10.0.0.5", "page: http://10.0.0.6:8080/"),
    ],
)
def test_a_browser_at_another_port_is_told_where_the_page_is(page: str, came_to: str, said: str) -> None:
    config = load_config(f"[page]\n{page}\n", facts=FACTS)
    assert page_hint(config.page)(came_to).endswith(f"{said}.\n" if "off" in said else f"{said}\n")
