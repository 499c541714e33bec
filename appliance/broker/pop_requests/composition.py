"""Composes the handlers of POP, made with its first request."""

from appliance.broker.filter.kept_filters import KeptFilters
from appliance.broker.pop.engine import PopEngine, PopTables
from appliance.broker.pop_requests.acknowledging import Acknowledging
from appliance.broker.pop_requests.checks import PopChecks
from appliance.broker.pop_requests.looking import Looking
from appliance.broker.pop_requests.modes import Modes
from appliance.broker.pop_requests.receiving import Receiving
from appliance.broker.tables.request_modes import RequestModes
from appliance.requests import Handle, merged
from storage_driver.interfaces import Queues


def pop_handlers(
    engine: PopEngine, checks: PopChecks, tables: PopTables, modes: RequestModes, store: Queues
) -> dict[int, Handle]:
    """Return request code -> handler."""
    filters = KeptFilters()
    return merged(
        Receiving(engine, checks, tables.arrivals, filters).handlers(),
        Acknowledging(engine, checks, store, tables.topics).handlers(),
        Looking(engine, checks, tables.arrivals, filters).handlers(),
        Modes(modes, tables.topics, tables.groups).handlers(),
    )
