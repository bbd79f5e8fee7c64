"""A plan as text: the table of strategies, verdicts in sentences, and one table over several scenarios."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from simulator.outcome import OBJECTIVES
from simulator.verdict import Verdict, scale_of

if TYPE_CHECKING:
    from costmodel.prediction import Prediction
    from simulator.plan import Plan

_COLUMNS = {
    "time_s": ("time", "s"),
    "traffic_bytes": ("memory traffic", "bytes"),
    "flops": ("FLOPs", "FLOP"),
    "energy_j": ("energy", "J"),
    "usd": ("money", "USD"),
    "success": ("success", ""),
    "strong_output_tokens": ("strong tokens", ""),
}
_WORDS = {"wins": "wins", "loses": "loses", "cannot_tell": "cannot tell"}
_STYLES = {"wins": "green", "loses": "red", "cannot_tell": "yellow"}


def cell(p: Prediction | None, unit: str) -> str:
    """A prediction in one table cell, value over interval."""
    if p is None:
        return "not known"
    if unit:
        scale, name = scale_of(p.value, unit)
        value, low, high = (f"{x / scale:.3g}" for x in (p.value, p.low, p.high))
        return f"{value} {name}\n[{low}, {high}]"
    digits = 2 if 0.0 < p.value <= 1.0 and p.high <= 1.0 else 0
    return f"{p.value:.{digits}f}\n[{p.low:.{digits}f}, {p.high:.{digits}f}]"


def plan_table(plan: Plan) -> Any:
    """The plan for a terminal: strategies, verdicts, recommendation, what would settle the rest."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    case = plan.case
    table = Table(title=case.scenario.title, caption="per task; 90 % intervals below", title_justify="left")
    table.add_column("strategy")
    for name, _ in _COLUMNS.values():
        table.add_column(name, justify="right")
    for strategy, row in plan.predictions.items():
        label = f"{strategy} (window {plan.outcomes[strategy].window})" if strategy == "spec_agent" else strategy
        table.add_row(label, *(cell(row[c], unit) for c, (_, unit) in _COLUMNS.items()))
    verdicts = Table(title="against strong-only", title_justify="left", show_lines=True)
    for heading in ("objective", "verdict", "ratio", "because", "flips at"):
        verdicts.add_column(heading)
    for objective, v in plan.verdicts.items():
        shown = "\n".join(v.because)
        word = Text(f"{v.strategy}\n{_WORDS[v.verdict]}", style=_STYLES[v.verdict])
        verdicts.add_row(objective, word, _ratio(v), shown, _flips(v))
    weak, strong = (site.server.label for site in case.sites.values())
    r = plan.recommended
    window = f", window {r['window']}" if r["window"] else ""
    lines = [
        f"weak: {weak}; strong: {strong}",
        f"acceptance {case.acceptance.value:.2f} [{case.acceptance.low:.2f}, {case.acceptance.high:.2f}], {case.rung}",
        f"recommended: {r['strategy']}{window} ({r['why']})",
    ]
    settled = plan.verdicts[r["objective"]].verdict != "cannot_tell" if plan.settle else True
    lines += [s if settled else f"to settle {s}" for s in plan.settle] + [f"note: {w}" for w in plan.warnings]
    return Group(table, verdicts, *(Text(line) for line in lines))


def _ratio(v: Verdict) -> str:
    return "not known" if v.ratio is None else f"{v.ratio.value:.2f}\n[{v.ratio.low:.2f}, {v.ratio.high:.2f}]"


def _flips(v: Verdict) -> str:
    found = [f"{k} {x:.3g}" for k, x in v.critical.items() if x is not None]
    return "\n".join(found) or ("nowhere in range" if v.critical else "")


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
            ratio = "not known" if v.ratio is None else f"{v.ratio.value:.2f} [{v.ratio.low:.2f}, {v.ratio.high:.2f}]"
            cells.append(f"**{_WORDS[v.verdict]}** {ratio}")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " | " + "; ".join(plan.verdicts["time"].because) + " |")
    return "\n".join(lines)
