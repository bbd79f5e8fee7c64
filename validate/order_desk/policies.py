"""The desk's rules, as a model reads them; the tools themselves hold only to what the goods' whereabouts forbid."""

from __future__ import annotations

POLICIES: dict[str, str] = {
    "identity": (
        "Act only on orders of the customer you speak with. The customer must give the email address of the account"
        " that the order belongs to; a name is not enough. Where it does not fit, change nothing and say so."
    ),
    "cancellation": (
        "A pending order can be cancelled at the customer's wish. Once it is packed it cannot: the customer may send"
        " it back after delivery. Do not open a ticket for it."
    ),
    "address": (
        "The address of a pending or packed order can be changed. A shipped order goes where it was sent: change"
        " nothing and do not open a ticket."
    ),
    "refund": (
        "Unwanted goods: within 30 days of delivery, never clearance goods. A wrong item: within 30 days, clearance"
        " or not. Damaged goods: within 90 days, clearance or not; open a ticket of the category damaged_goods as"
        " well, so that the supplier hears of it. Money goes back the way it was paid."
    ),
    "exchange": (
        "Within 60 days of delivery, for another variant of the same product at the same price that is in stock."
        " The desk cannot settle a difference in price: do not exchange then, open a ticket of the category callback"
        " if the customer wants to be called."
    ),
    "lost_parcel": (
        "A parcel that was shipped more than 10 days ago and has not been delivered counts as lost: open a ticket of"
        " the category lost_parcel for the order. Before that, ask the customer for patience and open none."
    ),
}
