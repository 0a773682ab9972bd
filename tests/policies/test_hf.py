"""The transformers engine against plain forward passes: batching, sharing and adapters change no number."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from arlas.config import LoraConfig
from arlas.policies.hf import HFConfig, HFPolicy
from arlas.policies.models import load_model, load_tokenizer, resolve
from arlas.policies.prefix import PrefixStore, Prompt, plan
from arlas.policies.sampling import draw, filter_logits
from arlas.types import (
    AdapterError,
    Completion,
    ConfigurationError,
    PolicyError,
    PolicyRef,
    Request,
    Sampling,
    Seat,
    StopReason,
)
from tests.conftest import ARCHITECTURES, RandomAdapter

PLAIN = Sampling(temperature=1.2, max_tokens=12)


def build(model: str = "tiny-llama", **options: Any) -> HFPolicy:
    return HFConfig(model=model, device="cpu", **options).build(LoraConfig())


@pytest.fixture(params=ARCHITECTURES)
def arch(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def llama() -> Iterator[HFPolicy]:
    policy = build(prefix_cache_tokens=0)
    yield policy
    policy.close()


def ask(
    prompt: Sequence[int], sampling: Sampling = PLAIN, seed: int = 0, adapter: str | None = None
) -> Request:
    return Request(PolicyRef(Seat.AGENT, "x", adapter), tuple(prompt), sampling, seed)


def together(policy: HFPolicy, requests: Sequence[Request]) -> list[Completion]:
    async def gather() -> list[Completion]:
        return list(await asyncio.gather(*(policy.complete(r) for r in requests)))

    return asyncio.run(gather())


async def decoding(policy: HFPolicy) -> None:
    """Waits until the engine is at work."""
    while not policy.engine.rows:
        await asyncio.sleep(0.001)


def mixed_requests(model: str, n: int, adapters: Sequence[str | None]) -> list[Request]:
    """Greedy and sampled, short and longer than Gemma's window, every adapter, some prompts twice."""
    tokenizer = load_tokenizer(model)
    shared = tokenizer("the user text password and the phone " * 6).input_ids
    requests = []
    for i in range(n):
        own = tokenizer("click the button " * (i % 5)).input_ids or [1]
        prompt = own if i % 3 == 0 else [*shared, *own, 7 + i // 6]
        sampling = Sampling(temperature=(0.0, 1.0, 1.2)[i % 3], max_tokens=4 + (7 * i) % 11)
        requests.append(ask(prompt, sampling, seed=i, adapter=adapters[i % len(adapters)]))
    return requests + requests[1:4]


def plain_logprobs(model: Any, request: Request, completion: Completion) -> torch.Tensor:
    """One forward pass over prompt and reply, by transformers alone."""
    prompt, reply = request.prompt_ids, completion.token_ids
    with torch.no_grad():
        logits = model(torch.tensor([prompt + reply])).logits[0, len(prompt) - 1 : -1]
    logprobs = torch.log_softmax(logits.float() / (request.sampling.temperature or 1.0), -1)
    return logprobs.gather(1, torch.tensor(reply)[:, None])[:, 0]


def close_to(a: Completion, b: Completion, tolerance: float = 1e-4) -> bool:
    return a.token_ids == b.token_ids and all(
        abs(x - y) <= tolerance for x, y in zip(a.logprobs, b.logprobs, strict=True)
    )


# --- numbers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("max_stacked", [256, 0])
def test_adapters_mixed_in_a_batch_answer_as_alone(
    arch: str, max_stacked: int, random_adapter: RandomAdapter
) -> None:
    """Base and two adapters in one batch: tokens equal one-by-one, log-probabilities equal plain forwards.

    Both where all adapters are multiplied at once and where PEFT's own mixed batches serve (0 ranks).
    """
    policy = build(arch)
    policy._adapted.max_stacked = max_stacked
    paths = {"agent/rl-1.5": random_adapter(arch, 1), "attacker": random_adapter(arch, 2, 8)}
    for name, path in paths.items():
        policy.load_adapter(name, path)
    assert policy.adapters() == tuple(paths)
    requests = mixed_requests(arch, 12, [None, *paths])
    batch = together(policy, requests)
    alone = [together(policy, [r])[0] for r in requests]
    assert all(map(close_to, batch, alone))
    answers = {r.policy.adapter: c.token_ids for r, c in zip(requests, batch, strict=True)}
    assert len(set(answers.values())) == 3
    for name in (None, *paths):
        model = load_model(arch)
        if name is not None:
            model = peft.PeftModel.from_pretrained(model, paths[name])
        for request, completion in zip(requests, batch, strict=True):
            if request.policy.adapter == name:
                wanted = plain_logprobs(model, request, completion)
                assert torch.allclose(torch.tensor(completion.logprobs), wanted, atol=1e-4)
                if request.sampling.temperature == 0.0:
                    with torch.no_grad():
                        ids = torch.tensor([request.prompt_ids + completion.token_ids])
                        best = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].argmax(-1)
                    assert tuple(best.tolist()) == completion.token_ids
    policy.close()


def test_sharing_prefixes_changes_nothing_but_the_work(
    arch: str, random_adapter: RandomAdapter
) -> None:
    """Also across calls, beyond Gemma's window, with prompts computed piece by piece; and far less work."""
    outcomes, work = [], []
    for share in (True, False):
        policy = build(arch, share_prefix=share)
        policy.engine.chunk = 48
        policy.load_adapter("a", random_adapter(arch, 1))
        requests = mixed_requests(arch, 18, [None, "a"])
        outcomes.append([*together(policy, requests), *together(policy, requests)])
        work.append(policy.engine.computed_tokens)
        policy.close()
    assert all(map(close_to, *outcomes))
    assert work[0] < work[1] / 4
    assert work[1] == 2 * sum(len(r.prompt_ids) for r in requests)


def test_transformers_own_attention_agrees(arch: str) -> None:
    """The grouped attention gives what transformers' sdpa and eager give."""
    requests = mixed_requests(arch, 9, [None])
    ours, *others = (
        together(build(arch, attention=kind), requests)
        for kind in ("arlas_grouped", "sdpa", "eager")
    )
    for other in others:
        assert all(map(close_to, ours, other))


def test_invariant_03_generation_config_is_not_applied(arch: str) -> None:
    """The model brings top-k 50, top-p 0.9, T 0.7 and a penalty; what is drawn follows the full softmax."""
    defaults = transformers.GenerationConfig.from_pretrained(resolve(arch))
    assert (defaults.top_k, defaults.top_p, defaults.temperature) == (50, 0.9, 0.7)
    assert defaults.repetition_penalty == 1.1
    policy = build(arch, max_batch=512)
    prompt = load_tokenizer(arch)("the button").input_ids
    sampling = Sampling(temperature=1.3, max_tokens=1)
    drawn = together(policy, [ask(prompt, sampling, seed=i) for i in range(2000)])
    policy.close()
    with torch.no_grad():
        logits = load_model(arch)(torch.tensor([prompt])).logits[0, -1]
    exact = (logits / 1.3).softmax(-1).double()
    assert torch.allclose(
        torch.tensor([c.logprobs[0] for c in drawn]).double(),
        exact.log()[[c.token_ids[0] for c in drawn]],
        atol=1e-4,
    )
    # Ten sets of tokens of about equal mass, the rarest tokens in the last: a χ² test with 9 degrees.
    ordered, order = exact.sort(descending=True)
    bins = ((ordered.cumsum(0) - ordered / 2) * 10).long().clamp_max(9)
    expected = torch.zeros(10, dtype=torch.float64).index_add(0, bins, ordered) * len(drawn)
    bin_of = torch.empty_like(bins).scatter(0, order, bins)
    seen = torch.bincount(bin_of[[c.token_ids[0] for c in drawn]], minlength=10)
    assert float(((seen - expected) ** 2 / expected).sum()) < 33.7  # exceeded once in 10,000


@given(
    seed=st.integers(0, 1000),
    top_k=st.sampled_from([0, 1, 5, 40]),
    top_p=st.sampled_from([1.0, 0.3, 0.9]),
    min_p=st.sampled_from([0.0, 0.1]),
    penalty=st.sampled_from([1.0, 1.3]),
)
@settings(max_examples=60, deadline=None)
def test_filters_are_those_of_transformers(
    seed: int, top_k: int, top_p: float, min_p: float, penalty: float
) -> None:
    """Top-k, top-p, min-p and the repetition penalty, for evaluation, against transformers' own."""
    logits = torch.randn(50, generator=torch.Generator().manual_seed(seed)) * 3
    context = [1, 2, 2, 30]
    sampling = Sampling(0.8, top_p, top_k, min_p, penalty)
    ours = filter_logits(logits / 0.8, sampling, context)
    warpers: list[Any] = [transformers.TemperatureLogitsWarper(0.8)]
    if penalty != 1.0:
        warpers.insert(0, transformers.RepetitionPenaltyLogitsProcessor(penalty))
    if top_k:
        warpers.append(transformers.TopKLogitsWarper(top_k))
    if top_p < 1.0:
        warpers.append(transformers.TopPLogitsWarper(top_p))
    if min_p:
        warpers.append(transformers.MinPLogitsWarper(min_p))
    theirs = transformers.LogitsProcessorList(warpers)(torch.tensor([context]), logits[None])[0]
    assert torch.allclose(ours.softmax(-1), theirs.softmax(-1), atol=1e-6)
    (token,), (logprob,) = draw(logits[None], torch.tensor([0.999999]), [sampling], [context])
    assert theirs[token] > -torch.inf
    assert logprob == pytest.approx(float(theirs.log_softmax(-1)[token]), abs=1e-5)


def test_greedy_ignores_filters_but_not_the_penalty() -> None:
    """Temperature 0 takes the largest logit, with the log-probability of T = 1."""
    logits = torch.tensor([[1.0, 3.0, 2.9]])
    for sampling, token in ((Sampling(0.0, 0.1, 1), 1), (Sampling(0.0, repetition_penalty=2.0), 2)):
        tokens, logprobs = draw(logits, torch.tensor([0.1]), [sampling], [[1]])
        scores = torch.tensor([1.0, 1.5, 2.9]) if token == 2 else logits[0]
        assert tokens == [token]
        assert logprobs[0] == pytest.approx(float(scores.log_softmax(-1)[token]), abs=1e-6)


# --- batching ----------------------------------------------------------------------------------------


def test_games_with_instant_worlds_repeat_to_the_last_bit(random_adapter: RandomAdapter) -> None:
    """Chains of requests that depend on the last reply, rows joining and leaving: twice the same bits."""

    async def game(policy: HFPolicy, i: int) -> list[Completion]:
        prompt, done = [5 + i % 3] * (3 + i % 7), []
        for step in range(3):
            sampling = Sampling(1.2, max_tokens=1 + (3 * i + step) % 9)
            request = ask(
                prompt, sampling, seed=100 * i + step, adapter=(None, "a")[(i + step) % 2]
            )
            done.append(await policy.complete(request))
            prompt = [*prompt, *done[-1].token_ids]
        return done

    async def games(policy: HFPolicy) -> list[list[Completion]]:
        return list(await asyncio.gather(*(game(policy, i) for i in range(14))))

    runs = []
    for attempt in range(3):
        policy = build(max_batch=8, prefix_cache_tokens=256 if attempt == 2 else 0)
        policy.load_adapter("a", random_adapter("tiny-llama", 1))
        runs.append(asyncio.run(games(policy)))
        policy.close()
    assert runs[0] == runs[1]
    assert all(
        close_to(a, b)
        for x, y in zip(runs[0], runs[2], strict=True)
        for a, b in zip(x, y, strict=True)
    )


def test_64_requests_arriving_at_odd_times(arch: str) -> None:
    """Lengths from 1 to 200 tokens, more requests than rows: each answers as alone, and worlds go on meanwhile."""
    policy = build(arch, max_batch=16, max_batch_tokens=2048)
    requests = [
        ask(
            [3 + (i * j) % 300 for j in range(1 + (i * 37) % 200)],
            Sampling(1.2, max_tokens=1 + i % 20),
            i,
        )
        for i in range(64)
    ]
    ticks = 0

    async def late(i: int) -> Completion:
        await asyncio.sleep(0.002 * (i % 13))
        return await policy.complete(requests[i])

    async def run() -> list[Completion]:
        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        done = list(await asyncio.gather(*(late(i) for i in range(64))))
        ticking.cancel()
        return done

    batch = asyncio.run(run())
    assert ticks > 20
    alone = [together(policy, [r])[0] for r in requests[::7]]
    assert all(map(close_to, batch[::7], alone))
    assert [c.policy for c in batch] == [r.policy for r in requests]
    policy.close()


def test_replies_end_at_a_stop_token_or_at_the_limit(arch: str) -> None:
    """A sampled stop token, any of the model's, is the last of the reply and has a log-probability."""
    defaults = transformers.GenerationConfig.from_pretrained(resolve(arch))
    stops = set(
        defaults.eos_token_id
        if isinstance(defaults.eos_token_id, list)
        else [defaults.eos_token_id]
    )
    policy = build(arch, max_batch=96)
    done = together(policy, [ask([9, 10], Sampling(1.2, max_tokens=60), i) for i in range(96)])
    policy.close()
    ended = [c for c in done if c.stop_reason is StopReason.STOP]
    assert {c.token_ids[-1] for c in ended} == stops
    assert all(len(c.token_ids) == 60 for c in done if c.stop_reason is StopReason.LENGTH)
    for completion in done:
        inside = completion.token_ids[:-1] if completion in ended else completion.token_ids
        assert not stops & set(inside)
        assert len(completion.logprobs) == len(completion.token_ids)


def test_a_bad_request_fails_alone(llama: HFPolicy) -> None:
    """Too long for the budget or the context, no tokens, tokens that do not exist: a PolicyError each."""
    long = dataclasses.replace(PLAIN, max_tokens=40_000)
    bad = [ask([1] * 32_768), ask([1] * 30, long), ask([]), ask([1, 99_999]), ask([-1])]
    bad.append(ask([1], dataclasses.replace(PLAIN, max_tokens=0)))
    llama.config.max_batch_tokens = 1000

    async def run() -> list[Any]:
        waiting = [llama.complete(r) for r in [*bad, ask([1, 2])]]
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    *failed, good = asyncio.run(run())
    assert [type(f) for f in failed] == [PolicyError] * len(bad)
    assert "context" in str(failed[0])
    assert "policy.max_batch_tokens" in str(failed[1])
    assert len(good.token_ids) == 12


def test_a_failing_forward_pass_fails_its_batch_only(llama: HFPolicy) -> None:
    """An exception, and logits that are no numbers, are PolicyErrors; afterwards the engine answers as before."""
    requests = [ask([4, 5]), *(ask([6, i] * (30 - 10 * i)) for i in range(3))]
    before = together(llama, requests)
    forward = llama.engine._forward

    def out_of_memory(adapters: Any, inputs: Any) -> Any:
        if inputs["input_ids"].shape[1] == 1:
            raise torch.OutOfMemoryError("no memory left")
        return forward(adapters, inputs)

    def not_finite(adapters: Any, inputs: Any) -> Any:
        logits = forward(adapters, inputs)
        if (
            inputs["input_ids"].shape[1] > 1
        ):  # spoils the short row's keys: the next step has no numbers
            for keys, _ in llama.engine._cache.kv:
                keys[0].fill_(torch.nan)
        return logits

    async def run() -> list[Any]:
        waiting = [llama.complete(r) for r in requests]
        return list(await asyncio.gather(*waiting, return_exceptions=True))

    llama.engine._forward = out_of_memory
    assert all(
        isinstance(e, PolicyError) and "no memory left" in str(e) for e in asyncio.run(run())
    )
    llama.engine._forward = not_finite
    spoilt, *others = asyncio.run(run())
    assert isinstance(spoilt, PolicyError)
    assert "not finite" in str(spoilt)
    assert all(map(close_to, others, before[1:]))
    llama.engine._forward = forward
    assert together(llama, requests) == before


def test_a_failing_prefill_also_fails_the_rows_that_left(
    llama: HFPolicy, random_adapter: RandomAdapter
) -> None:
    """Rows taken out just before others could not be let in get an answer too; nobody waits for ever."""
    llama.load_adapter("a", random_adapter("tiny-llama", 1))
    admit, calls = llama.engine.admit, 0

    def fails_later(new: Any, budget: int) -> Any:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise torch.OutOfMemoryError("no memory left")
        return admit(new, budget)

    llama.engine.admit = fails_later  # type: ignore[method-assign]

    async def run() -> list[Any]:
        long = Sampling(1.0, max_tokens=20_000)
        first = asyncio.create_task(llama.complete(ask([1], long, adapter="a")))
        await decoding(llama)
        second = asyncio.create_task(llama.complete(ask([2])))
        llama.unload_adapter("a")
        return list(
            await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 20)
        )

    gone, refused = asyncio.run(run())
    assert isinstance(gone, PolicyError)
    assert "unloaded" in str(gone)
    assert isinstance(refused, PolicyError)
    assert "no memory left" in str(refused)
    llama.engine.admit = admit  # type: ignore[method-assign]
    assert together(llama, [ask([1, 2])])[0].token_ids


def test_unloading_before_a_row_is_let_in_fails_that_row_alone(
    llama: HFPolicy, random_adapter: RandomAdapter
) -> None:
    """A row on its way into the engine gets its PolicyError; the others of its batch their replies."""
    llama.load_adapter("a", random_adapter("tiny-llama", 1))
    turn, at_door, go_on = llama._turn, threading.Event(), threading.Event()

    def slow(joining: Any) -> Any:
        at_door.set()
        assert go_on.wait(20)
        return turn(joining)

    llama._turn = slow  # type: ignore[method-assign]

    async def run() -> list[Any]:
        requests = [ask([1, 2]), ask([1, 2], adapter="a"), ask([3])]
        tasks = [asyncio.create_task(llama.complete(r)) for r in requests]
        while not at_door.is_set():
            await asyncio.sleep(0.001)
        llama.unload_adapter("a")
        go_on.set()
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    one, gone, other = asyncio.run(run())
    assert isinstance(gone, PolicyError)
    assert "unloaded" in str(gone)
    assert len(one.token_ids) == len(other.token_ids) == 12


def test_cancelled_requests_and_dead_loops_leave_nothing_behind(llama: HFPolicy) -> None:
    """A cancelled request frees its row; an event loop that ends in the middle does not spoil the next."""
    endless = Sampling(1.0, max_tokens=20_000)

    async def cancel_one() -> Completion:
        doomed = asyncio.create_task(llama.complete(ask([1], endless)))
        await decoding(llama)
        doomed.cancel()
        return await llama.complete(ask([1, 2, 3], seed=3))

    async def abandon() -> None:
        for i in range(4):
            asyncio.get_running_loop().create_task(llama.complete(ask([1, i], endless)))
        await decoding(llama)

    first = asyncio.run(cancel_one())
    asyncio.run(abandon())
    assert close_to(together(llama, [ask([1, 2, 3], seed=3)])[0], first)
    assert llama.engine.rows == []
    assert not llama._sent


# --- adapters ----------------------------------------------------------------------------------------


def test_adapters_that_are_not_there_or_not_ours(
    llama: HFPolicy, random_adapter: RandomAdapter
) -> None:
    """An unknown name lists the loaded ones; a foreign adapter and a name in use are refused."""
    llama.load_adapter("rl-1", random_adapter("tiny-llama", 1))
    with pytest.raises(AdapterError, match=r"'rl-2' is not loaded; loaded: rl-1"):
        together(llama, [ask([1], adapter="rl-2")])
    with pytest.raises(AdapterError, match="was made for"):
        llama.load_adapter("foreign", random_adapter("tiny-qwen3", 1))
    with pytest.raises(AdapterError, match="in use"):
        llama.load_adapter("rl-1", random_adapter("tiny-llama", 2))
    assert llama.adapters() == ("rl-1",)
    llama.unload_adapter("never loaded")


def test_invariant_07_unloading_drops_prefixes_and_weights(
    arch: str, random_adapter: RandomAdapter
) -> None:
    """After an update the new weights answer, under a new name or the old one; nothing of the old is kept."""
    policy = build(arch)
    request = ask([(7 * i) % 200 + 5 for i in range(100)], adapter="v")
    paths = [random_adapter(arch, seed) for seed in (1, 2)]
    answers = []
    for path in (*paths, paths[0]):
        policy.load_adapter("v", path)
        answers.append(together(policy, [request])[0])
        assert len(policy.engine.store) == 6
        assert together(policy, [request])[0].token_ids == answers[-1].token_ids
        model = peft.PeftModel.from_pretrained(load_model(arch), path)
        wanted = plain_logprobs(model, request, answers[-1])
        assert torch.allclose(torch.tensor(answers[-1].logprobs), wanted, atol=1e-4)
        policy.unload_adapter("v")
        assert policy.adapters() == ()
        assert len(policy.engine.store) == 0
        assert not [n for n, _ in policy._adapted.base.named_parameters() if "lora" in n]
    assert answers[0] == answers[2] != answers[1]
    policy.close()


def test_adapters_come_and_go_while_rows_are_decoded(
    llama: HFPolicy, random_adapter: RandomAdapter
) -> None:
    """Loading does not disturb what is being decoded; unloading fails only the requests of that adapter."""
    llama.load_adapter("a", random_adapter("tiny-llama", 1))
    stay, go = (ask([5, 6], Sampling(1.2, max_tokens=150), 1, name) for name in (None, "a"))
    alone = together(llama, [dataclasses.replace(stay, sampling=Sampling(1.2, max_tokens=150))])[0]

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(llama.complete(r)) for r in (stay, go)]
        await decoding(llama)
        llama.load_adapter("b", random_adapter("tiny-llama", 2))
        llama.unload_adapter("a")
        return list(await asyncio.gather(*tasks, return_exceptions=True))

    kept, failed = asyncio.run(run())
    assert close_to(kept, alone)
    assert isinstance(failed, PolicyError)
    assert "unloaded" in str(failed)


def test_close_is_final_and_safe_to_repeat(llama: HFPolicy) -> None:
    """Requests on their way fail instead of waiting for ever."""

    async def run() -> None:
        task = asyncio.create_task(llama.complete(ask([1], Sampling(1.0, max_tokens=20_000))))
        await decoding(llama)
        llama.close()
        llama.close()
        with pytest.raises(PolicyError, match="closed"):
            await task
        with pytest.raises(PolicyError, match="closed"):
            await llama.complete(ask([1]))

    asyncio.run(run())


def test_contradicting_configs_are_refused() -> None:
    """Before a model is loaded, with the option in the message."""
    for options in (
        {"max_batch": 0},
        {"prefix_cache_tokens": -1},
        {"attention": "flash"},
        {"dtype": "foo"},
        {"dtype": "int64"},
        {"dtype": "nn"},
        {"device": "foo"},
        {"device": "meta"},
        {"device": "cuda:99"},
    ):
        with pytest.raises(ConfigurationError, match=f"policy.{next(iter(options))}"):
            HFConfig(model="no-such-model", **options).build(LoraConfig())  # type: ignore[arg-type]


def test_a_missing_gpu_is_said_before_the_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """policy.device=cuda on a machine without one dies at once, with the remedy."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigurationError, match=r"policy\.device=cuda.*policy\.device=auto"):
        HFConfig(model="no-such-model", device="cuda").build(LoraConfig())


# --- prefixes ----------------------------------------------------------------------------------------

PROMPTS = st.lists(
    st.tuples(
        st.sampled_from([None, "a"]),
        st.lists(st.integers(0, 1), min_size=1, max_size=12).map(tuple),
    ),
    min_size=1,
    max_size=12,
    unique=True,
)


@given(prompts=PROMPTS, min_shared=st.integers(1, 5))
@settings(max_examples=300, deadline=None)
def test_a_plan_covers_every_prompt_once(prompts: list[Prompt], min_shared: int) -> None:
    """Level by level the spans of a prompt follow each other from 0 to its end, and only equals are shared."""
    reached = [0] * len(prompts)
    alone = [False] * len(prompts)
    for level in plan(prompts, min_shared):
        for span in level:
            adapter, tokens = prompts[span.members[0]]
            for i in span.members:
                assert reached[i] == span.start
                assert prompts[i][0] == adapter
                assert prompts[i][1][: span.end] == tokens[: span.end]
                reached[i] = span.end
                alone[i] = len(span.members) == 1
            if len(span.members) > 1:
                assert span.end - span.start >= min_shared
    assert reached == [len(tokens) for _, tokens in prompts]
    assert all(alone)


@given(prompts=PROMPTS, room=st.integers(0, 6))
@settings(max_examples=200, deadline=None)
def test_the_store_returns_what_was_put_for_exactly_those_tokens(
    prompts: list[Prompt], room: int
) -> None:
    """A match is a prefix of the same adapter's tokens, never larger than the store, and gone when dropped."""
    store = PrefixStore(2 * room, block=2)

    def kv(prompt: Prompt) -> torch.Tensor:
        """Stands for keys: each depends on the adapter and on all tokens so far."""
        adapter, tokens = prompt
        keys = [hash((adapter, tokens[: i + 1])) % 2**20 for i in range(len(tokens))]
        return torch.tensor(keys, dtype=torch.float64)[None, :, None]

    for prompt in prompts:
        store.insert(*prompt, [(kv(prompt), -kv(prompt))])
        assert len(store) <= room
        for other in prompts:
            found = store.match(*other)
            if found:
                keys = torch.cat([block.kv[0][0] for block in found], dim=1)
                assert torch.equal(keys, kv(other)[:, : keys.shape[1]])
        assert len(store.match(*prompt)) == min(len(prompt[1]) // 2, room)
    store.drop("a")
    assert not [p for p in prompts if p[0] == "a" and store.match(*p)]


# --- the real model ----------------------------------------------------------------------------------


def test_smollm2_answers_as_transformers_does(tmp_path: Path) -> None:
    """A real chat model: greedy replies of a batch equal `generate` on each prompt, and make sense."""
    tokenizer, policy = load_tokenizer("smollm2"), build("smollm2")
    questions = ("What is the capital of France?", "Say hello.")
    prompts = [
        tokenizer.apply_chat_template([{"role": "user", "content": q}], add_generation_prompt=True)[
            "input_ids"
        ]
        for q in questions
    ]
    ours = together(policy, [ask(p, Sampling(0.0, max_tokens=10)) for p in prompts])
    policy.close()
    assert "Paris" in tokenizer.decode(ours[0].token_ids)
    model = load_model("smollm2")
    for prompt, completion in zip(prompts, ours, strict=True):
        ids = torch.tensor([prompt])
        out = model.generate(ids, do_sample=False, max_new_tokens=10)[0, len(prompt) :]
        assert tuple(out.tolist()) == completion.token_ids
