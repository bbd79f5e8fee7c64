"""How reviews went: the acceptance they show, beside the one that a scenario assumes."""

from __future__ import annotations

from collections.abc import Mapping

from validate.journal import Journal


def verdicts(journal: Journal, assumed: float) -> dict[str, float]:
    """Acceptance per drafted step that was reached, as `acceptance_interval`; empty where nothing was reviewed.

    Parameters
    ----------
    assumed : float
        The scenario's acceptance.
    """
    said = [e for e in journal.events() if e["kind"] == "verdict"]
    kept = sum(e["accepted"] for e in said)
    reached = kept + sum(e["accepted"] < e["reviewed"] for e in said)
    if not reached:
        return {}
    return {"reviews": len(said), **acceptance_interval(kept, reached), "assumed": assumed}


def acceptance_interval(kept: int, reached: int) -> Mapping[str, float]:
    """kept / reached with its exact 90 % interval (Clopper and Pearson 1934).

    A step is reached where all before it in its segment were kept: a review of n steps that keeps m < n reaches m + 1.
    """
    from scipy.stats import beta

    low = float(beta.ppf(0.05, kept, reached - kept + 1)) if kept else 0.0
    high = float(beta.ppf(0.95, kept + 1, reached - kept)) if kept < reached else 1.0
    return {"kept": kept, "reached": reached, "acceptance": kept / reached, "low": low, "high": high}
