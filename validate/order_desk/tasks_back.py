"""Tasks about delivered goods: refunds, exchanges, and what the desk must not do."""

from __future__ import annotations

from validate.order_desk.task import Task, exchange, order, policy, refund, stock, ticket, variants, who


def _paid(number: str, line: int, amount_cents: int, reason: str) -> tuple[str, dict[str, object]]:
    return "refunds", {"order_id": number, "line": line, "amount_cents": amount_cents, "reason": reason}


_REFUNDED: dict[str, object] = {"state": "refunded"}

BACK: tuple[Task, ...] = (
    Task(
        id="refund_one",
        request="Yusra Calder, yusra.calder@mail.example. The white lamp of O-4012 does not suit my room: please"
        " refund it. I keep the mugs.",
        actions=(who("yusra.calder@mail.example"), order("O-4012"), policy("refund"),
                 refund("O-4012", 2, "unwanted")),
        reply="The lamp is refunded: 42.00.",
        changed={("order_items", ("O-4012", 2)): _REFUNDED},
        added=(_paid("O-4012", 2, 4200, "unwanted"),),
    ),
    Task(
        id="refund_clearance",
        request="I want my money back for the wall clock of O-4013, I simply do not like it. Bram Oakhurst,"
        " bram.oakhurst@post.example.",
        actions=(who("bram.oakhurst@post.example"), order("O-4013"), variants("P-128"), policy("refund")),
        reply="The clock was a clearance item, so it cannot be refunded because it does not please.",
    ),
    Task(
        id="refund_too_late",
        request="Noemi Farrant, noemi@farrant.example. Please refund the backpack of O-4014, I never used it.",
        actions=(who("noemi@farrant.example"), order("O-4014"), policy("refund")),
        reply="O-4014 was delivered more than 30 days ago, so the backpack cannot be refunded.",
    ),
    Task(
        id="refund_damaged",
        request="Elias Wetherby, elias.w@mail.example. The blanket of O-4015 came apart at the seam in the first wash:"
        " it is damaged. Please refund it and do whatever else your rules ask for.",
        actions=(who("elias.w@mail.example"), order("O-4015"), policy("refund"), refund("O-4015", 1, "damaged"),
                 ticket("C-113", "O-4015", "damaged_goods", "Blanket came apart at the seam.")),
        reply="The blanket is refunded, 68.00, and the supplier will hear of it.",
        changed={("order_items", ("O-4015", 1)): _REFUNDED},
        added=(_paid("O-4015", 1, 6800, "damaged"),
               ("tickets", {"customer_id": "C-113", "order_id": "O-4015", "category": "damaged_goods"})),
    ),
    Task(
        id="refund_two_lines",
        request="Roswitha Dunmore, roswitha@dunmore.example. From O-4016 I do not want the jumper and the lunch boxes;"
        " please refund both. The sheets I keep.",
        actions=(who("roswitha@dunmore.example"), order("O-4016"), policy("refund"), variants("P-104"),
                 variants("P-127"), refund("O-4016", 1, "unwanted"), refund("O-4016", 2, "unwanted")),
        reply="The jumper and the lunch boxes are refunded: 92.00.",
        changed={("order_items", ("O-4016", 1)): _REFUNDED, ("order_items", ("O-4016", 2)): _REFUNDED},
        added=(_paid("O-4016", 1, 5400, "unwanted"), _paid("O-4016", 2, 3800, "unwanted")),
    ),
    Task(
        id="exchange_size",
        request="The boots of O-4017 pinch. Please exchange them for size 44."
        " Kofi Larkspur, kofi.larkspur@post.example.",
        actions=(who("kofi.larkspur@post.example"), order("O-4017"), policy("exchange"), variants("P-123"),
                 stock("P-124"), exchange("O-4017", 1, "P-124")),
        reply="Boots of size 44 are on their way.",
        changed={("order_items", ("O-4017", 1)): {"product_id": "P-124", "state": "exchanged"},
                 ("products", "P-124"): {"stock": 3}},
    ),
    Task(
        id="exchange_second_choice",
        request="Linnea Marsh, linnea.marsh@mail.example. I would rather have the jumper of O-4018 in grey, or in moss"
        " if there is no grey. Please exchange it.",
        actions=(who("linnea.marsh@mail.example"), order("O-4018"), policy("exchange"), variants("P-104"),
                 stock("P-105"), stock("P-106"), exchange("O-4018", 2, "P-106")),
        reply="Grey is out of stock; the jumper in moss is on its way.",
        changed={("order_items", ("O-4018", 2)): {"product_id": "P-106", "state": "exchanged"},
                 ("products", "P-106"): {"stock": 4}},
    ),
    Task(
        id="exchange_or_refund",
        request="My rain jacket from O-4019 is too small. I would like size L; if you have none, refund the jacket."
        " Nothing but L fits me. Anselm Pryce, anselm@pryce.example.",
        actions=(who("anselm@pryce.example"), order("O-4019"), variants("P-101"), stock("P-103"),
                 policy("refund"), refund("O-4019", 1, "unwanted")),
        reply="Size L is out of stock, so the jacket is refunded: 89.00.",
        changed={("order_items", ("O-4019", 1)): _REFUNDED},
        added=(_paid("O-4019", 1, 8900, "unwanted"),),
    ),
    Task(
        id="wrong_account",
        request="Maren Tidewell, my email is m.tidewell@mail.example. Cancel my order O-4001, I do not need it any"
        " more.",
        actions=(who("m.tidewell@mail.example"), order("O-4001"), policy("identity")),
        reply="O-4001 does not belong to the account of that email address, so nothing was changed.",
    ),
    Task(
        id="exchange_dearer",
        request="Celeste Umber, celeste@umber.example. Please exchange the small water bottle of O-4024 for a large"
        " one. If you cannot, I would like to be called.",
        actions=(who("celeste@umber.example"), order("O-4024"), policy("exchange"), variants("P-110"),
                 ticket("C-122", "O-4024", "callback", "Wants the large bottle instead of the small one.")),
        reply="The large bottle costs more, which the desk cannot settle; a colleague will call you.",
        added=(("tickets", {"customer_id": "C-122", "order_id": "O-4024", "category": "callback"}),),
    ),
)  # fmt: skip
