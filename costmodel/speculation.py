"""Token-level speculation inside an engine: how many tokens a decode pass yields and what drafts them.

    E = 1 + a + a^2 + .. + a^g = (1 - a^(g+1)) / (1 - a)

tokens per pass, for g drafted tokens of which each is kept with chance a if all before it were. The rule is a fluid
one: pass i of a request sees prompt + i E tokens, and n output tokens beyond the first take ceil(n / E) passes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from costmodel.arch import LinearAttention, ModelArch
from costmodel.models import model as find_model
from hwprofiles.errors import InputError

MTP_FAMILIES: frozenset[str] = frozenset(
    {"qwen3_5", "qwen3_5_moe", "deepseek_v3", "deepseek_v32", "glm4_moe", "glm_moe_dsa"}
)
"""Families whose checkpoints carry one multi-token-prediction layer (model cards and configurations, 2024 to 2026)."""

MOST_DRAFTED = 15
"""Longest draft; engines propose one to eight tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpeculation:
    """How a deployment drafts tokens while decoding.

    Parameters
    ----------
    method : "mtp" or "draft"
        The model's own prediction layer, run once per drafted token, or a smaller model beside it.
    length : int
        Drafted tokens per pass, g >= 0.
    acceptance : float
        Chance that a drafted token is kept, given that all before it were.
    model : ModelArch
        What drafts: the smaller model, or the prediction layer as a model of one layer.
    weight_dtype : str or None
        Storage of the draft model's weights; None: as the deployment's (`mtp`), as its checkpoint says (`draft`).

    Limits
    ------
    One acceptance for all positions; a linear draft, no tree; the drafter runs on the same devices, split the same
    way. Time between drafting and checking that engines spend on the host is not counted apart.
    """

    method: Literal["mtp", "draft"]
    length: int
    acceptance: float
    model: ModelArch
    weight_dtype: str | None = None

    @property
    def pass_tokens(self) -> int:
        """Tokens that a pass checks per sequence, g + 1."""
        return self.length + 1

    @property
    def tokens_per_pass(self) -> float:
        """Expected tokens that a pass yields per sequence, E."""
        return math.fsum(self.acceptance**i for i in range(self.length + 1))


def token_speculation(
    model: str | ModelArch,
    method: str,
    *,
    length: int,
    acceptance: float,
    draft_model: str | ModelArch | None = None,
    draft_weight_dtype: str | None = None,
) -> TokenSpeculation:
    """The decode option of a deployment of `model`.

    Raises
    ------
    InputError
        Unknown method, a count or chance out of range, a model without a prediction layer, or a draft model that is
        missing, superfluous or of another vocabulary.
    """
    if not 0 <= length <= MOST_DRAFTED:
        raise InputError(f"decode length must be 0 to {MOST_DRAFTED} drafted tokens, got {length}")
    if not 0 <= acceptance <= 1:
        raise InputError(f"decode acceptance must be 0 to 1, got {acceptance:g}")
    arch = find_model(model) if isinstance(model, str) else model
    if method == "mtp":
        if draft_model is not None or draft_weight_dtype is not None:
            raise InputError("decode method 'mtp' drafts with the model's own layer; draft_model has no effect")
        return TokenSpeculation(method="mtp", length=length, acceptance=acceptance, model=prediction_layer(arch))
    if method != "draft":
        raise InputError(f"decode method must be 'mtp' or 'draft', got {method!r}")
    if draft_model is None:
        raise InputError("decode method 'draft' needs a draft_model")
    draft = find_model(draft_model) if isinstance(draft_model, str) else draft_model
    if abs(draft.vocab - arch.vocab) > 0.02 * arch.vocab:  # padded sizes of one tokeniser differ by a little
        raise InputError(
            f"draft_model {draft.name} has {draft.vocab} tokens in its vocabulary and {arch.name} {arch.vocab}; a "
            "draft model needs the same tokeniser"
        )
    return TokenSpeculation(
        method="draft", length=length, acceptance=acceptance, model=draft, weight_dtype=draft_weight_dtype
    )


def prediction_layer(arch: ModelArch) -> ModelArch:
    """The multi-token-prediction layer as a model of one layer: the last layer with attention over the whole context.

    Embedding and head are the model's own.
    """
    if arch.family not in MTP_FAMILIES:
        raise InputError(
            f"{arch.name}: no multi-token-prediction layer is known of family {arch.family!r} (known: "
            f"{', '.join(sorted(MTP_FAMILIES))}); use method 'draft' with a draft_model"
        )
    layer = next(layer for layer in reversed(arch.layers) if not isinstance(layer.attention, LinearAttention))
    return replace(arch, name=f"{arch.name} prediction layer", layers=(layer,))
