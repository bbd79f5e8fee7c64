"""The fake engine counts honestly: its tokens follow from the rendered prompts, its passes from `plan_request`."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from costmodel.pricing import Pricing
from costmodel.protocol import Role
from costmodel.request import cached_tokens, plan_request
from simulator.case import Case, prepare
from simulator.scenario_file import load_scenario
from validate.chat import Message, ToolSpec, ToolUse
from validate.engine import Ask
from validate.fake import FakeEngine, Scripted, VirtualClock, Words, common_chars, rendered, tokens_of

PLAIN, HYBRID = "llama-a100", "retail-h200"
TOOLS = (ToolSpec(name="look", description="looks", parameters={"type": "object"}),)


class Fixed:
    """A behaviour with one answer to everything."""

    def __init__(self, words: Words | None = None, accepted: int = 1) -> None:
        self.words, self.accepted = words or Words(text="Done."), accepted

    def write(self, ask: Ask) -> Words:
        return self.words

    def judge(self, ask: Ask, segment: Any) -> int:
        return self.accepted


def case_of(name: str) -> Case:
    return prepare(load_scenario(name, []))


def engine_of(name: str, behaviour: Any = None, role: Role = Role.STRONG) -> FakeEngine:
    return FakeEngine(role, Pricing(case_of(name).sites), behaviour or Fixed(), VirtualClock())


def chat(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(role="user", text=t) for t in texts)


def ask(messages: tuple[Message, ...], kind: Any = "write", labels: tuple[str, ...] = (), **more: Any) -> Ask:
    conversation = more.pop("conversation", "c")
    return Ask(
        role=Role.STRONG, kind=kind, conversation=conversation, messages=messages, tools=TOOLS, labels=labels, **more
    )


def answers(engine: FakeEngine, *asks: Ask) -> list[Any]:
    async def go() -> list[Any]:
        return [await engine.ask(a) for a in asks]

    return asyncio.run(go())


def prompt_of(messages: tuple[Message, ...]) -> str:
    return rendered(messages, TOOLS) + "<assistant>"


@pytest.mark.parametrize(("text", "n"), [("", 1), ("abc", 1), ("abcd", 1), ("abcde", 2), ("x" * 4001, 1001)])
def test_four_characters_are_a_token(text: str, n: int) -> None:
    assert tokens_of(text) == n


@pytest.mark.parametrize(
    ("a", "b", "n"), [("", "", 0), ("a", "", 0), ("abc", "abd", 2), ("ab", "abc", 2), ("𝄞é\ud800x", "𝄞é\ud800y", 3)]
)
def test_the_common_prefix_counts_characters(a: str, b: str, n: int) -> None:
    assert common_chars(a, b) == common_chars(b, a) == n


def test_a_longer_chat_extends_a_shorter_ones_text() -> None:
    use = ToolUse(id="call_0_0", name="look", arguments={"b": 1, "a": 2})
    messages = (*chat("one"), Message(role="assistant", text="x", tool_uses=(use,)), *chat("two"))
    for n in range(len(messages)):
        assert rendered(messages, TOOLS).startswith(rendered(messages[:n], TOOLS))


@pytest.mark.parametrize("name", [PLAIN, HYBRID])
def test_counts_are_those_of_plan_request_on_the_rendered_prompts(name: str) -> None:
    """Chats that grow, diverge and come back: the engine's counts beside a reckoning from texts and rule alone."""
    engine = engine_of(name)
    rule = engine.pricing.rules[Role.STRONG]
    base = "b" * (rule.block_tokens * 4 * 2 + 37)
    grown = (base, base + "c" * 3000, base + "c" * 3000 + "d" * 9000)
    chats = [chat(grown[0]), chat(grown[0], "x" * 5000), chat(grown[0], "x" * 5000, "y" * 40_000), chat(grown[1]),
             chat(grown[2]), chat(grown[0], "x" * 5000, "z" * 100), chat("other")]  # fmt: skip
    known: list[tuple[str, tuple[int, ...]]] = []
    for messages, a in zip(chats, answers(engine, *(ask(m) for m in chats)), strict=True):
        prompt = prompt_of(messages)
        n, out = math.ceil(len(prompt) / 4), math.ceil(len("Done.</assistant>\n") / 4)
        shared = [(common_chars(prompt, text) // 4, saved) for text, saved in known]
        if rule.state_aligned:
            reusable = max((s for c, saved in shared for s in saved if s <= c), default=0)
        else:
            reusable = max((min(c, max(saved)) for c, saved in shared), default=0)
        plan = plan_request(rule, n, reusable, out)
        assert (a.prompt_tokens, a.cached_tokens, a.output_tokens) == (n, plan.cached_tokens, out)
        assert a.cached_tokens % rule.block_tokens == 0
        assert (a.server["prefill_passes"], a.server["decode_passes"]) == (len(plan.passes), out - 1)
        known.append((prompt + "Done.</assistant>\n", plan.saved_tokens))
    assert len({k for _, k in known}) > 1


def test_a_prefix_is_cached_in_whole_blocks_and_never_the_last_token() -> None:
    engine = engine_of(PLAIN)
    block = engine.pricing.rules[Role.STRONG].block_tokens
    first, again = answers(engine, ask(chat("a" * 4000)), ask(chat("a" * 4000)))
    assert first.cached_tokens == 0
    n = first.prompt_tokens
    assert again.cached_tokens == (n - 1) // block * block
    assert again.cached_tokens < n


def test_a_hybrid_reuses_only_states_that_a_pass_has_saved() -> None:
    engine = engine_of(HYBRID)
    rule = engine.pricing.rules[Role.STRONG]
    assert rule.state_aligned
    block = rule.block_tokens
    long = "a" * (block * 4 * 3)
    first, cut, again = answers(
        engine,
        ask(chat(long + "b" * 4000)),
        ask(chat(long[: block * 4 * 2 + 400] + "c" * 9000)),
        ask(chat(long + "b" * 4000)),
    )
    assert first.cached_tokens == 0
    saved = plan_request(rule, first.prompt_tokens, 0, 5).saved_tokens
    limit = (
        common_chars(prompt_of(chat(long[: block * 4 * 2 + 400] + "c" * 9000)), prompt_of(chat(long + "b" * 4000))) // 4
    )
    assert cut.cached_tokens == max((s for s in saved if s <= limit), default=0)
    assert cut.cached_tokens < limit // block * block or limit // block * block in saved  # what is shared is not enough
    assert again.cached_tokens == max(saved)


def test_a_chat_that_grew_keeps_the_states_of_its_shorter_forms() -> None:
    """Three requests extend each other; one that leaves them behind the first still finds the first one's state."""
    engine = engine_of(HYBRID)
    block = engine.pricing.rules[Role.STRONG].block_tokens
    said = Message(role="assistant", text="Done.")
    one = chat("a" * (block * 8))
    two = (*one, said, *chat("b" * (block * 8)))
    three = (*two, said, *chat("c" * (block * 8)))
    other = (*one, *chat("other" * 99))
    cached = [a.cached_tokens for a in answers(engine, ask(one), ask(two), ask(three), ask(other))]
    first = tokens_of(prompt_of(one)) // block * block
    assert cached == [0, first, tokens_of(prompt_of(two)) // block * block, first]


def test_a_review_finds_the_drafted_prefix_of_its_own_role_only() -> None:
    engine = engine_of(PLAIN)
    block = engine.pricing.rules[Role.STRONG].block_tokens
    committed = chat("a" * 20_000)
    segment = (*committed, Message(role="assistant", text="b" * 400), *chat("seen " * 200))
    instruction = chat("How many are valid?")
    labels = ("0", "1")
    first, verdict, after = answers(
        engine, ask(committed), ask((*segment, *instruction), "verify", labels), ask((*segment, *chat("more")))
    )
    shared = (len(rendered(committed, TOOLS)) + len("<assistant>")) // 4
    assert verdict.cached_tokens == cached_tokens(engine.pricing.rules[Role.STRONG], verdict.prompt_tokens, shared)
    assert verdict.cached_tokens >= first.prompt_tokens - block - 4
    assert (verdict.text, verdict.output_tokens, verdict.server["decode_passes"]) == ("1", 1, 0)
    # what was reviewed is cached for the next request; the instruction is not part of it
    assert after.cached_tokens >= len(rendered(segment, TOOLS)) // 4 - block
    assert after.cached_tokens > verdict.cached_tokens


def test_conversations_share_nothing_and_a_restart_forgets_all() -> None:
    engine = engine_of(PLAIN)
    m = chat("a" * 8000)
    one, other = answers(engine, ask(m), ask(m, conversation="d"))
    assert one.cached_tokens == other.cached_tokens == 0
    (again,) = answers(engine, ask(m))
    assert again.cached_tokens > 0
    engine.restart()
    (after,) = answers(engine, ask(m))
    assert after.cached_tokens == 0
    assert after.done_s - after.sent_s == pytest.approx(one.done_s - one.sent_s, rel=1e-12)


def test_memory_stays_bounded() -> None:
    engine = engine_of(PLAIN)
    answers(engine, *(ask(chat(f"{i}" * 40, f"{j}"), conversation=f"c{i}") for i in range(20) for j in range(40)))
    assert len(engine._computed) <= 8
    assert max(len(v) for v in engine._computed.values()) <= 32


def test_thinking_is_decoded_but_not_cached_nor_shown() -> None:
    silent, loud = (
        engine_of(PLAIN, Fixed(Words(text="x" * 4000))),
        engine_of(PLAIN, Fixed(Words(text="x" * 4000, thinking_tokens=500))),
    )
    m = chat("a" * 4000)
    long = (*m, Message(role="assistant", text="x" * 4000), *chat("next"))
    a, a2 = answers(silent, ask(m, max_tokens=5000), ask(long))
    b, b2 = answers(loud, ask(m, max_tokens=5000), ask(long))
    assert b.output_tokens == a.output_tokens + 500
    assert b.server["thinking_tokens"] == 500
    assert b2.cached_tokens < a2.cached_tokens
    assert b2.cached_tokens <= tokens_of(prompt_of(m))


def test_a_step_longer_than_its_budget_is_cut() -> None:
    (a,) = answers(engine_of(PLAIN, Fixed(Words(text="x" * 4000))), ask(chat("a"), max_tokens=10))
    assert (a.finish, a.output_tokens) == ("length", 10)


def test_the_clock_is_monotone_and_every_answer_takes_time() -> None:
    engine = engine_of(PLAIN)
    last_s = 0.0
    for a in answers(engine, *(ask(chat("a" * n)) for n in range(0, 4000, 400))):
        assert last_s == a.sent_s < a.first_token_s < a.done_s
        last_s = a.done_s
    assert engine.clock.now_s() == last_s


def test_a_clock_can_go_on_from_a_time() -> None:
    clock = VirtualClock(5.0)
    clock.spend(0.5)
    assert clock.now_s() == 5.5


# -- behaviour ------------------------------------------------------------------------------------------------------

SCRIPTS = {"c": [("look", {"a": 1}), ("change", {"b": 2})], "d": [("look", {"a": 9})]}


def scripted(**rates: float) -> Scripted:
    zero = {"weak_hazard": 0.0, "strong_hazard": 0.0, "detection": 1.0, "false_reject": 0.0}
    return Scripted(scripts=SCRIPTS, thinking={}, **{**zero, **rates})


def steps(*names: tuple[str, dict[str, Any]]) -> tuple[Message, ...]:
    return tuple(Message(role="assistant", tool_uses=(ToolUse(id="x", name=n, arguments=a),)) for n, a in names)


def review(n: int, step: int = 0) -> Ask:
    return ask(chat("q"), "verify", tuple(str(i) for i in range(n + 1)), step=step)


def test_a_faultless_model_follows_its_script_and_then_replies() -> None:
    wrote = [scripted().write(ask(chat("q"), step=i)) for i in range(4)]
    assert [[(u.name, u.arguments) for u in w.uses] for w in wrote] == [
        [("look", {"a": 1})], [("change", {"b": 2})], [], []
    ]  # fmt: skip
    assert all(w.text for w in wrote[2:])


def test_a_perfect_reviewer_stops_at_the_first_step_off_the_script() -> None:
    right, wrong = ("look", {"a": 1}), ("look", {"a": 2})
    judge = scripted().judge
    assert judge(review(2), steps(right, ("change", {"b": 2}))) == 2
    assert judge(review(2), steps(right, wrong)) == 1
    assert judge(review(2), steps(wrong, ("change", {"b": 2}))) == 0
    assert judge(review(1, step=1), steps(right, ("change", {"b": 2}))) == 1  # earlier steps are not judged again
    assert judge(review(1, step=2), (*steps(right), Message(role="assistant", text="Done."))) == 1
    assert judge(review(1, step=0), (Message(role="assistant", text="Done."),)) == 0


def test_rates_of_one_always_err() -> None:
    assert scripted(false_reject=1.0).judge(review(1), steps(("look", {"a": 1}))) == 0
    assert scripted(detection=0.0).judge(review(1), steps(("look", {"a": 2}))) == 1
    everything = [a for script in SCRIPTS.values() for a in script]
    wrote = scripted(weak_hazard=1.0, strong_hazard=1.0).write(ask(chat("q")))
    assert (wrote.uses[0].name, wrote.uses[0].arguments) in everything


def test_the_same_question_gets_the_same_answer_whenever_it_is_asked() -> None:
    """So a run that was cut and asks again goes the same way."""
    one, two = scripted(strong_hazard=0.5, detection=0.5), scripted(strong_hazard=0.5, detection=0.5)
    asks = [ask(chat("q"), step=i) for i in range(2)]
    assert [one.write(a) for a in asks] == [two.write(a) for a in reversed(asks)][::-1]
