"""The typed configs of everything that is made of demonstrations: collecting, imitating, rephrasing, measuring."""

from __future__ import annotations

from dataclasses import dataclass, field

from arlas.rules import require
from arlas.types import Seat


@dataclass
class CollectConfig:
    """Demonstrations: teachers play the game, each seat's wins are kept (ARLAS, section 3.2)."""

    agent: str = "scripted"
    """Who plays the agent: a teacher's name, base, or the folder of an adapter."""
    attacker: str = "scripted"
    episodes: int = 128
    attacked_share: float = 0.5
    """Share of the episodes that have an attacker."""
    chunk: int = 32
    """Episodes written at once; a killed collection continues behind the last whole chunk."""

    def validate(self) -> None:
        """Raises `ConfigurationError` on values that make no sense."""
        require(self.episodes >= 1, "collect.episodes must be at least 1")
        require(self.chunk >= 1, "collect.chunk must be at least 1")
        require(0.0 <= self.attacked_share <= 1.0, "collect.attacked_share must lie in [0, 1]")


@dataclass
class SFTConfig:
    """Warm start by imitation; the defaults are the paper's."""

    lr: float = 5e-6
    batch_size: int = 128
    """Turns an optimizer step; 0 takes all at once."""
    beta: float = 0.05
    """Weight of the exact KL to the base model (β_SFT)."""
    epochs: int = 1
    max_steps: int = 0
    """Stop after so many optimizer steps; 0 leaves it to ``epochs``."""
    eval_share: float = 0.0
    """Share of the episodes held out to measure the loss on."""
    eval_every: int = 0
    """Optimizer steps between measurements, from step 0 on; the best adapter is kept. 0: only at the end."""
    patience: int = 0
    """Stop after so many measurements without a new best loss; 0 goes on to the end."""
    packing: bool = False
    """Fill rows with unrelated turns up to the longest row; see `arlas.learning.sft`."""
    micro_batch_tokens: int = 16384
    seed: int = 0
    demos: str | None = None
    """Folder of demonstrations; null: ``demos`` of the run folder, which are collected if they are missing."""

    def validate(self) -> None:
        """Raises `ConfigurationError` on values that make no sense."""
        require(0.0 < self.lr < 1.0, f"sft.lr must lie in (0, 1), got {self.lr}")
        require(
            self.max_steps >= 0 and self.micro_batch_tokens >= 1,
            "sft.max_steps must not be negative, and sft.micro_batch_tokens at least 1",
        )
        require(self.beta >= 0.0, f"sft.beta must not be negative, got {self.beta}")
        require(self.batch_size >= 0 and self.epochs >= 1, "sft.batch_size ≥ 0 and sft.epochs ≥ 1")
        require(0.0 <= self.eval_share < 1.0, "sft.eval_share must lie in [0, 1)")
        require(
            self.eval_every >= 0 and self.patience >= 0,
            "sft.eval_every and sft.patience must not be negative",
        )
        require(
            self.eval_every == 0 or self.eval_share > 0.0,
            "sft.eval_every measures on held-out episodes: set sft.eval_share above 0",
        )
        require(
            self.patience == 0 or self.eval_every > 0,
            "sft.patience counts measurements: set sft.eval_every above 0",
        )


@dataclass
class RephraseConfig:
    """Demonstrations whose reasoning is told anew by the policy; see `arlas.rephrase`."""

    by: str = "base"
    """Who rewrites: base, a teacher's name, or the folder of an adapter."""
    source: str = "demos"
    """Folder of demonstrations, as it is or within the run folder."""
    out: str = "rephrased"
    """Folder of the new ones, as it is or within the run folder."""
    seats: list[Seat] = field(default_factory=lambda: [Seat.AGENT, Seat.ATTACKER])
    temperature: float = 1.0
    """1: the policy's own words as it would say them."""
    max_tokens: int = 192
    """Of the answer that holds the new reasoning."""
    keep_arguments: bool = True
    """Arguments of the call that the reasoning named must be named again."""
    concurrency: int = 32
    """Requests at the engine at once."""

    def validate(self) -> None:
        """Raises `ConfigurationError` on values that make no sense."""
        require(len(self.seats) >= 1, "rephrase.seats must name at least one of attacker, agent")
        require(len(set(self.seats)) == len(self.seats), "rephrase.seats names a seat twice")
        require(
            0.0 <= self.temperature <= 100.0,
            f"rephrase.temperature must lie in [0, 100], got {self.temperature}",
        )
        require(
            self.max_tokens >= 1 and self.concurrency >= 1,
            "rephrase.max_tokens and rephrase.concurrency must be at least 1",
        )
        require(
            self.out.strip("./") != "",
            f"rephrase.out={self.out!r} is no folder of its own; name one, as rephrased",
        )
        require(self.source != self.out, "rephrase.out must be another folder than rephrase.source")


@dataclass
class NearPolicyConfig:
    """How near demonstrations are to the policy that imitates them; see `arlas.nearpolicy`."""

    demos: list[str] = field(default_factory=lambda: ["demos"])
    """Folders of demonstrations, as they are or within the run folder; the first one gives the tasks."""
    policies: list[str] = field(default_factory=lambda: ["base"])
    """Whose rollouts are measured: base, sft, rl-5, or a folder that holds agent/ and attacker/. The first
    one's perplexity is what all are compared with."""
    groups: int = 32
    """Groups of rollouts a policy, with tasks and seeds of the demonstrations."""
    group_size: int = 8
    temperature: float = 1.0
    """Of the rollouts; perplexities are those of temperature 1."""
    ngram: int = 4
    """Words of an n-gram that counts as repeated if the same reasoning has held it before."""

    def validate(self) -> None:
        """Raises `ConfigurationError` on values that make no sense."""
        for name in ("demos", "policies"):
            given = getattr(self, name)
            require(len(given) >= 1, f"nearpolicy.{name} is empty")
            require(
                len(set(given)) == len(given), f"nearpolicy.{name} names something twice: {given}"
            )
        require(
            self.groups >= 1 and self.group_size >= 2,
            "nearpolicy.groups must be at least 1 and nearpolicy.group_size at least 2",
        )
        require(
            0.0 < self.temperature <= 100.0,
            f"nearpolicy.temperature must lie in (0, 100], got {self.temperature}",
        )
        require(self.ngram >= 1, f"nearpolicy.ngram must be at least 1, got {self.ngram}")
