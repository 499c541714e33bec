"""The page's addresses: who may see what, and which template shows it.

This machine reads it without a login; other machines need the token, and so does everybody who changes something.
Nothing is loaded from anywhere else, and the Content-Security-Policy says so to the browser.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import trio
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from appliance.access.page_token import is_token, read_token
from appliance.admin import AdminRequest
from appliance.box_view import BoxView
from appliance.broker.tables.topics import DEAD_PREFIX
from appliance.metrics.answer import has_bearer, known_names
from appliance.page import search, words
from appliance.page.changes import Ask, ChangeRefused, Changes
from appliance.page.detail import group_values, topic_values
from appliance.page.history import CurveHistory
from appliance.page.overview import Overview
from appliance.page.tickets import Tickets, TokenBucket
from appliance.uplink_admin import uplink_actions
from netstack.web.http import HTML, Request, Respond, Response, host_is_known, plain
from netstack.web.page_turns import PageTurns

log = logging.getLogger("appliance.page")
HERE = Path(__file__).parent
TOO_MANY, MOST_LOGGED = "too many changes at once: wait a few seconds", 300
COOKIE = "rocketbox"
COOKIE_S = 30 * 86_400
FILTERS = (words.count, words.rate, words.size, words.span, words.moment, words.commands)
View = Callable[[Request], Awaitable[Response]]


class Desk:
    """Takes changes: planned, shown, confirmed once, made, logged; not too many of them."""

    def __init__(self, changes: Changes, now_s: Callable[[], float]) -> None:
        self._changes, self._tickets, self.pace = changes, Tickets(now_s), TokenBucket(now_s)

    async def plan(self, do: str, form: dict[str, str]) -> dict[str, Any]:
        """Return what the page of confirmation shows. Raises ChangeRefused."""
        change = await self._changes.plan(do, form)
        return {"change": change, "ticket": self._tickets.issue(change)}

    async def confirm(self, ticket: str, peer: str) -> tuple[int, dict[str, Any]]:
        """Make the change of a ticket; return a status and what the page shows."""
        change = self._tickets.take(ticket)
        if change is None:
            said = "This was already confirmed, or five minutes have passed. Nothing was done."
            return 409, {"title": "Not done", "said": said, "back": "/"}
        facts = " ".join(f"{name}={value!r}" for name, value in change.facts)[:MOST_LOGGED]
        try:
            said = await change.run()
        except ChangeRefused as exc:
            reason = str(exc)[:MOST_LOGGED]
            log.warning("event=page_change_failed do=%s by=%s asked=%r reason=%r", change.do, peer, facts, reason)
            return 409, {"title": "Not done", "said": str(exc), "back": change.back}
        log.info("event=page_change do=%s by=%s asked=%r said=%r", change.do, peer, facts, said)
        return 200, {"title": "Done", "said": said, "back": change.back}


class Page:
    """Answers browsers."""

    def __init__(self, watched: BoxView, history: CurveHistory, ask: Ask) -> None:
        self._desk, self._turns = Desk(Changes(watched, ask), trio.current_time), PageTurns()
        self._watched, self._overview = watched, Overview(watched, history)
        self._names = known_names(watched)
        self._style, self._script = (HERE / "style.css").read_text(), (HERE / "script.js").read_text()
        loader = FileSystemLoader(HERE)
        self._templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, auto_reload=False)
        self._templates.filters.update({each.__name__: each for each in FILTERS})
        self._headers = secure_headers(self._style, self._script)
        self._views: dict[str, View] = {
            "/": self._first,
            "/now": self._now,
            "/health.json": self._health,
            "/topic": self._topic,
            "/group": self._group,
            "/messages": self._messages,
            "/message": self._message,
            "/login": self._ask,
            "/create": self._create,
        }
        self._changes: dict[str, View] = {
            "/login": self._log_in,
            "/logout": self._log_out,
            "/uplink": self._uplink,
            "/plan": self._plan,
            "/confirm": self._confirm,
        }

    async def respond(self, request: Request) -> Response:
        """Return the answer to one request: one after the other, a wrong token after a second."""
        async with self._turns.turn():
            response = await self._answer(request)
        if request.path == "/login" and request.method == "POST" and response.status == 401:
            await trio.sleep(1)
        return response

    async def _answer(self, request: Request) -> Response:
        if not host_is_known(request.headers.get("host", ""), self._names):
            return plain(421, "this box has no such name: use its address, or add the name to page.names")
        if request.method == "POST":
            return await self._change(request)
        if request.method not in ("GET", "HEAD"):
            return plain(405, "only GET and POST", ("Allow", "GET, HEAD, POST"))
        view = self._views.get(request.path)
        if view is None:
            return self._show("message_missing.html", {"said": "There is no such page."}, status=404)
        if not request.near and not await self._knows_token(request):
            return self._show("login.html", {"wrong": False, "back": request.path}, status=401)
        return await view(request)

    async def _change(self, request: Request) -> Response:
        change = self._changes.get(request.path)
        if change is None:
            return plain(404, "nothing can be changed here")
        if not same_origin(request):
            return plain(403, "this request came from another site")
        if request.path != "/login" and not await self._knows_token(request):
            return self._show("login.html", {"wrong": False, "back": "/"}, status=401)
        if request.path in ("/uplink", "/plan", "/confirm") and not self._desk.pace.allows():
            return plain(429, TOO_MANY, ("Retry-After", "5"))
        return await change(request)

    async def _knows_token(self, request: Request) -> bool:
        if await has_bearer(self._watched, request):
            return True
        given = request.cookie(COOKIE)
        return bool(given) and is_token(given, session_of(await self._token()))

    async def _token(self) -> str:
        return await trio.to_thread.run_sync(read_token, self._watched.data)

    # views

    async def _first(self, request: Request) -> Response:
        return self._show("first.html", await self._values(request))

    async def _now(self, request: Request) -> Response:
        return self._show("now.html", await self._values(request))

    async def _values(self, request: Request) -> dict[str, Any]:
        values = await self._overview.values(request.query.get("reach", ""))
        return {**values, "known": await self._knows_token(request)}

    async def _health(self, request: Request) -> Response:
        board = self._watched.board
        state = board.snapshot() if board else {"state": "starting"}
        return Response(200, json.dumps(state).encode(), "application/json", self._headers)

    async def _topic(self, request: Request) -> Response:
        values = await topic_values(self._watched, request.query.get("name", ""))
        if values is None:
            return self._missing("There is no such topic.")
        return self._show("topic.html", {**values, "known": await self._knows_token(request)})

    async def _group(self, request: Request) -> Response:
        values = await group_values(self._watched, request.query.get("name", ""))
        if values is None:
            return self._missing("There is no such group.")
        return self._show("group.html", {**values, "known": await self._knows_token(request)})

    async def _messages(self, request: Request) -> Response:
        asked = {name: request.query.get(name, "").strip() for name in search.SearchQuery._fields}
        wanted = search.SearchQuery(**asked)
        outcome = search.SearchResult([], "") if wanted.empty else await search.search(self._watched, wanted)
        return self._show("messages.html", {"wanted": wanted, "outcome": outcome})

    async def _message(self, request: Request) -> Response:
        found = await search.at_place(self._watched, request.query.get("at", ""))
        if found is None:
            return self._missing("That message is no longer on this box: its segment was deleted.")
        known = found.topic.startswith(DEAD_PREFIX) and await self._knows_token(request)
        return self._show("message.html", {**search.setting_out(found), "resend": known})

    async def _ask(self, request: Request) -> Response:
        await trio.lowlevel.checkpoint()
        return self._show("login.html", {"wrong": False, "back": "/"})

    async def _create(self, request: Request) -> Response:
        if not await self._knows_token(request):
            return self._show("login.html", {"wrong": False, "back": "/"}, status=401)
        return self._show("create.html", {})

    def _missing(self, said: str) -> Response:
        return self._show("message_missing.html", {"said": said}, status=404)

    # changes

    async def _log_in(self, request: Request) -> Response:
        given, token = request.form().get("token", "").strip(), await self._token()
        if not is_token(given, token):
            return self._show("login.html", {"wrong": True, "back": "/"}, status=401)
        cookie = f"{COOKIE}={session_of(token)}; HttpOnly; SameSite=Strict; Path=/; Max-Age={COOKIE_S}"
        return Response(303, b"", HTML, (("Location", "/"), ("Set-Cookie", cookie), *self._headers))

    async def _log_out(self, request: Request) -> Response:
        gone = f"{COOKIE}=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0"
        return Response(303, b"", HTML, (("Location", "/"), ("Set-Cookie", gone), *self._headers))

    async def _uplink(self, request: Request) -> Response:
        """Pause, resume or hurry the shipping."""
        uplink, what = self._watched.uplink, request.form().get("do", "")
        if uplink is None or what not in ("pause", "resume", "ship-now"):
            return plain(400, "do must be pause, resume or ship-now, on a box with an uplink")
        actions = uplink_actions(uplink, self._watched.data / "uplink.secret")
        await actions[f"uplink.{what}"](AdminRequest({}, None))
        log.info("event=page_change do=uplink_%s by=%s", what, request.peer)
        return Response(303, b"", HTML, (("Location", "/#uplink"), *self._headers))

    async def _plan(self, request: Request) -> Response:
        """Show what a form would change, with a ticket that confirms exactly this."""
        form = request.form()
        try:
            values = await self._desk.plan(form.get("do", ""), form)
        except ChangeRefused as exc:
            return self._show("changed.html", {"title": "Not possible", "said": str(exc), "back": "/"}, status=400)
        return self._show("confirm.html", values)

    async def _confirm(self, request: Request) -> Response:
        status, values = await self._desk.confirm(request.form().get("ticket", ""), request.peer)
        return self._show("changed.html", values, status=status)

    def _show(self, template: str, values: dict[str, Any], *, status: int = 200) -> Response:
        page = self._templates.get_template(template).render(
            values, style=Markup(self._style), script=Markup(self._script), name=self._watched.config.box.name
        )
        return Response(status, page.encode(), HTML, self._headers)


def page_answer(watched: BoxView, history: CurveHistory, ask: Ask) -> Respond:
    """Return what answers browsers."""
    return Page(watched, history, ask).respond


def session_of(token: str) -> str:
    """Return what the browser keeps instead of the token: of no use once the token is replaced."""
    return hmac.new(token.encode(), b"rocketbox page", "sha256").hexdigest()


def same_origin(request: Request) -> bool:
    """Tell whether a browser sent this from a page of this box, or a program without an origin did."""
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    try:
        return origin is None or urlsplit(origin).netloc == request.headers.get("host", "")
    except ValueError:
        return False  # no address at all


def secure_headers(style: str, script: str) -> tuple[tuple[str, str], ...]:
    """Return the headers of every page: nothing from elsewhere, no frame, no script but the page's own."""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    policy = (
        f"default-src 'none'; style-src {source(style)}; script-src {source(script)}; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return (
        ("Content-Security-Policy", policy),
        ("Referrer-Policy", "same-origin"),
        ("X-Frame-Options", "DENY"),
        ("Cross-Origin-Opener-Policy", "same-origin"),
        ("Cross-Origin-Resource-Policy", "same-origin"),
    )
