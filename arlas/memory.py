"""What a run needs on one device that plays and learns, as arithmetic: no model is loaded.

The engine and the trainer each hold the base model. The trainer's adapters, gradients and optimizers are float32;
activations are kept once a layer (gradient checkpointing) and one layer is computed anew at a time. It is an estimate
of what is allocated on purpose: fragments and kernels' workspaces come on top.
"""

from __future__ import annotations

from dataclasses import dataclass

from arlas.config import RunConfig
from arlas.types import ConfigurationError, Seat

GIB = float(1 << 30)
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Shape:
    """The published sizes of a language model."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    norms: int
    """Norms over the hidden size in a layer; each layer has two more over a head, the model one at its end."""
    window: int | None = None
    """Tokens that a sliding-window layer looks back."""
    full_every: int = 1
    """One layer of so many has full attention, the rest a window."""

    def linear(self) -> list[tuple[int, int]]:
        """(in, out) of the linear layers of one layer of the model."""
        d, q, kv = self.hidden, self.heads * self.head_dim, self.kv_heads * self.head_dim
        up = (d, self.intermediate)
        return [(d, q), (d, kv), (d, kv), (q, d), up, up, up[::-1]]

    def parameters(self) -> int:
        """All parameters of the language model."""
        inside = sum(a * b for a, b in self.linear())
        inside += self.norms * self.hidden + 2 * self.head_dim
        ends = self.vocabulary * self.hidden * (1 if self.tied else 2) + self.hidden
        return self.layers * inside + ends

    def lora_parameters(self, rank: int) -> int:
        """Parameters of one adapter on all linear layers but the head."""
        return self.layers * sum(rank * (a + b) for a, b in self.linear())

    def cache(self, length: int, bytes_each: int) -> int:
        """Bytes of the keys and values of one sequence of so many tokens."""
        full = self.layers // self.full_every
        windowed = self.layers - full
        short = min(length, self.window or length)
        places = full * length + windowed * short
        return 2 * places * self.kv_heads * self.head_dim * bytes_each


SHAPES = {
    "google/gemma-3-12b-it": Shape(
        3840, 15360, 48, 16, 8, 256, 262208, tied=True, norms=4, window=1024, full_every=6
    ),
    "Qwen/Qwen3-14B": Shape(5120, 17408, 40, 40, 8, 128, 151936, tied=False, norms=2),
}


def memory(shape: Shape, config: RunConfig) -> dict[str, float]:
    """GiB by what needs them, for training from SFT adapters with policy=vllm on the same device.

    Raises `ConfigurationError` where lora.targets names modules: the arithmetic is that of all linear layers.
    """
    if config.lora.targets is not None:
        raise ConfigurationError("the memory is worked out for lora.targets=null")
    if not {"max_loras", "max_num_seqs"} <= set(config.policy):
        raise ConfigurationError("the memory is worked out for policy=vllm")
    if config.policy["max_num_seqs"] < 1:
        raise ConfigurationError("policy.max_num_seqs must be at least 1")
    algo, policy, seats = config.algo, config.policy, len(tuple(Seat))
    wide, tokens = _BYTES[algo.dtype], algo.micro_batch_tokens
    adapter = shape.lora_parameters(config.lora.rank)
    compute = 2 if algo.mixed_precision == "bf16" else wide
    ins = sum(a for a, _ in shape.linear())
    outs = sum(b for _, b in shape.linear())
    # What one layer keeps for its backward pass: inputs and outputs of its linear layers (the inputs once more in
    # the adapters' float32), their low-rank middles, and a handful of norms and sums.
    layer = tokens * ((ins + outs + 8 * shape.hidden) * compute + ins * 4)
    layer += tokens * len(shape.linear()) * config.lora.rank * 4
    kept = shape.layers if algo.gradient_checkpointing else 0
    activations = kept * tokens * shape.hidden * compute
    activations += layer if algo.gradient_checkpointing else shape.layers * layer
    length = config.game.max_prompt_tokens + config.sampling.max_tokens
    parts = {
        "trainer: base model": shape.parameters() * wide,
        "trainer: adapters and their SFT references": 2 * seats * adapter * 4,
        "trainer: AdamW of the seats that learn": 2 * len(algo.seats) * adapter * 4,
        "trainer: gradients of one seat": adapter * 4,
        "trainer: activations of a micro-batch": activations,
        # log-probabilities, the reference's, probabilities, and their gradient in the model's precision
        "trainer: logits of a chunk": algo.logprob_chunk * shape.vocabulary * (3 * 4 + wide),
        "engine: base model": shape.parameters() * 2,
        "engine: adapters in a step": (policy["max_loras"] + 1) * adapter * 2,
        "engine: keys and values": policy["max_num_seqs"] * shape.cache(length, 2),
    }
    found = {name: size / GIB for name, size in parts.items()}
    for side in ("trainer", "engine"):
        found[side] = sum(v for k, v in found.items() if k.startswith(f"{side}:"))
    return found | {"both": found["trainer"] + found["engine"]}
