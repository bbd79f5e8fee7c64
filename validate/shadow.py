"""What SpecAgent's drafts and verdicts would be on tasks that a strong-only agent has played; nothing of it acts.

Before every step of the strong model the weak one is asked for its own, on the same chat, and the strong one to review
that single step. Neither a tool nor the agent's chat ever sees a draft.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from costmodel.protocol import Role
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Ask, ChatEngine
from validate.journal import Journal
from validate.round import INSTRUCTION, VERDICT_TOKENS
from validate.session import Job
from validate.steps import RealStep, answer_document, effect_of, from_document, same_calls
from validate.verdicts import acceptance_interval

_LABELS = ("0", "1")
_MAX_TOKENS = 512


async def shadow(
    journal: Journal, jobs: Sequence[Job], engines: Mapping[Role, ChatEngine], tools: Any, n_tasks: int
) -> dict[str, Any]:
    """Acceptance, verdict length and verbosity over the first `n_tasks` jobs that the journal has steps of.

    Parameters
    ----------
    journal : Journal
        Of a strong-only run.
    tools : Tools
        Only their descriptions and effects are used.

    Returns
    -------
    dict
        `acceptance` with its 90 % interval, `same_call` (share of drafts that make the strong model's call),
        `garbled` verdicts, mean `verdict_tokens`, `verbosity` (weak over strong tokens of the same steps), `steps`.

    Limits
    ------
    Every draft stands behind a history that the strong model wrote, so this is the acceptance of the first step of a
    window; `specroof acceptance` has laws for those behind it. A draft that is cut or malformed counts as rejected.
    """
    said: list[dict[str, Any]] = []
    for job in [j for j in jobs if journal.committed(j.name)][:n_tasks]:
        chat = list(job.messages)
        for document in journal.committed(job.name):
            for step in map(from_document, document["steps"]):
                said.append(await _one(job.name, len(said), chat, step, engines, tools))
                chat.extend(step.messages())
    if not said:
        return {}
    kept = sum(s["accepted"] for s in said)
    return {
        **acceptance_interval(kept, len(said)),
        "steps": len(said),
        "same_call": sum(s["same"] for s in said) / len(said),
        "garbled": sum(s["garbled"] for s in said),
        "verdict_tokens": sum(s["verdict_tokens"] for s in said) / len(said),
        "verbosity": sum(s["weak_tokens"] for s in said) / max(1, sum(s["strong_tokens"] for s in said)),
    }


async def _one(
    task: str, number: int, chat: Sequence[Message], step: RealStep, engines: Mapping[Role, ChatEngine], tools: Any
) -> dict[str, Any]:
    """One draft beside one step, and its review."""
    place = sum(m.role == "assistant" for m in chat)
    specs: tuple[ToolSpec, ...] = tools.specs
    ask = Ask(
        role=Role.WEAK,
        kind="draft",
        conversation=task,
        step=place,
        messages=tuple(chat),
        tools=specs,
        max_tokens=_MAX_TOKENS,
    )
    answer = answer_document(await engines[Role.WEAK].ask(ask))
    uses = tuple(
        ToolUse(id=f"call_{place}_{i}", name=u["name"], arguments=u["arguments"])
        for i, u in enumerate(answer["tool_uses"] if not answer["malformed"] else ())
    )
    draft = RealStep(
        author=Role.WEAK,
        offset=0,
        effect=effect_of(tools.effect, uses, answer["text"], malformed=answer["malformed"]),
        text=answer["text"],
        uses=uses,
        malformed=answer["malformed"],
        keys=(f"shadow:{task}:{number}",),
        output_tokens=answer["output_tokens"],
    )
    instruction = Message(role="user", text=INSTRUCTION.format(n=1))
    review = Ask(
        role=Role.STRONG,
        kind="verify",
        conversation=task,
        step=place,
        messages=(*chat, *draft.messages(), instruction),
        tools=specs,
        labels=_LABELS,
        max_tokens=VERDICT_TOKENS,
    )
    verdict = await engines[Role.STRONG].ask(review)
    clear = verdict.finish != "length" and verdict.text.strip() in _LABELS
    return {
        "accepted": clear and verdict.text.strip() == "1" and not draft.malformed,
        "same": same_calls(draft, step) or (draft.is_final and step.is_final),
        "garbled": not clear,
        "verdict_tokens": verdict.output_tokens,
        "weak_tokens": draft.output_tokens,
        "strong_tokens": step.output_tokens,
    }
