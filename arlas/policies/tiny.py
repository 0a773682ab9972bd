"""Tiny random models of real architectures, with tokenizers and chat templates that differ where it hurts.

- ``tiny-llama``: system role, the pad token is the end token.
- ``tiny-gemma3``: no system role (the template raises), sliding-window layers, two stop tokens.
- ``tiny-qwen3``: the generation prompt ends with an empty think block; thoughts of earlier turns are dropped.
- ``tiny-llama-words``: a vocabulary of plain words, so that a move of a matrix game is one token.

Each carries a ``generation_config.json`` full of sampling defaults that no engine may apply (invariant 3).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

FAMILIES = ("tiny-llama", "tiny-gemma3", "tiny-qwen3", "tiny-llama-words")
FORMAT = 2
"""Raised whenever this file changes what it makes, so that cached folders are not mistaken for new ones."""

WORDS = tuple(
    "red green blue yellow black white left middle right guard attack answer door one two three four "
    "the you see choose a word yes no".split()
)
"""The vocabulary of ``tiny-llama-words`` besides its special tokens."""

# Fragments that become single tokens of the byte-level tokenizers: shorter prompts, still any text.
_FRAGMENTS = (
    "the ing and tion click button task page text user agent attack observation action think name email "
    "password address phone card fill true false value you with that this from must not only"
).split()

_LLAMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n"
    "{{ m.content | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
_GEMMA_TEMPLATE = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}"
    "{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
_QWEN_TEMPLATE = (
    "{% set last = namespace(user=-1) %}{% for m in messages %}{% if m.role == 'user' %}"
    "{% set last.user = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set content = m.content %}"
    "{% if m.role == 'assistant' and loop.index0 < last.user and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip('\n') %}{% endif %}"
    "<|im_start|>{{ m.role }}\n{{ content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)
_WORDS_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %} <{{ m.role }}> {{ m.content | trim }} <end>{% endfor %}"
    "{% if add_generation_prompt %} <assistant>{% endif %}"
)

_SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,  # the smallest that vLLM's CPU attention has
    "max_position_embeddings": 32768,
    # Wider than usual: logits of an untrained model differ visibly, and training can make them decisive.
    "initializer_range": 0.1,
}


def make(family: str, seed: int, folder: Path) -> None:
    """Writes model, tokenizer, chat template and generation config of one tiny model into ``folder``."""
    tokenizer, stops = _tokenizer(family)
    shape = _SHAPE | {
        "vocab_size": len(tokenizer),
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "tie_word_embeddings": family == "tiny-gemma3",
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = _model(family, shape)
    model.generation_config = transformers.GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=stops,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=True,
        temperature=0.7,
        top_k=50,
        top_p=0.9,
        repetition_penalty=1.1,
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _model(family: str, shape: dict[str, Any]) -> Any:
    if family == "tiny-gemma3":
        config = transformers.Gemma3TextConfig(
            **shape,
            sliding_window=16,
            layer_types=["sliding_attention", "full_attention"],
            query_pre_attn_scalar=32,
        )
        return transformers.Gemma3ForCausalLM(config)
    if family == "tiny-qwen3":
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**shape))
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**shape))


def _tokenizer(family: str) -> tuple[Any, list[int]]:
    """The tokenizer of a family and its stop tokens."""
    if family == "tiny-gemma3":
        special = ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>"]
        made = _wrap(_byte_level(special, "<bos>"), "<bos>", "<eos>", "<pad>", _GEMMA_TEMPLATE)
        return made, made.convert_tokens_to_ids(["<eos>", "<end_of_turn>"])
    if family == "tiny-qwen3":
        special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
        made = _wrap(
            _byte_level(special, None), None, "<|im_end|>", "<|endoftext|>", _QWEN_TEMPLATE
        )
        return made, made.convert_tokens_to_ids(["<|im_end|>", "<|endoftext|>"])
    if family == "tiny-llama-words":
        made = _wrap(_word_level(), "<bos>", "<end>", "<end>", _WORDS_TEMPLATE, unk_token="<unk>")
        return made, [made.eos_token_id]
    special = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    backend = _byte_level(special, "<|begin_of_text|>")
    made = _wrap(backend, "<|begin_of_text|>", "<|eot_id|>", "<|eot_id|>", _LLAMA_TEMPLATE)
    return made, [made.eos_token_id]


def _wrap(
    backend: Tokenizer, bos: str | None, eos: str, pad: str, template: str, **options: Any
) -> Any:
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=bos,
        eos_token=eos,
        pad_token=pad,
        clean_up_tokenization_spaces=False,
        padding_side="left",
        **options,
    )
    made.chat_template = template
    return made


def _byte_level(special: list[str], bos: str | None) -> Tokenizer:
    """Byte-level BPE with hand-made merges: 256 bytes, some fragments, and any text comes back whole."""
    vocabulary = {token: i for i, token in enumerate(special)}
    for char in sorted(pre_tokenizers.ByteLevel.alphabet()):
        vocabulary[char] = len(vocabulary)
    merges: list[tuple[str, str]] = []
    for fragment in _FRAGMENTS:
        for end in range(2, len(fragment) + 1):
            if fragment[:end] not in vocabulary:
                vocabulary[fragment[:end]] = len(vocabulary)
                merges.append((fragment[: end - 1], fragment[end - 1]))
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(special)
    if bos is not None:
        _prepend(backend, bos)
    return backend


def _word_level() -> Tokenizer:
    special = ["<unk>", "<bos>", "<end>", "<system>", "<user>", "<assistant>"]
    vocabulary = {token: i for i, token in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.add_special_tokens(special)
    _prepend(backend, "<bos>")
    return backend


def _prepend(backend: Tokenizer, bos: str) -> None:
    """Encoding plain text starts with ``bos``, as the real tokenizers of these families do."""
    backend.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos} $B",
        special_tokens=[(bos, backend.token_to_id(bos))],
    )
