"""Tasks about orders that are on their way: cancelling, readdressing, waiting, asking."""

from __future__ import annotations

from validate.order_desk.task import Action, Task, cancel, move, order, orders, policy, stock, ticket, who

OPEN: tuple[Task, ...] = (
    Task(
        id="cancel_by_number",
        request="This is Ilka Brandreth, ilka.b@mail.example. Please cancel my order O-4003, I no longer need any of"
        " it. Yes, I am sure.",
        actions=(who("ilka.b@mail.example"), order("O-4003"), policy("cancellation"),
                 cancel("O-4003", "no_longer_needed")),
        reply="Your order O-4003 is cancelled.",
        changed={("orders", "O-4003"): {"status": "cancelled", "cancel_reason": "no_longer_needed"},
                 ("products", "P-116"): {"stock": 8}, ("products", "P-114"): {"stock": 2}},
    ),
    Task(
        id="cancel_duplicate",
        request="Tobin Averley here (tobin.averley@post.example). I ordered the same black desk lamp twice by mistake,"
        " on the 16th and again on the 17th. Please cancel the later one and leave the first as it is.",
        actions=(who("tobin.averley@post.example"), orders("C-104"), order("O-4005"), policy("cancellation"),
                 cancel("O-4005", "ordered_by_mistake")),
        reply="The later order, O-4005, is cancelled; O-4004 stays.",
        changed={("orders", "O-4005"): {"status": "cancelled", "cancel_reason": "ordered_by_mistake"},
                 ("products", "P-108"): {"stock": 9}},
    ),
    Task(
        id="cancel_packed",
        request="Please cancel O-4006, the backpack arrives too late for my trip. My account is"
        " sunniva@kestrel.example, Sunniva Kestrel.",
        actions=(who("sunniva@kestrel.example"), order("O-4006"), policy("cancellation")),
        reply="O-4006 is already packed, so it cannot be cancelled; you may send it back after delivery.",
    ),
    Task(
        id="address_one",
        request="Davor Linwood, davor.linwood@mail.example. I am moving: please send O-4007 to 14 Bellfield Road,"
        " Coldwater, CW7 4BR instead.",
        actions=(who("davor.linwood@mail.example"), order("O-4007"), policy("address"),
                 move("O-4007", "14 Bellfield Road", "Coldwater", "CW7 4BR")),
        reply="O-4007 now goes to 14 Bellfield Road, Coldwater.",
        changed={("orders", "O-4007"): {"street": "14 Bellfield Road", "city": "Coldwater", "postcode": "CW7 4BR"}},
    ),
    Task(
        id="address_all_open",
        request="Quentin Ashgrove, q.ashgrove@post.example. Everything of mine that has not left your house yet should"
        " go to my office: 1 Exchange Place, Harrowmouth, HM1 1EP. Please change all such orders.",
        actions=(who("q.ashgrove@post.example"), orders("C-108"), policy("address"), order("O-4008"),
                 order("O-4009"), move("O-4008", "1 Exchange Place", "Harrowmouth", "HM1 1EP"),
                 move("O-4009", "1 Exchange Place", "Harrowmouth", "HM1 1EP")),
        reply="O-4008 and O-4009 now go to 1 Exchange Place, Harrowmouth.",
        changed={("orders", number): {"street": "1 Exchange Place", "city": "Harrowmouth", "postcode": "HM1 1EP"}
                 for number in ("O-4008", "O-4009")},
    ),
    Task(
        id="address_shipped",
        request="Can O-4011 go to my sister at 22 Weir Street, Elmsworth, EW1 2WS? I am Petra Holloway,"
        " petra@holloway.example.",
        actions=(who("petra@holloway.example"), order("O-4011"), policy("address")),
        reply="O-4011 has been shipped, so its address can no longer change.",
    ),
    Task(
        id="lost_parcel",
        request="Zora Winterbourne, zora.w@post.example. Order O-4020 never came. Please have it looked into if it"
        " counts as lost.",
        actions=(who("zora.w@post.example"), order("O-4020"), policy("lost_parcel"),
                 ticket("C-118", "O-4020", "lost_parcel", "Shipped on 2031-05-02, not delivered.")),
        reply="O-4020 counts as lost; a colleague is looking for it.",
        added=(("tickets", {"customer_id": "C-118", "order_id": "O-4020", "category": "lost_parcel"}),),
    ),
    Task(
        id="still_on_its_way",
        request="Where are my hiking boots? If the parcel counts as lost, open a case. Hamish Colt,"
        " hamish.colt@mail.example.",
        actions=(who("hamish.colt@mail.example"), orders("C-119"), order("O-4021"), policy("lost_parcel")),
        reply="O-4021 was shipped on 2031-05-15 and does not count as lost yet; please allow it a few more days.",
    ),
    Task(
        id="ask_stock",
        request="Which colours of the Loft wool blanket do you have in stock, and what do they cost? No order needed."
        " Vesna Redfern, vesna@redfern.example.",
        actions=(Action(tool="get_product", arguments={"name": "Loft wool blanket"}),
                 *(stock(p) for p in ("P-116", "P-117", "P-118"))),
        reply="Oat and rust are in stock, slate is not; each costs 68.00.",
    ),
    Task(
        id="cancel_and_move",
        request="Jorun Stackpole, jorun.stackpole@post.example. Please cancel the lunch boxes, I do not need them any"
        " more, and send my other open order to 5 Tidemill Lane, Pellbridge, PB2 5TL. Please do both.",
        actions=(who("jorun.stackpole@post.example"), orders("C-121"), order("O-4022"), policy("cancellation"),
                 cancel("O-4022", "no_longer_needed"), order("O-4023"), policy("address"),
                 move("O-4023", "5 Tidemill Lane", "Pellbridge", "PB2 5TL")),
        reply="O-4022 is cancelled and O-4023 goes to 5 Tidemill Lane, Pellbridge.",
        changed={("orders", "O-4022"): {"status": "cancelled", "cancel_reason": "no_longer_needed"},
                 ("products", "P-126"): {"stock": 3},
                 ("orders", "O-4023"): {"street": "5 Tidemill Lane", "city": "Pellbridge", "postcode": "PB2 5TL"}},
    ),
)  # fmt: skip
