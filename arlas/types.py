"""The words of the project: what travels between the game, the policies and the learner."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import EnumMeta, StrEnum
from typing import Any

from envs.base import Observation as Observation
from envs.base import ToolCall as ToolCall
from envs.base import Verdict as Verdict

# --- errors -------------------------------------------------------------------------------------------


class ArlasError(Exception):
    """Base of all errors that the project raises on purpose."""


class ConfigurationError(ArlasError, ValueError):
    """The configuration is wrong or contradicts itself; raised before any work is done."""


class MissingExtraError(ArlasError, ImportError):
    """A part that not everybody installs is needed; the message says which extra brings it."""


class CheckpointError(ArlasError, RuntimeError):
    """A bundle is damaged, or belongs to another config."""


class AdapterError(ArlasError, ValueError):
    """An adapter does not fit the base model, or is not loaded."""


class PolicyError(ArlasError, RuntimeError):
    """An engine failed on a request: an infrastructure fault, never a reward (invariant 6)."""


class TrainingError(ArlasError, FloatingPointError):
    """Training produced numbers that are not finite; the adapter is as it was before the step."""


# --- seats and policies ---------------------------------------------------------------------------------


class _ByValue(EnumMeta):
    """Finds members by value too, so that configs may say ``agent`` where Python says ``AGENT``."""

    def __getitem__(cls, name: str) -> Any:
        return super().__getitem__(name.upper())


class Choice(StrEnum, metaclass=_ByValue):
    """A word from a short list, written in lower case wherever people read it."""


class Seat(Choice):
    """The two players."""

    ATTACKER = "attacker"
    AGENT = "agent"


class StopReason(Choice):
    """Why a completion ended."""

    STOP = "stop"
    """The model sampled a stop token; it is the last of ``token_ids``."""
    LENGTH = "length"
    """``max_tokens`` were sampled, none of them a stop token."""


@dataclass(frozen=True)
class PolicyRef:
    """Names which policy plays a seat.

    ``version`` is what reports show (``base``, ``sft``, ``rl-5``, ``scripted``); ``adapter`` is the name
    under which the engine serves it, None for the base model.
    """

    seat: Seat
    version: str
    adapter: str | None = None


@dataclass(frozen=True)
class Message:
    """One chat message; ``role`` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn. ``temperature`` 0 is greedy; log-probabilities are then those of T = 1."""

    temperature: float = 1.2
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 128


@dataclass(frozen=True)
class Request:
    """One completion asked of an engine.

    Engines read ``prompt_ids``. ``messages`` is what they were rendered from, and only policies without a
    token interface (scripted, a remote chat endpoint) read it. The same ``seed`` with the same prompt and
    adapter gives the same tokens, up to the rounding of the engine's batches.
    """

    policy: PolicyRef
    prompt_ids: tuple[int, ...]
    sampling: Sampling
    seed: int = 0
    messages: tuple[Message, ...] = ()


@dataclass(frozen=True)
class Completion:
    """What a policy returns.

    ``logprobs[i]`` is the log-probability of ``token_ids[i]`` under the distribution it was drawn from,
    that is after temperature. A sampled stop token is included in both.
    """

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: StopReason
    policy: PolicyRef

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(
                f"{len(self.token_ids)} tokens but {len(self.logprobs)} log-probabilities"
            )


# --- what is trained on -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """An append-only run of tokens as one engine saw them, and the only maker of action masks.

    All three fields have one entry a token; ``logprobs`` is 0 where ``action_mask`` is False. Only sampled
    tokens are True (invariant 2). A prompt that does not extend the tokens so far starts a new segment
    (invariant 1).
    """

    token_ids: tuple[int, ...] = ()
    action_mask: tuple[bool, ...] = ()
    logprobs: tuple[float, ...] = ()

    def extends_to(self, prompt_ids: Sequence[int]) -> bool:
        """Whether ``prompt_ids`` begins with everything this segment holds."""
        n = len(self.token_ids)
        return len(prompt_ids) >= n and tuple(prompt_ids[:n]) == self.token_ids

    def spans(self) -> list[tuple[int, int]]:
        """The replies in it, unbroken runs of action tokens, as (start, stop)."""
        found, start = [], 0
        for acted, run in itertools.groupby(self.action_mask):
            stop = start + sum(1 for _ in run)
            if acted:
                found.append((start, stop))
            start = stop
        return found

    def add(self, prompt_ids: Sequence[int], completion: Completion) -> Segment:
        """This segment with a prompt that extends it and what was sampled after that prompt."""
        if not self.extends_to(prompt_ids):
            raise ValueError("the prompt does not extend the segment; start a new one")
        new = len(prompt_ids) - len(self.token_ids)
        sampled = len(completion.token_ids)
        return Segment(
            tuple(prompt_ids) + completion.token_ids,
            self.action_mask + (False,) * new + (True,) * sampled,
            self.logprobs + (0.0,) * new + completion.logprobs,
        )


def add_turn(
    segments: tuple[Segment, ...], prompt_ids: Sequence[int], completion: Completion
) -> tuple[Segment, ...]:
    """Extends the last segment with a turn if the prompt allows it, else opens a new segment."""
    if segments and segments[-1].extends_to(prompt_ids):
        return (*segments[:-1], segments[-1].add(prompt_ids, completion))
    return (*segments, Segment().add(prompt_ids, completion))


# --- episodes ---------------------------------------------------------------------------------------------


class Status(Choice):
    """Whether an episode may be learned from."""

    OK = "ok"
    ERROR = "error"
    """An infrastructure fault; the episode has no rewards and leaves its group."""


class Outcome(Choice):
    """The terminal event, a row of the payoff table."""

    LEAK = "leak"
    SUCCESS = "success"
    FAILURE = "failure"
    """The world ended the episode without success, or the step limit was reached."""


class Layer(Choice):
    """A runtime layer between the agent's call and the world; see `arlas.guard`."""

    PERMISSIONS = "permissions"
    FILTER = "filter"
    APPROVAL = "approval"


NO_GUARD, ALL_LAYERS = "none", "all"


def guard_name(layers: Sequence[Layer]) -> str:
    """What a choice of layers is called: none, all, or their names, with a + between."""
    if set(layers) == set(Layer):
        return ALL_LAYERS
    return "+".join(layer for layer in Layer if layer in layers) or NO_GUARD


def guard_layers(name: str) -> tuple[Layer, ...]:
    """The layers that `guard_name` called so. Raises `ConfigurationError`."""
    if name in (NO_GUARD, ALL_LAYERS):
        return tuple(Layer) if name == ALL_LAYERS else ()
    try:
        chosen = [Layer(part) for part in name.split("+")]
    except ValueError:
        raise ConfigurationError(
            f"no runtime layers are called {name}: choose none, all, or some of {', '.join(Layer)} with a + between"
        ) from None
    return tuple(layer for layer in Layer if layer in chosen)


@dataclass(frozen=True)
class Turn:
    """What one seat did at one step. All text here is hostile: escape it wherever it is shown.

    ``text`` is the reply decoded for reading (training uses the segments). ``action`` is the parsed action,
    the planted text or the tool call as text; None if the reply was malformed, and ``error`` says why.
    ``observation`` is what the seat was shown. ``stopped`` says which layers kept the call from the world, and why.
    """

    seat: Seat
    step: int
    observation: str
    text: str
    action: str | None
    error: str | None = None
    stop_reason: StopReason = StopReason.STOP
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0
    stopped: Mapping[Layer, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Episode:
    """One game, complete enough to be read and replayed. Stored as one JSON line.

    ``layers`` were on; ``stops`` is the log of what they kept from the world.
    """

    task: str
    seed: int
    index: int
    learner: Seat | None
    attacker: PolicyRef | None
    agent: PolicyRef
    goal: str = ""
    user: Mapping[str, str] = field(default_factory=dict)
    turns: tuple[Turn, ...] = ()
    segments: Mapping[Seat, tuple[Segment, ...]] = field(default_factory=dict)
    verdict: Verdict = field(default_factory=Verdict)
    outcome: Outcome | None = None
    leaked: tuple[str, ...] = ()
    rewards: Mapping[Seat, float] = field(default_factory=dict)
    status: Status = Status.OK
    error: str | None = None
    seconds: float = 0.0
    layers: tuple[Layer, ...] = ()

    @property
    def guard(self) -> str:
        """What the layers that were on are called."""
        return guard_name(self.layers)

    @property
    def stops(self) -> tuple[Turn, ...]:
        """The turns whose call a layer stopped: unauthorised attempts, which are no leaks."""
        return tuple(t for t in self.turns if t.stopped)

    @property
    def ok(self) -> bool:
        """Whether the episode may be counted and learned from."""
        return self.status is Status.OK

    def to_json(self) -> str:
        """The episode as one line of JSON."""
        return json.dumps(self, ensure_ascii=True, default=_plain)

    @classmethod
    def from_json(cls, line: str) -> Episode:
        """Reads a line that `to_json` wrote. Raises ValueError on anything else."""
        try:
            return cls._from(json.loads(line))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not an episode: {type(error).__name__}: {error}") from error

    @classmethod
    def _from(cls, raw: dict[str, Any]) -> Episode:

        def ref(value: Any) -> PolicyRef | None:
            return value and PolicyRef(Seat(value["seat"]), value["version"], value["adapter"])

        agent = ref(raw["agent"])
        if agent is None:
            raise ValueError("an episode without an agent")
        return cls(
            **{
                **raw,
                "learner": Seat(raw["learner"]) if raw["learner"] else None,
                "attacker": ref(raw["attacker"]),
                "agent": agent,
                "turns": tuple(
                    Turn(
                        **{
                            **t,
                            "seat": Seat(t["seat"]),
                            "stop_reason": StopReason(t["stop_reason"]),
                            "stopped": {Layer(k): v for k, v in t.get("stopped", {}).items()},
                        }
                    )
                    for t in raw["turns"]
                ),
                "segments": {
                    Seat(seat): tuple(
                        Segment(*(tuple(s[k]) for k in ("token_ids", "action_mask", "logprobs")))
                        for s in segments
                    )
                    for seat, segments in raw["segments"].items()
                },
                "verdict": Verdict(**raw["verdict"]),
                "outcome": Outcome(raw["outcome"]) if raw["outcome"] else None,
                "leaked": tuple(raw["leaked"]),
                "rewards": {Seat(k): v for k, v in raw["rewards"].items()},
                "status": Status(raw["status"]),
                "layers": tuple(map(Layer, raw.get("layers", ()))),
            }
        )


def _plain(value: Any) -> Any:
    # dataclasses.asdict would copy every token id; this walks the same fields without copies
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, (set, frozenset)):
        return sorted(map(str, value))
    return str(value)


@dataclass(frozen=True)
class Group:
    """The unit of advantages: G episodes of one task and seed against one opponent."""

    task: str
    seed: int
    learner: Seat | None
    opponent: str
    episodes: tuple[Episode, ...]

    @property
    def usable(self) -> tuple[Episode, ...]:
        """The episodes without infrastructure faults (invariant 6)."""
        return tuple(e for e in self.episodes if e.ok)
