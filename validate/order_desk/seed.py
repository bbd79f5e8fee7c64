"""The seeded data: invented people, goods and orders, the same on every machine."""

from __future__ import annotations

import sqlite3

_CUSTOMERS = """
C-101 | Maren Tidewell | maren.tidewell@post.example | 4 Quay Lane | Harrowmouth | HM1 4QL
C-102 | Osric Fenby | osric@fenby.example | 19 Mill Rise | Coldwater | CW3 9MR
C-103 | Ilka Brandreth | ilka.b@mail.example | 7 Sorrel Close | Harrowmouth | HM2 7SC
C-104 | Tobin Averley | tobin.averley@post.example | 52 Station Road | Elmsworth | EW1 5SR
C-105 | Sunniva Kestrel | sunniva@kestrel.example | 3 Chapel Yard | Pellbridge | PB4 3CY
C-106 | Davor Linwood | davor.linwood@mail.example | 81 Orchard Street | Elmsworth | EW2 8OS
C-107 | Maren Tidewell | m.tidewell@mail.example | 30 Foundry Walk | Coldwater | CW1 3FW
C-108 | Quentin Ashgrove | q.ashgrove@post.example | 16 Beacon Hill | Pellbridge | PB1 6BH
C-109 | Petra Holloway | petra@holloway.example | 9 Ferry Road | Harrowmouth | HM5 9FR
C-110 | Yusra Calder | yusra.calder@mail.example | 44 Linden Avenue | Coldwater | CW2 4LA
C-111 | Bram Oakhurst | bram.oakhurst@post.example | 5 Cooper Row | Elmsworth | EW4 5CR
C-112 | Noemi Farrant | noemi@farrant.example | 27 Gorse Way | Pellbridge | PB2 7GW
C-113 | Elias Wetherby | elias.w@mail.example | 62 Market Square | Harrowmouth | HM1 6MS
C-114 | Roswitha Dunmore | roswitha@dunmore.example | 8 Heron Court | Coldwater | CW5 8HC
C-115 | Kofi Larkspur | kofi.larkspur@post.example | 33 Tannery Lane | Elmsworth | EW3 3TL
C-116 | Linnea Marsh | linnea.marsh@mail.example | 12 Abbey Fold | Pellbridge | PB3 1AF
C-117 | Anselm Pryce | anselm@pryce.example | 70 Windmill Drive | Harrowmouth | HM3 7WD
C-118 | Zora Winterbourne | zora.w@post.example | 21 Canal Bank | Coldwater | CW4 2CB
C-119 | Hamish Colt | hamish.colt@mail.example | 6 Rowan Terrace | Elmsworth | EW5 6RT
C-120 | Vesna Redfern | vesna@redfern.example | 48 Priory Road | Pellbridge | PB5 4PR
C-121 | Jorun Stackpole | jorun.stackpole@post.example | 15 Saltworks | Harrowmouth | HM4 1SW
C-122 | Celeste Umber | celeste@umber.example | 2 Bishop's Gate | Coldwater | CW6 2BG
C-123 | Idris Thornbury | idris.t@mail.example | 37 Quarry View | Elmsworth | EW6 3QV
C-124 | Wanda Silverton | wanda.silverton@post.example | 11 Larch Grove | Pellbridge | PB6 1LG
"""

_FAMILIES = """
P-101 | Cairn rain jacket | size S, size M, size L | 8900 8900 8900 | 6 11 0 | 0
P-104 | Fathom knit jumper | navy, grey, moss | 5400 5400 5400 | 9 0 5 | 0
P-107 | Ember desk lamp | brass, black, white | 4200 4200 4200 | 14 8 3 | 0
P-110 | Tarn water bottle | small, medium, large | 1400 1800 2200 | 40 25 17 | 0
P-113 | Brindle tea towel set | red, blue, green | 1200 1200 1200 | 31 0 22 | 0
P-116 | Loft wool blanket | oat, rust, slate | 6800 6800 6800 | 7 2 0 | 0
P-119 | Halyard backpack | sand, olive, ink | 7600 7600 7600 | 4 10 6 | 0
P-122 | Skerry hiking boots | size 40, size 42, size 44 | 11800 11800 11800 | 3 5 4 | 0
P-125 | Pippin lunch box | plum, pear, cherry | 1900 1900 1900 | 18 0 26 | 0
P-128 | Vesper wall clock | oak, ash, walnut | 3700 3700 3700 | 2 1 6 | 1
P-131 | Ridge camping mug | cream, teal, charcoal | 950 950 950 | 55 38 47 | 0
P-134 | Marlow cotton sheets | single, double, king | 4500 6000 7500 | 12 9 5 | 0
"""

_ORDERS = """
O-4001 | C-101 | 2031-05-17 | | | pending | P-119x1 P-131x2
O-4002 | C-102 | 2031-05-12 | 2031-05-14 | | shipped | P-134x1
O-4003 | C-103 | 2031-05-18 | | | pending | P-116x1 P-114x2
O-4004 | C-104 | 2031-05-16 | | | pending | P-108x1
O-4005 | C-104 | 2031-05-17 | | | pending | P-108x1
O-4006 | C-105 | 2031-05-15 | | | packed | P-120x1
O-4007 | C-106 | 2031-05-19 | | | pending | P-102x1 P-131x4
O-4008 | C-108 | 2031-05-18 | | | pending | P-125x2
O-4009 | C-108 | 2031-05-14 | | | packed | P-111x1 P-113x1
O-4010 | C-108 | 2031-04-20 | 2031-04-22 | 2031-04-25 | delivered | P-107x1
O-4011 | C-109 | 2031-05-13 | 2031-05-16 | | shipped | P-117x1
O-4012 | C-110 | 2031-04-30 | 2031-05-02 | 2031-05-05 | delivered | P-132x2 P-109x1
O-4013 | C-111 | 2031-05-04 | 2031-05-07 | 2031-05-10 | delivered | P-128x1
O-4014 | C-112 | 2031-03-27 | 2031-03-30 | 2031-04-02 | delivered | P-121x1
O-4015 | C-113 | 2031-03-28 | 2031-03-30 | 2031-04-02 | delivered | P-118x1 P-133x2
O-4016 | C-114 | 2031-05-06 | 2031-05-09 | 2031-05-12 | delivered | P-104x1 P-127x2 P-136x1
O-4017 | C-115 | 2031-04-25 | 2031-04-28 | 2031-05-01 | delivered | P-123x1
O-4018 | C-116 | 2031-05-02 | 2031-05-05 | 2031-05-08 | delivered | P-113x1 P-104x1
O-4019 | C-117 | 2031-05-05 | 2031-05-08 | 2031-05-11 | delivered | P-101x1
O-4020 | C-118 | 2031-04-29 | 2031-05-02 | | shipped | P-135x1 P-110x1
O-4021 | C-119 | 2031-05-12 | 2031-05-15 | | shipped | P-122x1
O-4022 | C-121 | 2031-05-19 | | | pending | P-126x3
O-4023 | C-121 | 2031-05-18 | | | pending | P-107x1 P-133x1
O-4024 | C-122 | 2031-05-03 | 2031-05-06 | 2031-05-09 | delivered | P-110x1
O-4025 | C-107 | 2031-04-11 | 2031-04-14 | 2031-04-17 | delivered | P-116x1
O-4026 | C-101 | 2031-02-19 | 2031-02-21 | 2031-02-24 | delivered | P-105x1
O-4027 | C-103 | 2031-03-02 | 2031-03-05 | 2031-03-08 | delivered | P-132x6
O-4028 | C-105 | 2031-05-08 | 2031-05-11 | 2031-05-14 | delivered | P-103x1
O-4029 | C-106 | 2031-04-02 | | | cancelled | P-129x1
O-4030 | C-109 | 2031-01-30 | 2031-02-02 | 2031-02-05 | delivered | P-112x2
O-4031 | C-110 | 2031-05-19 | | | pending | P-136x1
O-4032 | C-112 | 2031-05-16 | | | packed | P-131x1
O-4033 | C-113 | 2031-05-11 | 2031-05-14 | | shipped | P-124x1
O-4034 | C-115 | 2031-05-18 | | | pending | P-115x2
O-4035 | C-116 | 2031-03-15 | | | cancelled | P-119x1
O-4036 | C-118 | 2031-04-05 | 2031-04-08 | 2031-04-11 | delivered | P-106x1
O-4037 | C-119 | 2031-04-18 | 2031-04-21 | 2031-04-24 | delivered | P-134x2
O-4038 | C-120 | 2031-05-17 | | | pending | P-130x1
O-4039 | C-120 | 2031-03-21 | 2031-03-24 | 2031-03-27 | delivered | P-127x1
O-4040 | C-122 | 2031-05-15 | 2031-05-18 | | shipped | P-108x2
O-4041 | C-123 | 2031-05-10 | 2031-05-13 | 2031-05-16 | delivered | P-120x1 P-131x1
O-4042 | C-123 | 2031-05-19 | | | pending | P-122x1
O-4043 | C-124 | 2031-04-28 | 2031-05-01 | 2031-05-04 | delivered | P-114x3
O-4044 | C-124 | 2031-05-14 | | | packed | P-102x1
O-4045 | C-102 | 2031-03-09 | 2031-03-12 | 2031-03-15 | delivered | P-118x1
O-4046 | C-111 | 2031-05-17 | | | pending | P-109x1
O-4047 | C-114 | 2031-02-25 | 2031-02-28 | 2031-03-03 | delivered | P-133x4
O-4048 | C-117 | 2031-05-16 | | | pending | P-125x1 P-111x1
"""

_PAYMENTS = ("card", "bank transfer", "gift card")


def fill(db: sqlite3.Connection) -> None:
    """Write the seeded rows into empty tables."""
    prices: dict[str, int] = {}
    for first, family, options, costs, stocks, clearance in _cells(_FAMILIES):
        rows = zip(options.split(", "), costs.split(), stocks.split(), strict=True)
        for i, (option, cost, stock) in enumerate(rows, start=int(first[2:])):
            product = f"P-{i}"
            prices[product] = int(cost)
            row = (product, family, option, int(cost), int(stock), int(clearance))
            db.execute("INSERT INTO products VALUES (?,?,?,?,?,?)", row)
    addresses: dict[str, tuple[str, str, str]] = {}
    for customer, name, email, street, city, postcode in _cells(_CUSTOMERS):
        addresses[customer] = street, city, postcode
        db.execute("INSERT INTO customers VALUES (?,?,?,?,?,?)", (customer, name, email, street, city, postcode))
    for order, customer, placed, shipped, delivered, status, items in _cells(_ORDERS):
        reason = "no_longer_needed" if status == "cancelled" else None
        payment = _PAYMENTS[int(order[2:]) % 3]
        row_ = (order, customer, status, placed, shipped or None, delivered or None, payment)
        db.execute("INSERT INTO orders VALUES (?,?,?,?,?,?,?,?,?,?,?)", (*row_, *addresses[customer], reason))
        for line, item in enumerate(items.split(), start=1):
            product, quantity = item.split("x")
            cells = (order, line, product, int(quantity), prices[product], "ordered")
            db.execute("INSERT INTO order_items VALUES (?,?,?,?,?,?)", cells)


def _cells(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")] for line in table.strip().splitlines()]
