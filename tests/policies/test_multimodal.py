"""Models that also see images: the language model alone is served and trained, by the same names everywhere."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers
from transformers import Gemma3Config, Gemma3ForConditionalGeneration, SiglipVisionConfig

from arlas.config import AlgoConfig, InitConfig, LoraConfig
from arlas.learning.learner import Learner
from arlas.policies.models import (
    check_adapter,
    linear_shapes,
    load_model,
    load_tokenizer,
    resolve,
    stop_ids,
)
from arlas.policies.multimodal import is_multimodal
from arlas.types import Seat


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A tiny Gemma 3 with a vision tower, as the hub keeps the big ones."""
    folder = tmp_path_factory.mktemp("models") / "gemma-sees"
    text = transformers.AutoConfig.from_pretrained(resolve("tiny-gemma3"))
    vision = SiglipVisionConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=28,
        patch_size=14,
    )
    torch.manual_seed(0)
    config = Gemma3Config(
        text_config=text.to_dict(), vision_config=vision.to_dict(), mm_tokens_per_image=4
    )
    model = Gemma3ForConditionalGeneration(config)
    torch.nn.init.normal_(model.model.language_model.embed_tokens.weight, std=0.1)
    model.save_pretrained(folder)
    load_tokenizer("tiny-gemma3").save_pretrained(folder)
    transformers.GenerationConfig(eos_token_id=[1, 5]).save_pretrained(folder)
    return str(folder)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARLAS_CACHE", str(tmp_path / "cache"))


def test_the_language_model_is_the_one_inside(seeing: str) -> None:
    """Same logits for text as the whole model, no trace of the vision tower, stop tokens and template kept."""
    assert is_multimodal(seeing)
    assert not is_multimodal(resolve("tiny-gemma3"))
    whole = Gemma3ForConditionalGeneration.from_pretrained(seeing).eval()
    alone = load_model(seeing)
    ids = torch.tensor([list(range(3, 33))])
    with torch.no_grad():
        torch.testing.assert_close(alone(input_ids=ids).logits, whole(input_ids=ids).logits)
    assert type(alone).__name__ == "Gemma3ForCausalLM"
    assert not any("vision" in n for n, _ in alone.named_parameters())
    assert set(linear_shapes(resolve(seeing))) == set(linear_shapes(resolve("tiny-gemma3")))
    tokenizer = load_tokenizer(seeing)
    assert tokenizer.chat_template == load_tokenizer("tiny-gemma3").chat_template
    assert {1, 5} <= stop_ids(seeing, tokenizer)
    assert resolve(seeing) == resolve(seeing)


def test_its_adapters_are_trained_and_checked(seeing: str, tmp_path: Path) -> None:
    """The learner adapts the language model's linear layers alone, and the folder fits the model it names."""
    learner = Learner(
        seeing, LoraConfig(4, 8), AlgoConfig(), InitConfig(), 1.0, [Seat.AGENT], 0, device="cpu"
    )
    learner.save_adapter(Seat.AGENT, tmp_path / "agent")
    check_adapter(tmp_path / "agent", seeing)
    names = set(learner.parameters(Seat.AGENT))
    assert len(names) == 2 * (len(linear_shapes(resolve(seeing))) - 1)
    assert not any("vision" in name for name in names)
