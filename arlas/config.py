"""The typed configs behind ``conf/``. Bad combinations die here, before any work is done.

``env`` and ``policy`` are built from the class that their ``_target_`` names, so that the method knows no
particular world and no particular engine.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

from arlas.choices import Baseline, Draw, OpponentPer, Resume, WeightBound, WeightLevel
from arlas.demonstrations import CollectConfig, NearPolicyConfig, RephraseConfig, SFTConfig
from arlas.rules import GameConfig, RewardConfig, require
from arlas.shaping import ShapingConfig
from arlas.types import Sampling, Seat, guard_layers


def _check_finite(values: dict[str, Any], prefix: str = "") -> None:
    for key, value in values.items():
        if isinstance(value, dict):
            _check_finite(value, f"{prefix}{key}.")
        elif isinstance(value, float):
            require(math.isfinite(value), f"{prefix}{key} must be a finite number, got {value}")


@dataclass
class LoraConfig:
    """The shape of all adapters (the paper: r = 128, α = 256, all linear layers)."""

    rank: int = 128
    alpha: int = 256
    dropout: float = 0.0
    targets: list[str] | None = None
    """Names of the modules to adapt; None adapts all linear layers but the output head."""

    def validate(self) -> None:
        require(self.rank >= 1, f"lora.rank must be at least 1, got {self.rank}")
        require(self.alpha >= 1, f"lora.alpha must be at least 1, got {self.alpha}")
        require(self.targets != [], "lora.targets is empty; null adapts all linear layers")
        require(
            self.dropout == 0.0,
            "lora.dropout must be 0: with dropout the first ratio is not 1 and the first KL not 0",
        )


@dataclass
class SamplingConfig:
    """Sampling for rollouts. Training allows only plain temperature sampling (invariant 3)."""

    temperature: float = 1.2
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 256

    def build(self) -> Sampling:
        """The frozen value that travels with requests."""
        return Sampling(**dataclasses.asdict(self))

    def validate(self) -> None:
        """What holds for evaluation too. Raises `ConfigurationError`."""
        require(
            self.max_tokens >= 1, f"sampling.max_tokens must be at least 1, got {self.max_tokens}"
        )
        require(
            0.0 <= self.temperature < math.inf,
            f"sampling.temperature must be a number and not negative, got {self.temperature}",
        )

    def validate_training(self) -> None:
        """Raises `ConfigurationError` unless this is plain temperature sampling (invariant 3)."""
        plain = (self.top_p, self.top_k, self.min_p, self.repetition_penalty) == (1.0, 0, 0.0, 1.0)
        require(
            plain,
            "sampling.top_p, top_k, min_p and repetition_penalty must be 1, 0, 0 and 1 while training: "
            "the trainer's log-probabilities are those of plain temperature sampling",
        )
        require(
            0.01 <= self.temperature <= 100.0,
            f"sampling.temperature must lie in [0.01, 100] while training, got {self.temperature}",
        )


@dataclass
class AlgoConfig:
    """Adversarial RL with GRPO; the defaults are the paper's."""

    iterations: int = 15
    groups: int = 128
    """Groups an iteration for each seat that learns."""
    group_size: int = 16
    seats: list[Seat] = field(default_factory=lambda: [Seat.AGENT, Seat.ATTACKER])
    lr: float = 2e-6
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    batch_size: int = 128
    """Episodes an optimizer step; 0 takes all of an iteration's episodes in one step."""
    epochs: int = 1
    beta: float = 0.05
    """Weight of the KL to the SFT adapter of the seat."""
    kl_estimator: str = "k3+"
    """k1, k2, k3, or with a + the same value and the gradient of the reverse KL; see `arlas.learning.loss`."""
    eps_low: float = 0.1
    eps_high: float = 0.3
    aggregation: str = "token_mean"
    """token_mean, sequence_mean, or constant (Dr.GRPO)."""
    constant_length: int = 1024
    """`constant`: tokens that an episode's summed loss is divided by."""
    normalize_std: bool = True
    """Divide by the group's standard deviation; Dr.GRPO does not."""
    baseline: Baseline = Baseline.GROUP
    """group, leave_one_out (RLOO), or moving (RAE), for which flat groups teach too."""
    baseline_decay: float = 0.95
    """`moving`: what is kept of the average at every episode."""
    baseline_per_task: bool = False
    """`moving`: one average a seat and task, instead of one a seat."""
    refill: int = 0
    """Most groups drawn anew, a seat and iteration, in place of flat ones (DAPO's dynamic sampling)."""
    importance_cap: float = 2.0
    """Cap of the detached weight trainer/engine; 0 leaves it out."""
    importance_level: WeightLevel = WeightLevel.TOKEN
    importance_bound: WeightBound = WeightBound.TRUNCATE
    """truncate: weights beyond the cap become the cap; mask: those outside [1/cap, cap] become 0."""
    micro_batch_tokens: int = 16384
    logprob_chunk: int = 1024
    """Positions whose logits are held at once (invariant 12)."""
    gradient_checkpointing: bool = False
    mixed_precision: str = "no"
    device: str = "auto"
    dtype: str = "float32"
    """Of the trainer's base model; adapters are float32 always."""
    engine_tolerance: float = 0.05
    """Largest gap in nats between engine and trainer on the probe after a sync (invariant 7); with a bfloat16
    engine it has to be larger, e.g. 0.5."""
    episode_retries: int = 1
    max_error_share: float = 0.5

    def validate(self) -> None:
        require(
            self.group_size >= 2,
            f"algo.group_size must be at least 2, got {self.group_size}: a group of one has no baseline",
        )
        require(self.groups >= 1, f"algo.groups must be at least 1, got {self.groups}")
        require(self.iterations >= 1, f"algo.iterations must be at least 1, got {self.iterations}")
        require(len(self.seats) >= 1, "algo.seats must name at least one of attacker, agent")
        require(len(set(self.seats)) == len(self.seats), "algo.seats names a seat twice")
        require(0.0 < self.lr < 1.0, f"algo.lr must lie in (0, 1), got {self.lr}")
        require(
            self.max_grad_norm > 0.0,
            f"algo.max_grad_norm must be above 0, got {self.max_grad_norm}; for no clipping choose it large",
        )
        require(self.weight_decay >= 0.0, "algo.weight_decay must not be negative")
        require(
            self.dtype in ("float32", "bfloat16", "float16"),
            f"algo.dtype must be float32, bfloat16 or float16, got {self.dtype!r}",
        )
        require(self.engine_tolerance > 0.0, "algo.engine_tolerance must be above 0")
        require(
            self.batch_size >= 0 and self.epochs >= 1, "algo.batch_size ≥ 0 and algo.epochs ≥ 1"
        )
        require(0.0 < self.eps_low < 1.0, f"algo.eps_low must lie in (0, 1), got {self.eps_low}")
        require(self.eps_high > 0.0, f"algo.eps_high must be above 0, got {self.eps_high}")
        require(self.beta >= 0.0, f"algo.beta must not be negative, got {self.beta}")
        require(
            self.kl_estimator in ("k1", "k2", "k3", "k1+", "k3+"),
            f"algo.kl_estimator must be k1, k2, k3, k1+ or k3+, got {self.kl_estimator!r}",
        )
        require(
            self.aggregation in ("token_mean", "sequence_mean", "constant"),
            f"algo.aggregation must be token_mean, sequence_mean or constant, got {self.aggregation!r}",
        )
        require(
            self.mixed_precision in ("no", "bf16"),
            f"algo.mixed_precision must be no or bf16, got {self.mixed_precision!r}",
        )
        require(
            min(self.constant_length, self.micro_batch_tokens, self.logprob_chunk) >= 1,
            "algo.constant_length, micro_batch_tokens and logprob_chunk must be at least 1",
        )
        require(
            self.episode_retries >= 0 and 0.0 <= self.max_error_share <= 1.0,
            "algo.episode_retries must not be negative, and algo.max_error_share lie in [0, 1]",
        )
        self._validate_weights()
        self._validate_baseline()

    def _validate_weights(self) -> None:
        cap, level, bound = self.importance_cap, self.importance_level, self.importance_bound
        require(
            cap == 0.0 or 1.0 <= cap < math.inf,
            f"algo.importance_cap must be 0 (off) or at least 1, got {cap}",
        )
        plain = level is WeightLevel.TOKEN and bound is WeightBound.TRUNCATE
        require(
            cap > 0.0 or plain,
            f"algo.importance_level={level} and importance_bound={bound} need importance weights, but "
            "algo.importance_cap=0 switches them off",
        )
        require(
            bound is WeightBound.TRUNCATE or cap > 1.0,
            "algo.importance_bound=mask with algo.importance_cap=1 would mask every token",
        )

    def _validate_baseline(self) -> None:
        baseline, moving = self.baseline, self.baseline is Baseline.MOVING
        require(
            baseline is Baseline.GROUP or not self.normalize_std,
            f"algo.baseline={baseline} has no group deviation to divide by: set algo.normalize_std=false",
        )
        require(
            moving or not self.baseline_per_task,
            f"algo.baseline_per_task needs algo.baseline=moving, not {baseline}",
        )
        decay, refill = self.baseline_decay, self.refill
        require(0.0 <= decay < 1.0, f"algo.baseline_decay must lie in [0, 1), got {decay}")
        require(refill >= 0, f"algo.refill must not be negative, got {refill}")
        require(
            refill == 0 or not moving,
            "algo.refill replaces flat groups, but with algo.baseline=moving flat groups teach too: "
            "set algo.refill=0",
        )


@dataclass
class PopulationConfig:
    """How the agent's opponents are drawn from the attackers of all iterations so far."""

    draw: Draw = Draw.UNIFORM
    per: OpponentPer = OpponentPer.GROUP
    size: int = 0
    """Keep only this many latest attackers; 0 keeps all."""
    half_life: float = 5.0
    """`recency`: iterations after which an attacker's weight has halved."""
    pfsp_power: float = 2.0
    """`pfsp`: weight = (attacker's success rate against the agent) ** power."""
    loaded: int = 8
    """Adapters of the population kept in the engine at once."""

    def validate(self) -> None:
        require(self.size >= 0, f"population.size must not be negative, got {self.size}")
        require(self.half_life > 0, f"population.half_life must be above 0, got {self.half_life}")
        require(
            0.0 <= self.pfsp_power <= 20.0,
            f"population.pfsp_power must lie in [0, 20], got {self.pfsp_power}",
        )
        require(self.loaded >= 1, "population.loaded must be at least 1")


@dataclass
class InitConfig:
    """Where the adapters start: folders of PEFT adapters, or null for a fresh adapter (zero B)."""

    agent: str | None = None
    attacker: str | None = None


@dataclass
class EvalConfig:
    """Evaluation and cross-play.

    Policies are named ``base``, ``sft``, ``rl-5``, ``scripted``, or by the folder of an adapter; the
    attacker ``none`` means no attack.
    """

    agents: list[str] = field(default_factory=lambda: ["base", "sft", "rl-5", "rl-10", "rl-15"])
    attackers: list[str] = field(
        default_factory=lambda: ["none", "base", "sft", "rl-5", "rl-10", "rl-15"]
    )
    guards: list[str] = field(default_factory=lambda: ["none"])
    """Runtime layers, each choice a further set of cells: none, permissions, filter, approval, all, or several with a
    + between. They take the place of those that `game.guard` switches on."""
    split: str = "eval"
    episodes: int = 64
    """Episodes a cell and seed."""
    seeds: list[int] = field(default_factory=lambda: [0])
    temperature: float = 0.0

    def validate(self) -> None:
        require(
            self.split in ("train", "eval"), f"eval.split must be train or eval, got {self.split}"
        )
        require(self.episodes >= 1, "eval.episodes must be at least 1")
        require(
            0.0 <= self.temperature <= 100.0,
            f"eval.temperature must lie in [0, 100], got {self.temperature}",
        )
        for name in ("agents", "attackers", "seeds", "guards"):
            given = getattr(self, name)
            require(len(given) >= 1, f"eval.{name} is empty")
            require(len(set(given)) == len(given), f"eval.{name} names something twice: {given}")
        for guard in self.guards:
            guard_layers(guard)


@dataclass
class LoggerConfig:
    """Where metrics go besides ``metrics.jsonl``."""

    tensorboard: bool = True
    wandb: bool = False
    wandb_project: str = "arlas"
    progress: bool = True


@dataclass
class RunConfig:
    """One training run; the root of ``conf/train.yaml``."""

    name: str = "run"
    seed: int = 0
    run_dir: str = "runs/run"
    resume: Resume = Resume.AUTO
    threads: int = 0
    """torch threads; 0 leaves torch's own choice."""
    objective: str = "agent/reward_mean"
    """The metric that `train` returns, for Hydra sweeps."""
    env: Any = None
    policy: Any = None
    teachers: dict[str, Any] = field(default_factory=dict)
    """Further engines by version name, e.g. ``scripted``, for evaluation and collection."""
    game: GameConfig = field(default_factory=GameConfig)
    reward: RewardConfig = field(default_factory=RewardConfig)
    shaping: ShapingConfig = field(default_factory=ShapingConfig)
    lora: LoraConfig = field(default_factory=LoraConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    algo: AlgoConfig = field(default_factory=AlgoConfig)
    population: PopulationConfig = field(default_factory=PopulationConfig)
    init: InitConfig = field(default_factory=InitConfig)
    collect: CollectConfig = field(default_factory=CollectConfig)
    sft: SFTConfig = field(default_factory=SFTConfig)
    rephrase: RephraseConfig = field(default_factory=RephraseConfig)
    nearpolicy: NearPolicyConfig = field(default_factory=NearPolicyConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)
    logger: LoggerConfig = field(default_factory=LoggerConfig)

    def validate(self) -> None:
        """Refuses configs that contradict themselves. Raises `ConfigurationError`."""
        parts = (
            self.game,
            self.sampling,
            self.lora,
            self.algo,
            self.population,
            self.collect,
            self.sft,
            self.rephrase,
            self.nearpolicy,
            self.eval,
        )
        _check_finite(dataclasses.asdict(self))
        require(0 <= self.seed < 2**31, f"seed must lie in [0, 2^31), got {self.seed}")
        require(0 <= self.threads <= 1024, f"threads must lie in [0, 1024], got {self.threads}")
        for part in parts:
            part.validate()
        self.shaping.validate(self.reward, self.sampling.max_tokens, self.algo.seats)
        self.sampling.validate_training()
        for name in self.teachers:
            require(
                name not in ("none", "base", "sft") and not name.startswith("rl-"),
                f"teachers.{name}: this name means a stage of a run; call the teacher otherwise",
            )
        for group in ("env", "policy"):
            require(getattr(self, group) is not None, f"choose {group}=…, see conf/{group}/")
        if not self.game.attack:
            require(
                Seat.ATTACKER not in self.algo.seats,
                "game.attack=false leaves the attacker nothing to learn: set algo.seats=[agent]",
            )
