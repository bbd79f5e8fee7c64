"""What each model finds in its cache, against a reference that remembers every token sequence it ever computed."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from costmodel.protocol import Role
from costmodel.request import CacheRule, plan_request
from costmodel.rounds import play_round
from costmodel.session import EngineRequest, ProtocolSizes, Session, ToolRun
from costmodel.strategies import strategy
from costmodel.task import Task, TaskStep
from costmodel.trajectory import RUNS_FREELY, Effect

PAGE = CacheRule(block_tokens=4, chunk_tokens=32)
TOKEN = CacheRule(block_tokens=1, chunk_tokens=1000)
ALIGNED = CacheRule(block_tokens=8, chunk_tokens=20, state_aligned=True)
PRICED = CacheRule(block_tokens=1, chunk_tokens=1 << 30, keeps_output=False)


def make_step(index, effect=Effect.READ, visible=5, weak=5, strong=5, observation=7, tool_s=1.0):
    return TaskStep(index, effect, visible, visible + weak, visible + strong, observation, tool_s)


class Reference:
    """Token sequences with identities: a hit is the longest computed prefix, whatever books anybody keeps."""

    def __init__(self, task, rules, sizes):
        self.task, self.rules, self.sizes = task, rules, sizes
        self.version = [0] * len(task.steps)
        self.computed = {r: [] for r in Role}  # sequences
        self.states = {r: set() for r in Role}  # prefixes with a saved recurrent state
        self.fresh = count()

    def prompt(self, role, steps, *, held_end=False):
        tokens = [("start", role, i) for i in range(dict(self.task.prompts)[role])]
        for j in range(steps):
            step = self.task.steps[j]
            who = (j, self.version[j])
            tokens += [("step", *who, i) for i in range(step.visible)]
            if not (held_end and j == steps - 1 and step.effect not in RUNS_FREELY):
                tokens += [("seen", *who, i) for i in range(step.observation)]
        return tokens

    def unique(self, n):
        return [("once", next(self.fresh)) for _ in range(n)]

    def hit(self, role, prompt):
        rule = self.rules[role]
        if rule.state_aligned:
            found = max(
                (len(s) for s in self.states[role] if len(s) < len(prompt) and tuple(prompt[: len(s)]) == s), default=0
            )
        else:
            found = max((common(prompt, old) for old in self.computed[role]), default=0)
        return min(found, len(prompt) - 1) // rule.block_tokens * rule.block_tokens

    def ran(self, role, prompt, output, plan):
        rule = self.rules[role]
        self.computed[role].append([*prompt, *(output[:-1] if rule.keeps_output else [])])
        for p in plan.passes:
            end = p.context_tokens + p.new_tokens
            if end % rule.block_tokens == 0:
                self.states[role].add(tuple(prompt[:end]))


def common(a, b):
    n = 0
    for x, y in zip(a, b, strict=False):
        if x != y:
            break
        n += 1
    return n


def check_against_reference(task, plan_of_strategy, bits, rules, sizes):
    reference = Reference(task, rules, sizes)
    session = Session(task, rules, sizes)
    asked = 0
    while session.remaining:
        # leave and come back between rounds: the state must carry everything the future depends on
        session = Session(task, rules, sizes, session.state if session.index else None)
        start = session.index

        def verdict(first, n):
            return next((m for m in range(n) if not bits[first + m]), n)

        game, plan, review, n_drafted = play_round(session, plan_of_strategy, verdict), None, [], 0
        while True:
            try:
                work = game.send(plan)
            except StopIteration:
                break
            if isinstance(work, ToolRun):
                plan = None
                continue
            role, step = work.role, task.steps[work.step]
            if work.kind == "verify":
                prompt = [
                    *reference.prompt(role, start + n_drafted, held_end=True),
                    *reference.unique(sizes.instruction_tokens),
                ]
                output = reference.unique(work.output_tokens)
                review = [*prompt, *output]
            else:
                if work.kind == "repair" or (work.kind == "draft" and work.step == start):
                    for j in range(work.step, len(task.steps)):
                        reference.version[j] += 1  # what stands from here on is another text than any before
                prompt = reference.prompt(role, work.step)
                if work.kind == "repair" and sizes.repair_mode == "continue":
                    prompt = review
                own = [("step", work.step, reference.version[work.step], i) for i in range(step.visible)]
                output = [*reference.unique(work.output_tokens - step.visible), *own]
                n_drafted = work.step - start + 1
            assert work.prompt_tokens == len(prompt)
            plan = plan_request(rules[role], work.prompt_tokens, work.reusable_tokens, work.output_tokens)
            assert plan.cached_tokens == reference.hit(role, prompt), (work.kind, work.step)
            reference.ran(role, prompt, output, plan)
            assert work.spans[-1][1] == work.prompt_tokens
            assert [end for _, end in work.spans] == sorted({end for _, end in work.spans})
            asked += 1
    return asked


steps = st.lists(
    st.tuples(
        st.sampled_from(list(Effect)), st.integers(1, 9), st.integers(0, 3), st.integers(0, 3), st.integers(0, 12)
    ),
    min_size=1,
    max_size=7,
)


@given(
    steps,
    st.data(),
    st.sampled_from([PAGE, TOKEN, ALIGNED]),
    st.sampled_from([PAGE, TOKEN, ALIGNED, PRICED]),
    st.sampled_from(["fresh", "continue"]),
    st.sampled_from(
        [("strong_only", 1), ("weak_only", 1), ("step_verification", 1), ("spec_agent", 2), ("spec_agent", 5)]
    ),
)
def test_hits_are_those_of_a_cache_that_remembers_everything(drawn, data, weak_rule, strong_rule, mode, which):
    task = Task(
        "t",
        ((Role.WEAK, data.draw(st.integers(1, 20))), (Role.STRONG, data.draw(st.integers(1, 20)))),
        0,
        tuple(make_step(i, *d) for i, d in enumerate(drawn)),
    )
    sizes = ProtocolSizes(data.draw(st.integers(0, 6)), data.draw(st.integers(1, 4)), mode)
    bits = data.draw(st.lists(st.booleans(), min_size=len(drawn), max_size=len(drawn)))
    rules = {Role.WEAK: weak_rule, Role.STRONG: strong_rule}
    assert check_against_reference(task, strategy(*which), bits, rules, sizes) > 0


SHORT = ProtocolSizes(3, 2)


def requests_of(task, which, bits, rules, sizes=SHORT):
    session, out = Session(task, rules, sizes), []
    while session.remaining:
        game = play_round(session, which, lambda s, n: next((m for m in range(n) if not bits[s + m]), n))
        plan = None
        while True:
            try:
                work = game.send(plan)
            except StopIteration:
                break
            plan = None
            if isinstance(work, EngineRequest):
                plan = plan_request(rules[work.role], work.prompt_tokens, work.reusable_tokens, work.output_tokens)
                out.append(work)
    return out


def two_reads(thinking=0):
    return Task(
        "t",
        ((Role.WEAK, 100), (Role.STRONG, 200)),
        0,
        tuple(make_step(i, weak=thinking, strong=thinking) for i in range(2)),
    )


BOTH_TOKEN = {Role.WEAK: TOKEN, Role.STRONG: TOKEN}


def test_strong_only_by_hand():
    first, second = requests_of(two_reads(), strategy("strong_only"), [], BOTH_TOKEN)
    assert (first.prompt_tokens, first.reusable_tokens, first.output_tokens) == (200, 0, 5)
    assert first.spans == (("prompt_prefill", 200),)
    # 5 tokens written, the last of them not yet cached, and 7 observed
    assert (second.prompt_tokens, second.reusable_tokens) == (212, 204)
    assert second.spans == (("reprefill", 204), ("observation_prefill", 212))


def test_thinking_leaves_the_context_and_takes_the_step_out_of_the_cache():
    _, second = requests_of(two_reads(thinking=50), strategy("strong_only"), [], BOTH_TOKEN)
    assert second.prompt_tokens == 212  # thinking is not in it
    assert second.reusable_tokens == 200  # what followed the thinking was computed at other positions


def test_a_rejected_segment_by_hand():
    draft0, draft1, verify, repair, *rest = requests_of(
        two_reads(), strategy("spec_agent", 2), [False, True], BOTH_TOKEN
    )
    assert (draft0.prompt_tokens, draft1.prompt_tokens) == (100, 112)
    assert draft1.reusable_tokens == 104
    # the review sees both steps and both observations, and the instruction
    assert (verify.prompt_tokens, verify.reusable_tokens, verify.output_tokens) == (200 + 24 + 3, 0, 2)
    assert verify.spans == (("prompt_prefill", 200), ("verify_prefill", 227))
    # a fresh repair finds all of the committed context, and recomputes its last token
    assert (repair.prompt_tokens, repair.reusable_tokens, repair.output_tokens) == (200, 199, 5)
    assert repair.spans == (("reprefill", 200),)
    draft, verify2 = rest
    # the weak model saw nothing of the repair: its cache ends at the old prompt
    assert (draft.prompt_tokens, draft.reusable_tokens) == (112, 100)
    # the strong one wrote the repair: 200 + 5 - 1
    assert (verify2.prompt_tokens, verify2.reusable_tokens) == (200 + 24 + 3, 204)
    assert verify2.spans == (("reprefill", 204), ("observation_prefill", 212), ("verify_prefill", 227))


def test_a_held_step_is_reviewed_without_its_observation():
    task = Task("t", ((Role.WEAK, 100), (Role.STRONG, 200)), 0, (make_step(0, Effect.WRITE), make_step(1)))
    _, verify, _, verify2 = requests_of(task, strategy("spec_agent", 4), [True, True], BOTH_TOKEN)
    assert verify.prompt_tokens == 200 + 5 + 3
    # its observation is pending afterwards and goes into the next review
    assert verify2.reusable_tokens == 205
    assert verify2.spans == (("reprefill", 205), ("observation_prefill", 212), ("verify_prefill", 227))


def test_a_continued_repair_stands_behind_the_verdict():
    sizes = ProtocolSizes(3, 2, "continue")
    _, _, verify, repair, *_ = requests_of(two_reads(), strategy("spec_agent", 2), [False, True], BOTH_TOKEN, sizes)
    assert repair.prompt_tokens == verify.prompt_tokens + 2
    assert repair.reusable_tokens == repair.prompt_tokens - 1


def test_a_priced_api_pays_its_own_output_again_as_input():
    rules = {Role.WEAK: TOKEN, Role.STRONG: PRICED}
    _, second = requests_of(two_reads(), strategy("strong_only"), [], rules)
    assert (second.prompt_tokens, second.reusable_tokens) == (212, 200)
    # 5 of its own tokens and 7 observed are new input, nothing is computed twice
    assert second.spans == (("reprefill", 200), ("observation_prefill", 212))


def test_a_shared_prefix_is_found_by_the_first_request():
    task = Task("t", ((Role.WEAK, 100), (Role.STRONG, 200)), 64, (make_step(0),))
    first = requests_of(task, strategy("strong_only"), [], BOTH_TOKEN)[0]
    assert first.reusable_tokens == 64
    assert first.spans == (("reprefill", 64), ("prompt_prefill", 200))


def test_a_state_at_the_very_end_of_a_prompt_cannot_be_used_but_the_one_before_can():
    # prompts of 16 = two blocks of 8: after the first request states exist at 16 only when one pass reached it;
    # a budget of 8 saves both 8 and 16, and a prompt of exactly 16 must fall back to 8
    rule = CacheRule(block_tokens=8, chunk_tokens=8, state_aligned=True)
    task = Task("t", ((Role.WEAK, 16), (Role.STRONG, 16)), 0, (make_step(0), make_step(1)))
    rules = {Role.WEAK: rule, Role.STRONG: rule}
    _, verify, repair, *_ = requests_of(task, strategy("spec_agent", 1), [False, True], rules)
    assert verify.kind == "verify"
    assert (repair.prompt_tokens, repair.reusable_tokens) == (16, 8)


def test_a_round_must_commit():
    session = Session(two_reads(), BOTH_TOKEN, ProtocolSizes())
    with pytest.raises(ValueError, match="must commit between 1 and 2"):
        session.commit(0, None)
    with pytest.raises(ValueError, match="must commit between 1 and 2"):
        session.commit(3, None)
