"""What admin.sock may ask of a member of a group: how it stands, and orders about who leads."""

from collections.abc import Awaitable, Callable
from functools import partial

import trio

from appliance.admin import Action, AdminRefused, AdminRequest
from appliance.group.driver import GroupDriver, GroupRefused

SERVES_S = 5.0  # from an election to the first message


def group_actions(driver: GroupDriver) -> dict[str, Action]:
    """Return name → action."""
    return {
        "group.status": partial(_status, driver),
        "group.promote": partial(_promote, driver),
        "group.demote": partial(_ordered, driver, driver.orders.demote),
        "group.solo": partial(_ordered, driver, driver.orders.solo),
        "group.resync": partial(_resync, driver),
        "group.transfer": partial(_transfer, driver),
        "group.hand_over": partial(_hand_over, driver),
        "group.join": partial(_join, driver),
        "group.remove": partial(_remove, driver),
        "group.leave": partial(_ordered, driver, driver.orders.leave),
    }


def group_status(driver: GroupDriver) -> dict[str, object]:
    """Return how a member stands, as plain values."""
    state, diverged = driver.leadership.current, driver.view.divergence()
    return {
        "member": driver.member,
        "role": state.role,
        "serves": state.serves,
        "term": state.term,
        "leader": state.leader,
        "leader_address": state.address,
        "members": [each.to_json() for each in driver.view.members()],
        **driver.view.copies().to_json(),
        "diverged": diverged._asdict() if diverged else None,
        "alone": [each._asdict() for each in driver.view.alone()],
    }


async def _status(driver: GroupDriver, question: AdminRequest) -> object:
    await trio.lowlevel.checkpoint()
    return group_status(driver)


async def _promote(driver: GroupDriver, question: AdminRequest) -> object:
    loss = question.values.get("accept_loss") is True
    await _ordered(driver, partial(driver.orders.promote, accept_loss=loss), question)
    with trio.move_on_after(SERVES_S):
        await driver.leadership.wait_for(lambda state: state.serves)
    return group_status(driver)


async def _resync(driver: GroupDriver, question: AdminRequest) -> object:
    discard = question.values.get("discard") is True
    return await _ordered(driver, partial(driver.orders.resync, discard=discard), question)


async def _transfer(driver: GroupDriver, question: AdminRequest) -> object:
    return await _ordered(driver, partial(driver.orders.transfer, str(question.values.get("to", ""))), question)


async def _hand_over(driver: GroupDriver, question: AdminRequest) -> object:
    try:
        to = await driver.orders.hand_over()
    except GroupRefused as exc:
        raise AdminRefused(str(exc)) from exc
    return {**group_status(driver), "to": to}


async def _remove(driver: GroupDriver, question: AdminRequest) -> object:
    return await _ordered(driver, partial(driver.orders.remove, str(question.values.get("member", ""))), question)


async def _join(driver: GroupDriver, question: AdminRequest) -> object:
    try:
        waits = await driver.orders.join(str(question.values.get("member", "")))
    except GroupRefused as exc:
        raise AdminRefused(str(exc)) from exc
    return {**group_status(driver), "waits": waits}


async def _ordered(driver: GroupDriver, order: Callable[[], Awaitable[None]], question: AdminRequest) -> object:
    """Carry out an order and return how the group stands then. Raises AdminRefused."""
    try:
        await order()
    except GroupRefused as exc:
        raise AdminRefused(str(exc)) from exc
    return group_status(driver)
