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

    On the sampled tokens, engine and trainer must agree within ``tolerance`` nats. And if the engine sampled
    the same tokens as under the version before, its log-probabilities must have moved as the trainer's
    have: an engine that still serves the old adapter shows the old figures, however small the step was.
    """

    def __init__(self, games: Driver, learner: Learner, tolerance: float) -> None:
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
                f"{gap:.3f} (algo.engine_tolerance={self.tolerance}). Either an old adapter is served, or the "
                "engine computes in another precision: then raise algo.engine_tolerance, or set "
                "policy.dtype=float32"
            )
        if seat in self._last:
            self._check_moved(self._last[seat], segment, trained, name)
        self._last[seat] = (segment, trained)
        return gap

    def _check_moved(
        self,
        last: tuple[Segment, tuple[float, ...]],
        segment: Segment,
        trained: tuple[float, ...],
        name: str,
    ) -> None:
        before, trained_before = last
        if before.token_ids != segment.token_ids:
            return  # other tokens under the same seed: something else is served
        served, served_before = _sampled(segment), _sampled(before)
        moved = _distance(trained, trained_before)
        noise = max(_distance(trained_before, served_before), 1e-6)
        if moved > 10 * noise and _distance(served, served_before) < moved / 2:
            raise AdapterError(
                f"the engine still serves the adapter before {name}: the trainer's log-probabilities moved "
                f"by {moved:.2g}, the engine's by {_distance(served, served_before):.2g}"
            )


def _sampled(segment: Segment) -> tuple[float, ...]:
    pairs = zip(segment.logprobs, segment.action_mask, strict=True)
    return tuple(logprob for logprob, sampled in pairs if sampled)


def _distance(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    return max((abs(x - y) for x, y in zip(a, b, strict=True)), default=0.0)
