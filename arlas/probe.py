"""The proof that an engine serves the adapter it was given (invariant 7)."""

from __future__ import annotations

from dataclasses import replace

from arlas.learning.learner import Learner
from arlas.rollout import Driver
from arlas.types import AdapterError, Message, PolicyRef, Request, Seat, Segment

_PROMPT = [Message("user", "Say in a few words what you see.")]
_TOKENS = 8


class Probe:
    """Asks the engine for a few tokens under a new adapter and compares with the trainer.

    Engine and trainer must agree on the sampled tokens' log-probabilities within ``tolerance``; and
    where the trainer's own figures moved since the last version, the engine's must have moved too.
    """

    def __init__(self, games: Driver, learner: Learner, tolerance: float = 0.05) -> None:
        self.games, self.learner, self.tolerance = games, learner, tolerance
        self._last: dict[Seat, tuple[Segment, tuple[float, ...]]] = {}

    async def prove(self, seat: Seat, name: str) -> float:
        """The largest gap between engine and trainer on the probe, in nats.

        Raises `AdapterError` if the engine does not serve the trainer's current adapter as ``name``.
        """
        prompt = self.games.chat.render(_PROMPT)
        request = Request(
            policy=PolicyRef(seat, "probe", name),
            prompt_ids=prompt,
            sampling=replace(self.games.sampling, max_tokens=_TOKENS),
            seed=0,
        )
        completion = await self.games.policy.complete(request)
        segment = Segment().add(prompt, completion)
        trained = tuple(self.learner.logprobs(seat, segment))
        gap = _distance(trained, completion.logprobs)
        if gap > self.tolerance:
            raise AdapterError(
                f"the engine does not serve {name}: its log-probabilities differ from the trainer's by "
                f"{gap:.3f} (at most {self.tolerance}); a stale adapter or prefix cache, or another precision"
            )
        last = self._last.get(seat)
        self._last[seat] = (segment, trained)
        if last is not None and last[0] == segment:
            moved = _distance(tuple(self.learner.logprobs(seat, last[0])), last[1])
            if moved > self.tolerance:
                raise AdapterError(f"the engine still serves the adapter before {name}")
        return gap


def _distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)
