"""Models that also see images (Gemma 3 from 4B on) are served and trained as the language model inside them.

Loaded whole, ``all linear layers`` would adapt the vision tower too, and names would differ between engine and trainer;
loaded with the class of the language model, transformers finds none of the weights and makes random ones. So the
language model is taken out once and kept as a folder of its own.
"""

from __future__ import annotations

import contextlib
import functools
from pathlib import Path
from typing import Any

import torch
import transformers

from arlas.types import ConfigurationError

_INNER = "model.language_model."


@functools.lru_cache(maxsize=8)
def is_multimodal(where: str) -> bool:
    """Whether the model of a folder or hub name holds a language model beside something else."""
    try:
        config = transformers.AutoConfig.from_pretrained(
            where, local_files_only=Path(where).is_dir()
        )
    except (OSError, ValueError):
        return False  # the one who loads it will say what is wrong
    return config.get_text_config(decoder=True) is not config


def take_out(where: str, folder: Path) -> None:
    """Writes the language model of ``where`` with tokenizer and generation config into ``folder``.

    Raises `ConfigurationError` if it is not stored as one (``model.language_model`` and a head).
    """
    whole: Any = transformers.AutoModelForCausalLM.from_pretrained(where, dtype="auto")
    text = whole.config.get_text_config(decoder=True)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(text, dtype=whole.dtype)
    weights = {
        f"model.{name.removeprefix(_INNER)}": tensor
        for name, tensor in whole.state_dict().items()
        if name.startswith(_INNER)
    }
    weights["lm_head.weight"] = whole.get_output_embeddings().weight
    wanted = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    if odd := sorted(wanted ^ set(weights)):
        raise ConfigurationError(
            f"{where} holds no language model that can be taken out: {odd[0]} and {len(odd) - 1} more tensors "
            "are on one side only"
        )
    model.load_state_dict(weights, assign=True)
    model.tie_weights()
    with contextlib.suppress(OSError):  # not every model has one
        model.generation_config = transformers.GenerationConfig.from_pretrained(where)
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(where).save_pretrained(folder)
