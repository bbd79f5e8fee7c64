"""A plan as text: the table of strategies, verdicts in sentences, and one table over several scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulator.outcome import OBJECTIVES
from simulator.sampling import inputs
from simulator.scenario_world import Load
from simulator.verdict import Verdict, scale_of, three_digits, with_band

if TYPE_CHECKING:
    from costmodel.prediction import Prediction
    from simulator.plan import Plan

_ROWS = {
    "time_s": ("time", "s"),
    "time_alone_s": ("time alone", "s"),
    "traffic_bytes": ("memory traffic", "bytes"),
    "flops": ("FLOPs", "FLOP"),
    "energy_j": ("energy", "J"),
    "usd": ("money", "USD"),
    "success": ("success", ""),
    "strong_output_tokens": ("strong tokens", ""),
}
_PER_TABLE = 4
_CELL = 14
_WORDS = {"wins": "wins", "loses": "loses", "cannot_tell": "cannot tell"}
_STYLES = {"wins": "green", "loses": "red", "cannot_tell": "yellow"}


def plan_table(plan: Plan) -> Any:
    """The plan for a terminal of 80 columns: strategies, verdicts, recommendation, what would settle the rest."""
    from rich.console import Group
    from rich.text import Text

    case = plan.case
    weak, strong = (site.server.label for site in case.sites.values())
    r = plan.recommended
    window = f", window {r['window']}" if r["window"] else ""
    lines = [
        f"weak: {weak}; strong: {strong}",
        f"load: {_load(case.scenario.load)}",
        f"acceptance {case.acceptance.value:.2f} [{case.acceptance.low:.2f}, {case.acceptance.high:.2f}], {case.rung}",
        f"recommended: {r['strategy']}{window} ({r['why']})",
    ]
    settled = plan.verdicts[r["objective"]].verdict != "cannot_tell" if plan.settle else True
    lines += [s if settled else f"to settle {s}" for s in plan.settle] + [f"note: {w}" for w in plan.warnings]
    names = list(plan.predictions)
    tables = [_strategies(plan, names[i : i + _PER_TABLE]) for i in range(0, len(names), _PER_TABLE)]
    title = Text(case.scenario.title, style="bold")
    return Group(title, *tables, _verdicts(plan), *(Text(line) for line in lines))


def _load(load: Load) -> str:
    """What the figures are for, in words."""
    if load.arrivals is not None:
        return "recorded arrivals"
    if load.arrival_rate_per_s is not None:
        return f"{load.arrival_rate_per_s:g} tasks a second"
    agents = load.concurrency or 1
    return f"{agents} agents share the engines" if agents > 1 else "one agent, engines of its own (set concurrency)"


def _strategies(plan: Plan, names: Sequence[str]) -> Any:
    """One row per quantity, one column per strategy."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_lines=True, collapse_padding=True)
    table.caption, table.caption_justify = "per task; 90 % intervals in brackets", "left"
    table.add_column("")
    for name in names:
        window = f"\n(window {plan.outcomes[name].window})" if name == "spec_agent" else ""
        table.add_column(_broken(name) + window, justify="right", no_wrap=True)
    for column, (words, unit) in _ROWS.items():
        found = [plan.predictions[name].get(column) for name in names]
        if column == "time_alone_s" and found == [plan.predictions[name].get("time_s") for name in names]:
            continue
        scale, shown = scale_of(max((p.value for p in found if p), default=0.0), unit) if unit else (1.0, "")
        table.add_row(_row_name(words, shown), *(cell(p, scale, unit) for p in found))
    return table


def cell(p: Prediction | None, scale: float = 1.0, unit: str = "") -> str:
    """A prediction in one table cell, value over interval, divided by `scale`; without a unit a share or a count."""
    if p is None:
        return "not known"
    digits = 2 if 0.0 < p.value <= 1.0 and p.high <= 1.0 else 0
    numbers = [three_digits(x / scale) if unit else f"{x:.{digits}f}" for x in (p.value, p.low, p.high)]
    one_line = f"[{numbers[1]}, {numbers[2]}]"
    ends = one_line if len(one_line) <= _CELL else one_line.replace(", ", ",\n")
    return f"{'$' if unit == 'USD' else ''}{numbers[0]}\n{ends}"


def _row_name(words: str, unit: str) -> str:
    name = f"{words} ({unit})" if unit else words
    return name if len(name) <= _CELL else name.replace(" (", "\n(")


def _broken(name: str) -> str:
    """A strategy's name on two lines where it is wider than a column."""
    head, _, tail = name.partition("_")
    return name if len(name) < _CELL else f"{head}_\n{tail}"


def _verdicts(plan: Plan) -> Any:
    """One row per objective: the word, the ratio, the terms behind it and where it flips."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title="against strong-only", title_justify="left", show_lines=True, box=box.SIMPLE_HEAD)
    table.pad_edge = table.show_edge = False
    for heading in ("objective", "verdict", "ratio"):
        table.add_column(heading, no_wrap=True)
    table.add_column("because", overflow="fold")
    for objective, v in plan.verdicts.items():
        word = Text(f"{_broken(v.strategy)}\n{_WORDS[v.verdict]}", style=_STYLES[v.verdict])
        table.add_row(objective, word, _ratio(v), Text("\n".join([*v.because, *_flips(plan, v)])))
    return table


def _ratio(v: Verdict) -> str:
    return "not known" if v.ratio is None else with_band(v.ratio).replace(" [", "\n[")


def _flips(plan: Plan, v: Verdict) -> list[str]:
    """Where the verdict flips, each unknown with the range it is believed to lie in."""
    bands = {i.name.removeprefix("link."): i.band for i in inputs(plan.case)}
    lines = []
    for name, x in v.critical.items():
        if x is not None:
            band = bands.get(name)
            believed = "" if band is None or band.is_exact else f" (believed {band.low:.3g} to {band.high:.3g})"
            lines.append(f"flips at {name} {x:.3g}{believed}")
    return lines or (["flips nowhere in the ranges tried"] if v.critical else [])


def contrast(plans: Mapping[str, Plan]) -> list[dict[str, Any]]:
    """Who wins what and because of which term: one row per scenario and objective."""
    rows = []
    for name, plan in plans.items():
        for objective in OBJECTIVES:
            v = plan.verdicts.get(objective)
            if v is not None:
                r = v.ratio
                rows.append(
                    {
                        "scenario": name,
                        "objective": objective,
                        "strategy": v.strategy,
                        "verdict": v.verdict,
                        "ratio": r.value if r else None,
                        "low": r.low if r else None,
                        "high": r.high if r else None,
                        "because": list(v.because),
                    }
                )
    return rows


def contrast_table(plans: Mapping[str, Plan], objectives: Sequence[str] = ("time", "traffic", "flops", "money")) -> Any:
    """The contrast as a table: a row per scenario, a column per objective, the deciding term of the time ratio last."""
    from rich.table import Table
    from rich.text import Text

    table = Table(
        title="draft and review against strong-only: ratio [90 % interval]", title_justify="left", show_lines=True
    )
    for heading in ("scenario", *objectives, "what decides the time"):
        table.add_column(heading)
    for name, plan in plans.items():
        cells: list[Any] = []
        for objective in objectives:
            v = plan.verdicts[objective]
            cells.append(Text(f"{_WORDS[v.verdict]}\n{_ratio(v)}", style=_STYLES[v.verdict]))
        table.add_row(name, *cells, "\n".join(plan.verdicts["time"].because))
    return table


def contrast_markdown(
    plans: Mapping[str, Plan], objectives: Sequence[str] = ("time", "traffic", "flops", "money")
) -> str:
    """The same as a Markdown table, for documents."""
    lines = [
        "| scenario | " + " | ".join(objectives) + " | what decides the time |",
        "|---" * (len(objectives) + 2) + "|",
    ]
    for name, plan in plans.items():
        cells = []
        for objective in objectives:
            v = plan.verdicts[objective]
            ratio = "not known" if v.ratio is None else with_band(v.ratio)
            cells.append(f"**{_WORDS[v.verdict]}** {ratio}")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " | " + "; ".join(plan.verdicts["time"].because) + " |")
    return "\n".join(lines)
