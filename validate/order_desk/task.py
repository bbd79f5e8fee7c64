"""A task of the desk, and the tool calls that tasks are made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from validate.order_desk.catalogue import TOOLS

Cell = tuple[str, str | tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One tool call of a task's reference way."""

    tool: str
    arguments: Mapping[str, Any]

    @property
    def writes(self) -> bool:
        """Whether the tool changes the world."""
        return not TOOLS[self.tool].hints.get("readOnlyHint", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A customer's request.

    Parameters
    ----------
    request : str
        The first and only message of the customer; every fact and the consent are in it.
    actions : tuple of Action
        One right way, reads included.
    reply : str
        A right last message.
    changed : mapping
        (table, key) to the columns that must differ from the seeded data, with their values.
    added : tuple of (table, row)
        Rows that must be new; columns that a right answer fills in its own way are left out.
    """

    id: str
    request: str
    actions: tuple[Action, ...]
    reply: str
    changed: Mapping[Cell, Mapping[str, object]] = field(default_factory=dict)
    added: tuple[tuple[str, Mapping[str, object]], ...] = ()


def who(email: str) -> Action:
    """Find the customer."""
    return Action(tool="find_customer", arguments={"email": email})


def order(number: str) -> Action:
    """Look an order up."""
    return Action(tool="get_order", arguments={"order_id": number})


def orders(customer: str) -> Action:
    """List a customer's orders."""
    return Action(tool="list_orders", arguments={"customer_id": customer})


def policy(topic: str) -> Action:
    """Read the rules."""
    return Action(tool="get_policy", arguments={"topic": topic})


def stock(product: str) -> Action:
    """Look into the stock."""
    return Action(tool="check_stock", arguments={"product_id": product})


def variants(product: str) -> Action:
    """Look up a product's variants."""
    return Action(tool="get_product", arguments={"product_id": product})


def cancel(number: str, reason: str) -> Action:
    """Cancel an order."""
    return Action(tool="cancel_order", arguments={"order_id": number, "reason": reason})


def move(number: str, street: str, city: str, postcode: str) -> Action:
    """Change an order's address."""
    address = {"street": street, "city": city, "postcode": postcode}
    return Action(tool="change_address", arguments={"order_id": number, **address})


def refund(number: str, line: int, reason: str) -> Action:
    """Refund a line."""
    return Action(tool="refund_item", arguments={"order_id": number, "line": line, "reason": reason})


def exchange(number: str, line: int, product: str) -> Action:
    """Exchange a line."""
    return Action(tool="exchange_item", arguments={"order_id": number, "line": line, "product_id": product})


def ticket(customer: str, number: str, category: str, summary: str) -> Action:
    """Open a ticket."""
    arguments = {"customer_id": customer, "order_id": number, "category": category, "summary": summary}
    return Action(tool="create_ticket", arguments=arguments)
