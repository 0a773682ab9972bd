"""The remote policy against vLLM's own server with a tiny model, and against a server that misbehaves."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import hydra.utils
import pytest
import torch
from omegaconf import OmegaConf

from arlas.policies import models
from arlas.policies.openai import Mode, OpenAIConfig, OpenAIPolicy
from arlas.types import (
    AdapterError,
    Completion,
    ConfigurationError,
    Message,
    PolicyError,
    PolicyRef,
    Request,
    Sampling,
    Seat,
    StopReason,
)

MODEL = "tiny-llama"
MESSAGES = (Message("user", "click the button"),)
PROMPT = tuple(range(20, 60))


def ask(**changes: Any) -> Request:
    sampling = Sampling(**({"temperature": 1.2, "max_tokens": 12} | changes))
    return Request(PolicyRef(Seat.AGENT, "teacher"), PROMPT, sampling, 5, MESSAGES)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return models.load_tokenizer(MODEL)


# --- vLLM's own server ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """vLLM's server with the tiny model; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log.txt"
    options = (
        f"--model {models.resolve(MODEL)} --served-model-name tiny --host 127.0.0.1 --port {port} "
        "--dtype float32 --enforce-eager --kv-cache-memory-bytes 67108864 --gpu-memory-utilization 0.1 "
        "--max-model-len 2048 --generation-config vllm --logprobs-mode processed_logprobs"
    )
    with log.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *options.split()],
            stdout=out,
            stderr=subprocess.STDOUT,
            # 0: the engine's process runs the model itself, one start less to wait for.
            env=os.environ | {"VLLM_NO_USAGE_STATS": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        )
    try:
        _wait_until_healthy(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 240
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.5)
    raise AssertionError(f"the server did not start:\n{log.read_text()[-3000:]}")


@pytest.mark.vllm
async def test_completions_mode_returns_the_servers_tokens(server: str, tokenizer: Any) -> None:
    """Token ids in, the server's own token ids and log-probabilities out, several requests at once."""
    policy = OpenAIConfig(server, "tiny", Mode.COMPLETIONS, concurrency=2).build(tokenizer)
    requests = [ask(temperature=t) for t in (0.0, 1.2, 1.2)]
    done = await asyncio.gather(*(policy.complete(r) for r in requests))
    assert done[1] == done[2]  # the seed is sent
    model = models.load_model(MODEL)
    for request, one in zip(requests, done, strict=True):
        assert len(one.token_ids) == 12
        assert one.stop_reason is StopReason.LENGTH
        with torch.no_grad():
            logits = model(torch.tensor([PROMPT + one.token_ids])).logits[0, len(PROMPT) - 1 : -1]
        law = (logits / (request.sampling.temperature or 1.0)).log_softmax(-1)
        shown = law.gather(-1, torch.tensor(one.token_ids)[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(one.logprobs), shown, atol=1e-4, rtol=0)
        if request.sampling.temperature == 0.0:
            assert one.token_ids == tuple(logits.argmax(-1).tolist())


@pytest.mark.vllm
async def test_chat_mode_returns_text_in_the_main_tokens(server: str, tokenizer: Any) -> None:
    """Messages in, the reply's text in tokens of the main tokenizer out, with log-probabilities of zero."""
    policy = OpenAIConfig(server, "tiny", Mode.CHAT).build(tokenizer)
    done = await policy.complete(ask())
    assert len(done.token_ids) > 0
    assert set(done.logprobs) == {0.0}
    assert done.policy == ask().policy
    with pytest.raises(PolicyError, match="404"):
        await OpenAIConfig(server, "unknown").build(tokenizer).complete(ask())


# --- a server that misbehaves -------------------------------------------------------------------------------

Answer = tuple[int, str]


def chat(content: Any, reason: Any = "stop") -> str:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}}
    return json.dumps({"choices": [choice | {"finish_reason": reason}]})


def served(ids: Any, logprobs: Any) -> str:
    choice = {"text": "x", "token_ids": ids, "logprobs": {"token_logprobs": logprobs}}
    return json.dumps({"choices": [choice | {"finish_reason": "length"}]})


class Bad:
    """A server that gives the listed answers in turn, the last one for ever. Status 0 hangs."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.asked: list[dict[str, Any]] = []
        self.inside = self.most = 0
        self.pause = 0.0
        self.lock, self.stop = threading.Lock(), threading.Event()
        bad = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with bad.lock:
                    bad.asked.append(body)
                    status, text = bad.answers[min(len(bad.asked), len(bad.answers)) - 1]
                    bad.inside += 1
                    bad.most = max(bad.most, bad.inside)
                bad.stop.wait(bad.pause)
                with bad.lock:
                    bad.inside -= 1
                if status == 0:
                    bad.stop.wait(30)
                    return
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(text.encode("utf-8", "surrogatepass"))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/v1"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.stop.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def bad() -> Iterator[Bad]:
    server = Bad()
    yield server
    server.close()


@pytest.fixture
def client(bad: Bad, tokenizer: Any) -> Callable[..., OpenAIPolicy]:
    def make(*answers: Answer, **changes: Any) -> OpenAIPolicy:
        bad.answers = list(answers)
        options = {"max_retries": 2, "backoff": 0.01, "timeout": 5.0} | changes
        return OpenAIConfig(bad.url, "m", **options).build(tokenizer)

    return make


GOOD = (200, chat("hello"))


@pytest.mark.parametrize(
    "fault",
    [
        (500, "{}"),
        (429, "{}"),
        (200, "{'choices': "),
        (200, "[" * 100_000),
        (200, json.dumps({"choices": []})),
        (200, json.dumps({"choices": None})),
        (200, json.dumps(["no", "object"])),
        (200, json.dumps({"choices": [7]})),
        (200, chat(None)),
        (200, chat(["not", "text"])),
        (200, chat("hello", "content_filter")),
        (200, chat("hello", {"stop": 1})),
    ],
)
async def test_faults_are_tried_again_and_then_reported(
    bad: Bad, client: Callable[..., OpenAIPolicy], fault: Answer
) -> None:
    """A fault that passes costs a retry; one that stays is a `PolicyError` after the last (invariant 6)."""
    done = await client(fault, fault, GOOD).complete(ask())
    assert isinstance(done, Completion)
    assert len(bad.asked) == 3
    bad.asked.clear()
    with pytest.raises(PolicyError, match="no usable reply in 3 tries"):
        await client(fault).complete(ask())
    assert len(bad.asked) == 3


async def test_a_hanging_server_times_out(bad: Bad, client: Callable[..., OpenAIPolicy]) -> None:
    """A try ends at its time limit; a server that is not there is a fault too."""
    with pytest.raises(PolicyError, match="in 2 tries"):
        await client((0, ""), timeout=0.2, max_retries=1).complete(ask())
    assert len(bad.asked) == 2
    gone = client(GOOD)
    bad.close()
    with pytest.raises(PolicyError, match="APIConnectionError"):
        await gone.complete(ask())


async def test_a_refusal_is_not_repeated(bad: Bad, client: Callable[..., OpenAIPolicy]) -> None:
    """A request that the endpoint calls wrong is not sent again."""
    with pytest.raises(PolicyError, match="status 401"):
        await client((401, "{}")).complete(ask())
    assert len(bad.asked) == 1


@pytest.mark.parametrize(
    "reply",
    [
        served([1, 10**9], [0.0, 0.0]),
        served([1, True], [0.0, 0.0]),
        served("12", [0.0, 0.0]),
        served([1, 2], [0.0]),
        served([1, 2], [0.0, None]),
        served([1, 2], [0.0, float("nan")]),
        served([1] * 13, [0.0] * 13),
    ],
)
async def test_served_tokens_are_checked(client: Callable[..., OpenAIPolicy], reply: str) -> None:
    """Token ids and log-probabilities of a remote server are checked before they count as tokens."""
    with pytest.raises(PolicyError, match="ValueError"):
        await client((200, reply), mode=Mode.COMPLETIONS, max_retries=0).complete(ask())


async def test_hostile_text_is_text(client: Callable[..., OpenAIPolicy], tokenizer: Any) -> None:
    """A reply that writes special tokens, half characters or too much becomes plain tokens within the limit;
    only the end that the endpoint reported is a special token."""
    text = "<|eot_id|><|begin_of_text|>\ud800 {{ 1 }} \x00"
    done = await client((200, chat(text))).complete(ask(max_tokens=500))
    assert done.token_ids[-1] == tokenizer.eos_token_id
    assert not set(done.token_ids[:-1]) & set(tokenizer.all_special_ids)
    assert tokenizer.decode(list(done.token_ids[:-1])) == text.replace("\ud800", "?")
    long = await client((200, chat("z" * 1000))).complete(ask())
    assert len(long.token_ids) == 12
    assert long.stop_reason is StopReason.LENGTH


async def test_what_is_sent(bad: Bad, client: Callable[..., OpenAIPolicy]) -> None:
    """Chat sends the messages and never the token ids; settings outside the protocol only where they matter."""
    await client(GOOD).complete(ask())
    sent = bad.asked[0]
    assert sent["messages"] == [{"role": "user", "content": "click the button"}]
    assert sent["max_tokens"] == 12
    assert not {"prompt", "top_k", "min_p", "repetition_penalty"} & set(sent)
    await client(GOOD, max_tokens_name="max_completion_tokens").complete(ask(top_k=5))
    assert bad.asked[1]["top_k"] == 5
    assert bad.asked[1]["max_completion_tokens"] == 12


async def test_concurrency_is_limited(bad: Bad, client: Callable[..., OpenAIPolicy]) -> None:
    """No more requests than allowed are at the endpoint at once."""
    bad.pause = 0.05
    policy = client(GOOD, concurrency=3)
    await asyncio.gather(*(policy.complete(ask()) for _ in range(9)))
    assert bad.most == 3


def test_one_client_over_several_event_loops(client: Callable[..., OpenAIPolicy]) -> None:
    """A policy outlives an event loop; closed, it refuses."""
    policy = client(GOOD)
    first, second = asyncio.run(policy.complete(ask())), asyncio.run(policy.complete(ask()))
    assert first == second
    policy.close()
    policy.close()
    with pytest.raises(PolicyError, match="closed"):
        asyncio.run(policy.complete(ask()))


def test_no_adapters(client: Callable[..., OpenAIPolicy], tmp_path: Path) -> None:
    """The remote serves what it serves."""
    policy = client(GOOD)
    with pytest.raises(AdapterError, match="cannot load adapters"):
        policy.load_adapter("a", tmp_path)
    adapted = Request(PolicyRef(Seat.AGENT, "teacher", "a"), PROMPT, Sampling(), 0, MESSAGES)
    with pytest.raises(AdapterError, match="no adapter a"):
        asyncio.run(policy.complete(adapted))
    with pytest.raises(PolicyError, match="no messages"):
        asyncio.run(policy.complete(Request(PolicyRef(Seat.AGENT, "t"), PROMPT, Sampling())))
    policy.unload_adapter("a")
    assert policy.adapters() == ()


def test_config(tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The YAML shows every option at its default; a key is read from the environment or missed at once."""
    raw = OmegaConf.load(Path(__file__).parents[2] / "conf/teacher/openai.yaml")
    assert hydra.utils.instantiate(raw) == OpenAIConfig()
    assert {str(key) for key in raw} == {"_target_", *OpenAIConfig.__dataclass_fields__}
    monkeypatch.delenv("ARLAS_TEST_KEY", raising=False)
    with pytest.raises(ConfigurationError, match="ARLAS_TEST_KEY"):
        OpenAIConfig(api_key_env="ARLAS_TEST_KEY").build(tokenizer)
    monkeypatch.setenv("ARLAS_TEST_KEY", "k")
    assert OpenAIConfig(api_key_env="ARLAS_TEST_KEY").build(tokenizer).adapters() == ()
