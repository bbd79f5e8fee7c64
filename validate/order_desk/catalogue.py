"""The desk's tools as clients see them: names, descriptions, arguments, annotations; and the check of arguments."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hwprofiles.errors import unknown_name
from validate.order_desk import actions
from validate.order_desk.actions import Arguments, Found, Refused
from validate.order_desk.policies import POLICIES


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument: a text with a pattern, a list of choices or a longest length; or a whole number from 1 up."""

    name: str
    about: str
    required: bool = True
    pattern: str | None = None
    choices: tuple[str, ...] = ()
    max_length: int | None = None
    maximum: int | None = None

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        if self.maximum is not None:
            return {"type": "integer", "minimum": 1, "maximum": self.maximum, "description": self.about}
        schema: dict[str, Any] = {"type": "string", "description": self.about}
        if self.pattern:
            schema["pattern"] = f"^{self.pattern}$"
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.max_length:
            schema |= {"minLength": 1, "maxLength": self.max_length}
        return schema

    def fault(self, value: object) -> str | None:
        """What is wrong with a value; None if nothing."""
        if self.maximum is not None:
            good = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= self.maximum
            return None if good else f"{self.name} must be a whole number from 1 to {self.maximum}"
        if not isinstance(value, str):
            return f"{self.name} must be a text"
        if self.pattern and not re.fullmatch(self.pattern, value):
            return f"{self.name} must look like {self.pattern}, not {value[:40]!r}"
        if self.choices and value not in self.choices:
            return str(unknown_name(self.name, value[:40], self.choices))
        if self.max_length and not 1 <= len(value) <= self.max_length:
            return f"{self.name} must have 1 to {self.max_length} characters, has {len(value)}"
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One tool; `hints` are its MCP annotations, absent where a server would leave them out."""

    name: str
    about: str
    run: Callable[[sqlite3.Connection, Arguments], Found]
    arguments: tuple[Argument, ...]
    hints: Mapping[str, bool]

    def schema(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        return {
            "type": "object",
            "properties": {a.name: a.schema() for a in self.arguments},
            "required": [a.name for a in self.arguments if a.required],
            "additionalProperties": False,
        }

    def check(self, given: Mapping[str, Any]) -> None:
        """Raise `Refused` for arguments that do not fit."""
        known = {a.name: a for a in self.arguments}
        for name in given:
            if name not in known:
                raise Refused(f"{self.name}: {unknown_name('argument', name, known)}")
        for name, argument in known.items():
            if name not in given:
                if argument.required:
                    raise Refused(f"{self.name}: {name} is missing")
            elif fault := argument.fault(given[name]):
                raise Refused(f"{self.name}: {fault}")


_ORDER = Argument(name="order_id", about="order number", pattern="O-[0-9]{4}")
_CUSTOMER = Argument(name="customer_id", about="customer number", pattern="C-[0-9]{3}")
_PRODUCT = Argument(name="product_id", about="product number", pattern="P-[0-9]{3}")
_LINE = Argument(name="line", about="line of the order", maximum=99)
_READ = {"readOnlyHint": True}
_DESTRUCTIVE = {"readOnlyHint": False, "destructiveHint": True}


def _text(name: str, about: str, *, required: bool = True, longest: int = 80) -> Argument:
    return Argument(name=name, about=about, required=required, max_length=longest)


def _choice(name: str, about: str, *choices: str, required: bool = True) -> Argument:
    return Argument(name=name, about=about, choices=choices, required=required)


def _maybe(argument: Argument) -> Argument:
    return Argument(name=argument.name, about=argument.about, pattern=argument.pattern, required=False)


_ALL = (
    Tool(name="find_customer", about="Find customers by email, name or both.", run=actions.find_customer, hints=_READ,
         arguments=(_text("email", "email address of the account", required=False),
                    _text("name", "full name", required=False))),
    Tool(name="get_order", about="An order with its status, dates, address and lines.", run=actions.get_order,
         hints=_READ, arguments=(_ORDER,)),
    Tool(name="list_orders", about="A customer's orders, newest first.", run=actions.list_orders, hints=_READ,
         arguments=(_CUSTOMER, _choice("status", "only orders of this status", "pending", "packed", "shipped",
                                       "delivered", "cancelled", required=False))),
    Tool(name="get_product", about="The variants of a product with their prices, by product number or name.",
         run=actions.get_product, hints=_READ,
         arguments=(_maybe(_PRODUCT), _text("name", "name or part of it", required=False))),
    Tool(name="check_stock", about="How many of a product are in stock.", run=actions.check_stock, hints=_READ,
         arguments=(_PRODUCT,)),
    Tool(name="get_policy", about="The desk's rules on a topic.", run=actions.get_policy, hints=_READ,
         arguments=(_choice("topic", "what the rules are about", *POLICIES),)),
    Tool(name="cancel_order", about="Cancel a pending order.", run=actions.cancel_order, hints=_DESTRUCTIVE,
         arguments=(_ORDER, _choice("reason", "the customer's reason", "no_longer_needed", "ordered_by_mistake",
                                    "arrives_too_late"))),
    Tool(name="change_address", about="Change where a pending or packed order goes.", run=actions.change_address,
         hints={"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
         arguments=(_ORDER, _text("street", "street and number"), _text("city", "town"),
                    _text("postcode", "postcode", longest=12))),
    Tool(name="refund_item", about="Pay one line of a delivered order back.", run=actions.refund_item,
         hints=_DESTRUCTIVE,
         arguments=(_ORDER, _LINE, _choice("reason", "why", "unwanted", "damaged", "wrong_item"))),
    Tool(name="exchange_item", about="Exchange one line of a delivered order for another variant of the product.",
         run=actions.exchange_item, hints={}, arguments=(_ORDER, _LINE, _PRODUCT)),
    Tool(name="create_ticket", about="Hand a case over to a person.", run=actions.create_ticket,
         hints={"readOnlyHint": False, "destructiveHint": False},
         arguments=(_CUSTOMER, _maybe(_ORDER),
                    _choice("category", "kind of case", "lost_parcel", "damaged_goods", "callback"),
                    _text("summary", "the case in a sentence", longest=200))),
)  # fmt: skip

TOOLS: dict[str, Tool] = {tool.name: tool for tool in _ALL}
