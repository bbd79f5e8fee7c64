"""What the desk's tools do: six that read, five that write.

Each takes the open transaction and checked arguments and gives plain values, or raises `Refused` before it has changed
anything. A write that finds the world already as asked changes no row.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from typing import Any

from validate.order_desk.policies import POLICIES

Arguments = Mapping[str, Any]
Found = dict[str, Any]


class Refused(Exception):
    """The desk does not do this; the message says why and nothing has changed."""


def find_customer(db: sqlite3.Connection, args: Arguments) -> Found:
    """Customers by email or name."""
    email, name = args.get("email"), args.get("name")
    if not email and not name:
        raise Refused("give an email or a name")
    rows = db.execute(
        "SELECT id, name, email, street, city, postcode FROM customers"
        " WHERE (? IS NULL OR lower(email) = lower(?)) AND (? IS NULL OR lower(name) = lower(?)) ORDER BY id",
        (email, email, name, name),
    ).fetchall()
    return {"customers": [dict(row) for row in rows]}


def get_order(db: sqlite3.Connection, args: Arguments) -> Found:
    """One order with its lines."""
    order = dict(_order(db, args["order_id"]))
    lines = db.execute(
        "SELECT line, product_id, family AS product, option, quantity, i.price_cents, i.state FROM order_items i"
        " JOIN products p ON p.id = i.product_id WHERE order_id = ? ORDER BY line",
        (order["id"],),
    )
    return {**order, "lines": [dict(row) for row in lines]}


def list_orders(db: sqlite3.Connection, args: Arguments) -> Found:
    """A customer's orders, newest first, with what is in them."""
    customer, status = args["customer_id"], args.get("status")
    _one(db, "SELECT id FROM customers WHERE id = ?", customer, "customer")
    rows = db.execute(
        "SELECT o.id, o.status, o.placed_on, group_concat(p.family || ', ' || p.option, '; ') AS goods FROM orders o"
        " JOIN order_items i ON i.order_id = o.id JOIN products p ON p.id = i.product_id"
        " WHERE o.customer_id = ? AND (? IS NULL OR o.status = ?)"
        " GROUP BY o.id ORDER BY o.placed_on DESC, o.id DESC",
        (customer, status, status),
    )
    return {"orders": [dict(row) for row in rows]}


def get_product(db: sqlite3.Connection, args: Arguments) -> Found:
    """Products of a name, or one product with its variants."""
    product, name = args.get("product_id"), args.get("name")
    if not product and not name:
        raise Refused("give a product_id or a name")
    if product:
        name = _one(db, "SELECT family FROM products WHERE id = ?", product, "product")["family"]
    rows = db.execute(
        "SELECT id, family AS product, option, price_cents, clearance FROM products"
        " WHERE instr(lower(family), lower(?)) > 0 ORDER BY id",
        (name,),
    )
    return {"variants": [{**dict(row), "clearance": bool(row["clearance"])} for row in rows]}


def check_stock(db: sqlite3.Connection, args: Arguments) -> Found:
    """How many of a product are in stock."""
    row = _one(db, "SELECT id, stock FROM products WHERE id = ?", args["product_id"], "product")
    return {"product_id": row["id"], "stock": row["stock"]}


def get_policy(_db: sqlite3.Connection, args: Arguments) -> Found:
    """The desk's rules on one topic."""
    return {"topic": args["topic"], "policy": POLICIES[args["topic"]]}


def cancel_order(db: sqlite3.Connection, args: Arguments) -> Found:
    """Cancel a pending order and put its goods back into stock."""
    order = _order(db, args["order_id"])
    if order["status"] != "pending":
        raise Refused(f"{order['id']} is {order['status']}: only a pending order can be cancelled")
    db.execute("UPDATE orders SET status = 'cancelled', cancel_reason = ? WHERE id = ?", (args["reason"], order["id"]))
    db.execute(
        "UPDATE products SET stock = stock + (SELECT sum(quantity) FROM order_items WHERE order_id = ?1"
        " AND product_id = products.id) WHERE id IN (SELECT product_id FROM order_items WHERE order_id = ?1)",
        (order["id"],),
    )
    return {"order_id": order["id"], "status": "cancelled"}


def change_address(db: sqlite3.Connection, args: Arguments) -> Found:
    """Send a pending or packed order somewhere else."""
    order = _order(db, args["order_id"])
    if order["status"] not in {"pending", "packed"}:
        raise Refused(f"{order['id']} is {order['status']}: its address can no longer change")
    new = args["street"], args["city"], args["postcode"]
    db.execute(
        "UPDATE orders SET street = ?, city = ?, postcode = ? WHERE id = ? AND (street, city, postcode) IS NOT (?,?,?)",
        (*new, order["id"], *new),
    )
    return {"order_id": order["id"], "street": new[0], "city": new[1], "postcode": new[2]}


def refund_item(db: sqlite3.Connection, args: Arguments) -> Found:
    """Pay one delivered line back."""
    order, item = _delivered_line(db, args)
    amount = item["price_cents"] * item["quantity"]
    place = order["id"], item["line"]
    db.execute("UPDATE order_items SET state = 'refunded' WHERE order_id = ? AND line = ?", place)
    db.execute("INSERT INTO refunds (order_id, line, amount_cents, reason) VALUES (?,?,?,?)",
               (*place, amount, args["reason"]))  # fmt: skip
    return {"order_id": order["id"], "line": item["line"], "refunded_cents": amount, "to": order["payment"]}


def exchange_item(db: sqlite3.Connection, args: Arguments) -> Found:
    """Send another variant for one delivered line."""
    order, item = _delivered_line(db, args)
    old = _one(db, "SELECT * FROM products WHERE id = ?", item["product_id"], "product")
    new = _one(db, "SELECT * FROM products WHERE id = ?", args["product_id"], "product")
    if new["family"] != old["family"] or new["id"] == old["id"]:
        raise Refused(f"{new['id']} is no other variant of the {old['family']}")
    if new["stock"] < item["quantity"]:
        raise Refused(f"{new['id']} is out of stock: {new['stock']} left, {item['quantity']} needed")
    db.execute("UPDATE order_items SET product_id = ?, price_cents = ?, state = 'exchanged' WHERE order_id = ?"
               " AND line = ?", (new["id"], new["price_cents"], order["id"], item["line"]))  # fmt: skip
    db.execute("UPDATE products SET stock = stock - ? WHERE id = ?", (item["quantity"], new["id"]))
    return {"order_id": order["id"], "line": item["line"], "product_id": new["id"], "option": new["option"]}


def create_ticket(db: sqlite3.Connection, args: Arguments) -> Found:
    """Hand something over to a person."""
    customer = _one(db, "SELECT id FROM customers WHERE id = ?", args["customer_id"], "customer")["id"]
    order = args.get("order_id")
    if order and _order(db, order)["customer_id"] != customer:
        raise Refused(f"{order} is not an order of {customer}")
    row = customer, order, args["category"], args["summary"]
    cursor = db.execute("INSERT INTO tickets (customer_id, order_id, category, summary) VALUES (?,?,?,?)", row)
    return {"ticket": cursor.lastrowid, "category": args["category"]}


def _order(db: sqlite3.Connection, order: str) -> sqlite3.Row:
    return _one(db, "SELECT * FROM orders WHERE id = ?", order, "order")


def _delivered_line(db: sqlite3.Connection, args: Arguments) -> tuple[sqlite3.Row, sqlite3.Row]:
    order = _order(db, args["order_id"])
    if order["status"] != "delivered":
        raise Refused(f"{order['id']} is {order['status']}: only delivered goods can come back")
    item: sqlite3.Row | None = db.execute(
        "SELECT * FROM order_items WHERE order_id = ? AND line = ?", (order["id"], args["line"])
    ).fetchone()
    if item is None:
        raise Refused(f"{order['id']} has no line {args['line']}")
    if item["state"] != "ordered":
        raise Refused(f"line {item['line']} of {order['id']} was already {item['state']}")
    return order, item


def _one(db: sqlite3.Connection, query: str, key: str, kind: str) -> sqlite3.Row:
    row: sqlite3.Row | None = db.execute(query, (key,)).fetchone()
    if row is None:
        raise Refused(f"there is no {kind} {key}")
    return row
