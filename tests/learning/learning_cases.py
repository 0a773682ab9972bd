"""Made-up episodes and brute-force computations that the tests of learning compare with."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import torch

from arlas.config import AlgoConfig, InitConfig, LoraConfig
from arlas.learning.learner import Learner
from arlas.types import Episode, Group, PolicyRef, Seat, Segment, Status

TINY = ("tiny-llama", "tiny-gemma3", "tiny-qwen3")
TEMPERATURE = 1.2
VOCABULARY = 250  # token ids below the size of every tiny model's vocabulary
BOTH = (Seat.AGENT, Seat.ATTACKER)


def tokens(rng: random.Random, n: int) -> list[int]:
    return [rng.randrange(VOCABULARY) for _ in range(n)]


def segment(
    parts: Sequence[tuple[Sequence[int], bool]], rng: random.Random | None = None
) -> Segment:
    """A segment out of (tokens, were they sampled) parts; sampled tokens get made-up log-probabilities."""
    ids = [t for part, _ in parts for t in part]
    mask = [sampled for part, sampled in parts for _ in part]
    draw = rng or random.Random(0)
    return Segment(
        tuple(ids), tuple(mask), tuple(-4.5 - 2.0 * draw.random() if m else 0.0 for m in mask)
    )


def episode(
    index: int,
    segments: Sequence[Segment],
    reward: float,
    seat: Seat = Seat.AGENT,
    status: Status = Status.OK,
) -> Episode:
    return Episode(
        task="t",
        seed=0,
        index=index,
        learner=seat,
        attacker=None,
        agent=PolicyRef(Seat.AGENT, "rl-1"),
        segments={seat: tuple(segments)},
        rewards={} if status is Status.ERROR else {seat: reward},
        status=status,
    )


def group(episodes: Sequence[Episode], seed: int = 0, seat: Seat = Seat.AGENT) -> Group:
    return Group("t", seed, seat, "opponent", tuple(episodes))


def groups_sharing_prompts(seed: int = 0, count: int = 2, seat: Seat = Seat.AGENT) -> list[Group]:
    """Groups of 4 episodes: one prompt for all of a group, a second turn that parts late, a third apart."""
    rng = random.Random(seed)
    made = []
    for g in range(count):
        prompt, later = tokens(rng, 40), tokens(rng, 30)
        episodes = []
        for i in range(4):
            one = segment([(prompt, False), (tokens(rng, 3 + 2 * i), True)], rng)
            second = [*later, *tokens(rng, 4)]
            two = segment([(second, False), (tokens(rng, 5), True), (tokens(rng, 2), False)], rng)
            chat = [(tokens(rng, 6), False), (tokens(rng, 2), True), (tokens(rng, 3), False)]
            three = segment([*chat, (tokens(rng, 4), True)], rng)
            episodes.append(episode(i, [one, two, three][: 1 + (i + g) % 3], rng.random(), seat))
        made.append(group(episodes, g, seat))
    return made


def make_learner(
    model: str = "tiny-llama",
    init: InitConfig | None = None,
    seats: Sequence[Seat] = BOTH,
    seed: int = 0,
    **algo: Any,
) -> Learner:
    options = {"lr": 1e-2, "batch_size": 0, "beta": 0.05} | algo
    return Learner(
        model,
        LoraConfig(rank=4, alpha=8),
        AlgoConfig(**options),
        init or InitConfig(),
        TEMPERATURE,
        seats,
        seed,
        device="cpu",
    )


def stir(learner: Learner, seed: int = 1, scale: float = 0.05) -> None:
    """Moves every trained adapter off its start, so that B is not 0 and gradients reach A."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for seat in learner.seats:
            for parameter in learner.parameters(seat).values():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * scale)


def naive_logprobs(
    learner: Learner, one: Segment, temperature: float = TEMPERATURE
) -> torch.Tensor:
    """Log-probabilities of a segment's action tokens from the model's own forward pass on it alone."""
    ids = torch.tensor([one.token_ids])
    logits_TV = learner.base(input_ids=ids).logits[0].float() / temperature
    all_T = logits_TV.log_softmax(-1)[:-1].gather(1, ids[0, 1:, None])[:, 0]
    return all_T[torch.tensor(one.action_mask[1:])]


class CaughtGradients:
    """Stands in for a seat's optimizer step: keeps the gradients, changes nothing."""

    def __init__(self, learner: Learner, seat: Seat) -> None:
        self.steps: list[dict[str, torch.Tensor]] = []
        optimizer = learner.optimizers[seat]

        def keep() -> None:
            found = learner.parameters(seat).items()
            self.steps.append({n: p.grad.clone() for n, p in found if p.grad is not None})

        optimizer.step = keep  # type: ignore[method-assign,assignment]
