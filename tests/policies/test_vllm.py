"""The vLLM policy on the real engine with tiny models, against transformers and PEFT.

A process has room for one engine, so `engines` keeps one open and changes it when another family is asked for.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hydra.utils
import peft
import pytest
import torch
from omegaconf import OmegaConf

from arlas.config import LoraConfig
from arlas.policies import models
from arlas.policies.hf import HFConfig
from arlas.policies.vllm import VLLMConfig, VLLMPolicy
from arlas.types import (
    AdapterError,
    Completion,
    ConfigurationError,
    MissingExtraError,
    PolicyError,
    PolicyRef,
    Request,
    Sampling,
    Seat,
    StopReason,
)

pytestmark = pytest.mark.vllm

LORA = LoraConfig(rank=4, alpha=8)
PROMPT = tuple(range(20, 90))
"""Longer than two cache blocks, so that prefixes are shared where they may be."""


def config(family: str, **changes: Any) -> VLLMConfig:
    return VLLMConfig(model=family, max_loras=2, kv_cache_memory_bytes=1 << 27, **changes)


class Engines:
    """The one open engine, by family."""

    def __init__(self) -> None:
        self.family, self.policy = "", None

    def get(self, family: str) -> VLLMPolicy:
        if family != self.family:
            self.close()
            self.policy, self.family = config(family, max_cpu_loras=5).build(LORA), family
        assert self.policy is not None
        return self.policy

    def close(self) -> None:
        if self.policy is not None:
            self.policy.close()
        self.family, self.policy = "", None


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    held = Engines()
    yield held
    held.close()


@pytest.fixture
def llama(engines: Engines) -> Iterator[VLLMPolicy]:
    policy = engines.get("tiny-llama")
    yield policy
    for name in policy.adapters():
        policy.unload_adapter(name)


def adapter(
    folder: Path, family: str, seed: int, rank: int = 4, targets: Any = "all-linear"
) -> Path:
    """A PEFT adapter with random weights, strong enough to change every log-probability."""
    torch.manual_seed(seed)
    shape = peft.LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules=targets, init_lora_weights=False
    )
    made = peft.get_peft_model(models.load_model(family), shape)
    made.save_pretrained(folder)
    return folder


def ask(
    name: str | None, prompt: tuple[int, ...] = PROMPT, seed: int = 0, **sampling: Any
) -> Request:
    chosen = {"temperature": 1.2, "max_tokens": 12} | sampling
    return Request(PolicyRef(Seat.AGENT, name or "base", name), prompt, Sampling(**chosen), seed)


async def all_of(policy: VLLMPolicy, requests: list[Request]) -> list[Completion]:
    return list(await asyncio.gather(*(policy.complete(r) for r in requests)))


def logits(family: str, folder: Path | None, request: Request, done: Completion) -> torch.Tensor:
    """What transformers and PEFT say at each sampled position, [tokens, vocabulary]."""
    model = models.load_model(family)
    if folder is not None:
        model = peft.PeftModel.from_pretrained(model, folder).eval()
    ids = torch.tensor([request.prompt_ids + done.token_ids])
    with torch.no_grad():
        found: torch.Tensor = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float()
    return found


def expected(family: str, folder: Path | None, request: Request, done: Completion) -> torch.Tensor:
    """Log-probabilities of the sampled tokens after temperature."""
    found = logits(family, folder, request, done) / (request.sampling.temperature or 1.0)
    return found.log_softmax(-1).gather(-1, torch.tensor(done.token_ids)[:, None])[:, 0]


async def test_the_sampled_stop_token_is_part_of_the_completion(engines: Engines) -> None:
    """Invariant 2: a stop token that the model sampled is returned with its log-probability, each of the
    model's stop tokens ends a completion, and nothing is sampled after it."""
    policy = engines.get("tiny-gemma3")
    stops = set(policy.tokenizer.convert_tokens_to_ids(["<eos>", "<end_of_turn>"]))
    done = await all_of(policy, [ask(None, PROMPT[:8], s, max_tokens=100) for s in range(60)])
    for one in done:
        ended = one.stop_reason is StopReason.STOP
        assert not stops & set(one.token_ids[:-1])
        assert (one.token_ids[-1] in stops) == ended
        assert ended or len(one.token_ids) == 100
    assert {one.token_ids[-1] for one in done if one.stop_reason is StopReason.STOP} == stops


@pytest.mark.parametrize("family", ["tiny-gemma3", "tiny-qwen3", "tiny-llama"])
async def test_mixed_batch_equals_transformers_and_peft(
    engines: Engines, tmp_path: Path, family: str
) -> None:
    """Tokens in, tokens out: every row of a batch of more adapters than slots gets its own policy, the base
    too, with log-probabilities after temperature and without the model's sampling defaults (invariant 3)."""
    policy = engines.get(family)
    folders: dict[str | None, Path | None] = {None: None}
    for i in range(3):
        folders[f"a{i}"] = adapter(tmp_path / f"a{i}", family, i)
        policy.load_adapter(f"a{i}", tmp_path / f"a{i}")
    requests = [
        ask(name, PROMPT[: 40 + seed], seed, temperature=temperature)
        for seed in range(2)
        for temperature in (0.0, 1.2)
        for name in folders
    ]
    together = await all_of(policy, requests)
    for request, done in zip(requests, together, strict=True):
        folder = folders[request.policy.adapter]
        assert done.policy == request.policy
        torch.testing.assert_close(
            torch.tensor(done.logprobs),
            expected(family, folder, request, done),
            atol=1e-4,
            rtol=0,
        )
        if request.sampling.temperature == 0.0:
            best = logits(family, folder, request, done).argmax(-1)
            assert done.token_ids == tuple(best.tolist())
    for request, done in list(zip(requests, together, strict=True))[::3]:
        alone = await policy.complete(request)
        assert alone.token_ids == done.token_ids

    # policy=hf gives the same greedy replies on the same adapters.
    other = HFConfig(model=family, device="cpu").build(LORA)
    for name, folder in folders.items():
        if name is not None and folder is not None:
            other.load_adapter(name, folder)
    greedy = [i for i, request in enumerate(requests) if request.sampling.temperature == 0.0]
    again = await asyncio.gather(*(other.complete(requests[i]) for i in greedy))
    assert [a.token_ids for a in again] == [together[i].token_ids for i in greedy]
    other.close()
    for name in policy.adapters():
        policy.unload_adapter(name)


async def test_sampling_follows_the_distribution(llama: VLLMPolicy) -> None:
    """Tokens are drawn at the asked temperature from the whole vocabulary: the mean log-probability is the
    negative entropy, and tokens outside the 50 best (the model's own default) are among them."""
    requests = [ask(None, PROMPT[:8], seed, max_tokens=1) for seed in range(1500)]
    drawn = await all_of(llama, requests)
    law = (logits("tiny-llama", None, requests[0], drawn[0])[0] / 1.2).log_softmax(-1)
    found = torch.tensor([d.logprobs[0] for d in drawn])
    entropy = -(law.exp() * law).sum()
    spread = float((law.exp() * (law + entropy).square()).sum().sqrt())
    assert abs(float(found.mean() + entropy)) < 4 * spread / len(drawn) ** 0.5
    best = set(law.topk(50).indices.tolist())
    outside = sum(d.token_ids[0] not in best for d in drawn) / len(drawn)
    mass = float(1 - law.exp().topk(50).values.sum())
    assert abs(outside - mass) < 4 * (mass * (1 - mass) / len(drawn)) ** 0.5


async def test_same_seed_same_tokens_in_any_batch(llama: VLLMPolicy) -> None:
    """A request's tokens follow from prompt, adapter and seed, whatever else is in the batch."""
    alone = await llama.complete(ask(None, seed=7))
    crowd = await all_of(llama, [ask(None, seed=s) for s in range(16)])
    assert crowd[7].token_ids == alone.token_ids
    assert len({c.token_ids for c in crowd}) == 16


async def test_a_new_version_is_served(llama: VLLMPolicy, tmp_path: Path) -> None:
    """Invariant 7: after a sync the probe has the new version's log-probabilities, old ones are gone, and no
    prefix of an older version is reused, not even under the same name and folder."""
    folder = adapter(tmp_path / "agent", "tiny-llama", 1)
    llama.load_adapter("agent", folder)
    probe = ask("agent", temperature=0.0)
    first = await llama.complete(probe)
    llama.unload_adapter("agent")
    with pytest.raises(AdapterError, match="agent is not loaded"):
        await llama.complete(probe)
    adapter(folder, "tiny-llama", 2)
    llama.load_adapter("agent", folder)
    second = await llama.complete(probe)
    assert second.logprobs[0] != pytest.approx(first.logprobs[0], abs=1e-3)
    torch.testing.assert_close(
        torch.tensor(second.logprobs),
        expected("tiny-llama", folder, probe, second),
        atol=1e-4,
        rtol=0,
    )
    served = llama._thread.ask(lambda engine: engine.list_loras())
    assert len(served) == 2  # this one and the base's


async def test_unloading_waits_for_running_requests(llama: VLLMPolicy, tmp_path: Path) -> None:
    """A request that runs while its adapter is unloaded ends as if it had not been."""
    llama.load_adapter("old", adapter(tmp_path / "old", "tiny-llama", 3))
    request = ask("old", max_tokens=40)
    running = asyncio.create_task(llama.complete(request))
    await asyncio.sleep(0.02)
    llama.unload_adapter("old")
    done = await running
    shown = expected("tiny-llama", tmp_path / "old", request, done)
    torch.testing.assert_close(torch.tensor(done.logprobs), shown, atol=1e-4, rtol=0)
    assert len(llama._thread.ask(lambda engine: engine.list_loras())) == 1


async def test_a_cancelled_request_leaves_the_engine(llama: VLLMPolicy) -> None:
    """Ctrl-C: cancelling the waiting task aborts its request; others go on."""
    long = asyncio.create_task(llama.complete(ask(None, max_tokens=20_000)))
    other = asyncio.create_task(llama.complete(ask(None, seed=1)))
    await asyncio.sleep(0.1)
    long.cancel()
    with pytest.raises(asyncio.CancelledError):
        await long
    assert len((await other).token_ids) == 12
    assert not llama._thread.ask(lambda engine: engine.has_unfinished_requests())


async def test_a_bad_request_fails_alone(llama: VLLMPolicy) -> None:
    """A prompt that is too long, empty, or no prompt at all is a fault of that request, with a remedy."""
    bad = [
        ask(None, (5,) * 40_000),
        ask(None, ()),
        ask(None, (10**6,)),
        ask(None, temperature=1e-3),
    ]
    good = [ask(None, seed=s) for s in range(3)]
    done = await asyncio.gather(*(llama.complete(r) for r in (*bad, *good)), return_exceptions=True)
    assert [type(d) for d in done] == [PolicyError] * 4 + [Completion] * 3
    assert "policy.max_model_len" in str(done[0])


def test_foreign_adapters_are_refused(llama: VLLMPolicy, tmp_path: Path) -> None:
    """An adapter that does not fit says so before it is served, and leaves the engine as it was."""
    foreign = adapter(tmp_path / "foreign", "tiny-qwen3", 0)
    with pytest.raises(AdapterError, match="tiny-qwen3"):
        llama.load_adapter("x", foreign)
    with pytest.raises(AdapterError, match=r"rank 16.*lora\.rank"):
        llama.load_adapter("x", adapter(tmp_path / "wide", "tiny-llama", 0, rank=16))
    with pytest.raises(AdapterError, match="not a PEFT adapter"):
        llama.load_adapter("x", tmp_path)
    pattern = adapter(tmp_path / "pattern", "tiny-llama", 0)
    shape = json.loads((pattern / "adapter_config.json").read_text())
    (pattern / "adapter_config.json").write_text(json.dumps(shape | {"alpha_pattern": {"q": 3}}))
    with pytest.raises(AdapterError, match="alpha_pattern"):
        llama.load_adapter("x", pattern)
    assert llama.adapters() == ()


def test_names_are_not_reused_and_room_is_limited(llama: VLLMPolicy, tmp_path: Path) -> None:
    """A loaded name is refused; more adapters than there is room for say which option to raise."""
    folder = adapter(tmp_path / "a", "tiny-llama", 0)
    for i in range(5):
        llama.load_adapter(f"a{i}", folder)
    with pytest.raises(AdapterError, match="already loaded"):
        llama.load_adapter("a0", folder)
    with pytest.raises(AdapterError, match=r"policy\.max_cpu_loras"):
        llama.load_adapter("a5", folder)
    llama.unload_adapter("unknown")
    assert llama.adapters() == ("a0", "a1", "a2", "a3", "a4")


def test_the_process_is_left_as_it_was(llama: VLLMPolicy) -> None:
    """The engine beside a learner: torch's threads can still be set, accelerate sees one process, and a
    second engine is refused rather than breaking the first."""
    from accelerate import PartialState

    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert PartialState().num_processes == 1
    with pytest.raises(ConfigurationError, match="one vLLM engine"):
        config("tiny-llama").build(LORA)


async def test_a_dead_engine_is_an_error_for_everyone(engines: Engines, tmp_path: Path) -> None:
    """Invariant 6: a fault inside a step is a `PolicyError` for those who wait and for those who come later;
    closing still works, and a new engine starts. Targets outside lora.targets are refused there."""
    policy = engines.get("tiny-llama")

    async def fail_midway() -> None:
        await asyncio.sleep(0.05)
        engine = policy._thread.ask(lambda engine: engine)
        engine.step = None  # the next step raises inside the thread

    waiting = policy.complete(ask(None, max_tokens=20_000))
    done, _ = await asyncio.gather(waiting, fail_midway(), return_exceptions=True)
    assert isinstance(done, PolicyError)
    with pytest.raises(PolicyError, match="stopped at a fault"):
        await policy.complete(ask(None))
    engines.close()
    policy.close()

    narrow = config("tiny-llama").build(LoraConfig(rank=4, targets=["q_proj", "v_proj"]))
    try:
        few = adapter(tmp_path / "few", "tiny-llama", 0, targets=["q_proj", "v_proj"])
        narrow.load_adapter("few", few)
        request = ask("few")
        result = await narrow.complete(request)
        shown = expected("tiny-llama", few, request, result)
        torch.testing.assert_close(torch.tensor(result.logprobs), shown, atol=1e-4, rtol=0)
        with pytest.raises(AdapterError, match=r"down_proj.*lora\.targets"):
            narrow.load_adapter("all", adapter(tmp_path / "all", "tiny-llama", 0))
    finally:
        narrow.close()
    with pytest.raises(PolicyError, match="closed"):
        await narrow.complete(ask(None))


def test_what_cannot_be_served_is_said_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing package, an unknown layer and an impossible rank die before an engine is started."""
    with pytest.raises(ConfigurationError, match=r"lora\.targets.*nose_proj"):
        config("tiny-llama").build(LoraConfig(rank=4, targets=["nose_proj"]))
    with pytest.raises(ConfigurationError, match=r"lora\.rank=1000"):
        config("tiny-llama").build(LoraConfig(rank=1000))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install -e"):
        config("tiny-llama").build(LORA)


def test_the_yaml_holds_the_defaults() -> None:
    """conf/policy/vllm.yaml shows every option at its default."""
    raw = OmegaConf.load(Path(__file__).parents[2] / "conf/policy/vllm.yaml")
    assert hydra.utils.instantiate(raw) == VLLMConfig()
    assert {str(key) for key in raw} == {
        "_target_",
        *(f.name for f in dataclasses.fields(VLLMConfig)),
    }
