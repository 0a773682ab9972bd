"""One seat of one game: keeps its conversation and writes its own segments."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from arlas.chat import Chat, without_thought
from arlas.choices import History
from arlas.policies.base import Policy
from arlas.rules import GameConfig
from arlas.seeding import derive
from arlas.types import (
    Completion,
    Message,
    PolicyError,
    PolicyRef,
    Request,
    Sampling,
    Segment,
    add_turn,
)


@dataclass(frozen=True)
class Reply:
    """What a policy said, decoded for reading, with what it cost."""

    text: str
    completion: Completion
    prompt_tokens: int
    seconds: float


@dataclass
class Player:
    """A policy in a seat for the length of one episode."""

    policy: Policy
    chat: Chat
    ref: PolicyRef
    sampling: Sampling
    game: GameConfig
    seed: int
    segments: tuple[Segment, ...] = ()
    _messages: list[Message] = field(default_factory=list)
    _sampled: dict[int, tuple[int, ...]] = field(default_factory=dict)
    _calls: int = 0

    async def speak(self, messages: Sequence[Message]) -> Reply:
        """Answers a prompt of system and user messages.

        With `History.FULL` the system message opens one conversation and the user message continues it.
        Raises `PolicyError` if the prompt does not fit, or the engine fails.
        """
        full = self.game.history is History.FULL
        if full and self._messages:
            self._messages += [m for m in messages if m.role != "system"]
        else:
            self._messages = list(messages)
        prompt_ids = self._fitted()
        self._calls += 1
        started = time.monotonic()
        completion = await self.policy.complete(
            Request(
                policy=self.ref,
                prompt_ids=prompt_ids,
                sampling=self.sampling,
                seed=derive(self.seed, self.ref.seat, self._calls),
                messages=tuple(self._messages),
            )
        )
        text = self.chat.decode(completion.token_ids)
        self.segments = add_turn(self.segments, prompt_ids, completion)
        if full:
            kept = text if self.chat.keeps_thoughts else without_thought(text)
            if self.chat.keeps_thoughts:
                self._sampled[len(self._messages)] = completion.token_ids
            self._messages.append(Message("assistant", kept))
        return Reply(text, completion, len(prompt_ids), time.monotonic() - started)

    def _fitted(self) -> tuple[int, ...]:
        """The prompt, without the oldest turns of a conversation that has outgrown the limit."""
        while True:
            prompt_ids = self.chat.render(self._messages, self._sampled)
            if len(prompt_ids) <= self.game.max_prompt_tokens:
                return prompt_ids
            first = 1 if self._messages[0].role == "system" else 0
            if len(self._messages) < first + 3:
                raise PolicyError(
                    f"a prompt of {len(prompt_ids)} tokens exceeds game.max_prompt_tokens="
                    f"{self.game.max_prompt_tokens}; lower game.max_observation_chars"
                )
            del self._messages[first : first + 2]
            self._sampled = {i - 2: ids for i, ids in self._sampled.items() if i >= first + 2}
