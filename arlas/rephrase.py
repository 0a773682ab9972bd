"""Near-policy demonstrations: the policy tells the reasoning of won turns anew, in its own words.

Self-distillation (arXiv 2402.13669) of the ``<think>`` part alone. Everything behind it is taken from the original, never
from the model, so actions stay byte-identical. A new reasoning is refused, and the original stays, for one of the
`REASONS`; all are counted. Only turns of seats that won their episode are touched: no others are imitated.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tqdm import tqdm

from arlas.build import engine
from arlas.chat import Chat
from arlas.checkpoint import ADAPTER, digest, locked, write_file
from arlas.choices import ReplyFormat
from arlas.collect import check_mark, chunk_files, folder_of, lines, read, won
from arlas.config import RunConfig
from arlas.evaluate import Entrant, entrant
from arlas.fingerprint import fingerprint
from arlas.leak import LeakTest
from arlas.policies.base import Policy
from arlas.private import Curtain
from arlas.rules import LeakConfig
from arlas.seeding import derive
from arlas.text import plain
from arlas.types import (
    ArlasError,
    CheckpointError,
    ConfigurationError,
    Episode,
    Message,
    PolicyError,
    Request,
    Sampling,
    Seat,
    Segment,
    StopReason,
    Turn,
)

REASONS = {
    "no reasoning": "the original has none, no action, or was cut off",
    "prompt too long": "the rewriter's prompt would exceed game.max_prompt_tokens",
    "fault": "the engine failed",
    "cut off": "the answer reached rephrase.max_tokens",
    "changed action": "the answer holds an action other than the original's",
    "tags": "the new reasoning holds tags of the reply format",
    "empty": "there is no new reasoning",
    "control characters": "it holds what a terminal would not show, or show as something else",
    "private": "it holds one of the user's private fields",
    "drops arguments": "the original names an argument of the call, the new one does not (rephrase.keep_arguments)",
    "unchanged": "it is the original",
    "too long": "the reply would exceed sampling.max_tokens",
    "not encodable": "the tokens would not read as the text",
}
"""Why an original stays."""
REWRITTEN = "rewritten"

_RULES = (
    "You rewrite the reasoning of a reply in your own words. Keep its meaning and what it decides, and name the same "
    "elements. Answer with the new reasoning alone: no tags, no action, no private data."
)
_TAG = re.compile(r"<\s*/?\s*(?:think|action)\b", re.IGNORECASE)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_CHARS_A_TOKEN = 32


class Refused(ValueError):
    """The original stays; the text is one of the `REASONS`."""


@dataclass(frozen=True)
class Rules:
    """What a new reasoning is held to; ``max_tokens`` bounds the whole reply with its stop token."""

    chat: Chat
    leak: LeakConfig
    max_tokens: int
    keep_arguments: bool = True


def parts(turn: Turn) -> tuple[str, str]:
    """The reasoning of a reply, and everything from ``</think>`` on. Raises `Refused` without either."""
    before, opened, rest = turn.text.partition("<think>")
    thought, closed, after = rest.partition("</think>")
    whole = turn.action is not None and turn.stop_reason is StopReason.STOP
    if not (opened and closed and whole) or before.strip() or not thought.strip():
        raise Refused("no reasoning")
    if len(_ACTION.findall(after)) != 1:
        raise Refused("no reasoning")
    return thought, closed + after


def retell(turn: Turn, answer: str, user: Mapping[str, str], goal: str, rules: Rules) -> str:
    """The turn's reply with the reasoning that ``answer`` gives. Raises `Refused`."""
    old, rest = parts(turn)
    if len(answer) > _CHARS_A_TOKEN * rules.max_tokens:
        raise Refused("too long")
    action = _ACTION.findall(rest)[0]
    said = _ACTION.findall(answer)
    if any(other != action for other in said):
        raise Refused("changed action")
    thought = _ACTION.sub("", answer, count=1).strip()
    if thought.startswith("<think>") and thought.endswith("</think>"):
        thought = thought[len("<think>") : -len("</think>")].strip()
    if _TAG.search(thought):
        raise Refused("tags")
    if not thought:
        raise Refused("empty")
    if plain(thought) != thought:
        raise Refused("control characters")
    if LeakTest(user, rules.leak, public=goal).check({"reasoning": thought}, ()):
        raise Refused("private")
    if thought == old.strip():
        raise Refused("unchanged")
    if rules.keep_arguments and turn.seat is Seat.AGENT:
        named = [a for a in _QUOTED.findall(action) if _names(old, a)]
        if not all(_names(thought, a) for a in named):
            raise Refused("drops arguments")
    text = f"<think>{thought}{rest}"
    ids = rules.chat.encode(text)
    if len(ids) + 1 > rules.max_tokens:
        raise Refused("too long")
    if rules.chat.decode(ids) != text:
        raise Refused("not encodable")
    return text


def _names(text: str, argument: str) -> bool:
    return bool(re.search(rf"(?<!\w){re.escape(argument)}(?!\w)", text))


def runs(segments: Sequence[Segment]) -> list[tuple[int, int, int]]:
    """The span of every reply as (segment, start, stop), in the order of the turns."""
    return [(n, start, stop) for n, s in enumerate(segments) for start, stop in s.spans()]


def splice(segments: Sequence[Segment], new: Mapping[int, tuple[int, ...]]) -> tuple[Segment, ...]:
    """Segments with the token ids of some runs (by number) replaced; prompts stay to the token.

    The stop token that ended a run ends the new one. New tokens were never sampled: log-probability 0.
    """
    made = list(segments)
    for number, (n, start, stop) in reversed(list(enumerate(runs(segments)))):
        if number not in new:
            continue
        one, ids = made[n], (*new[number], made[n].token_ids[stop - 1])
        made[n] = Segment(
            one.token_ids[:start] + ids + one.token_ids[stop:],
            one.action_mask[:start] + (True,) * len(ids) + one.action_mask[stop:],
            one.logprobs[:start] + (0.0,) * len(ids) + one.logprobs[stop:],
        )
    return tuple(made)


def prompt(turn: Turn, goal: str) -> list[Message]:
    """What the rewriter is told: the task, what the seat saw, and the original reply. No private data but what
    stands in the reply."""
    return [
        Message("system", _RULES),
        Message(
            "user",
            f"Task: {goal}\nObservation:\n{turn.observation}\nReply:\n{turn.text}\nThe reasoning in your own words:",
        ),
    ]


def rephrase(config: RunConfig) -> tuple[Path, dict[str, dict[str, int]]]:
    """Rewrites what is missing of a folder of demonstrations; returns the new folder and counts by seat.

    The result is a folder of demonstrations like its source, for ``sft.demos``, with ``counts.json``. Chunks are
    whole files: a killed call continues behind the last one. Raises `ConfigurationError` before the engine
    starts if the source is not whole, or the folder holds something else.
    """
    if config.game.reply is not ReplyFormat.TAGGED:
        raise ConfigurationError(
            "game.reply=word has no reasoning to rewrite; choose game.reply=tagged"
        )
    source = folder_of(config, config.rephrase.source)
    out = Path(config.run_dir) / config.rephrase.out
    if out.resolve() == source.resolve():
        raise ConfigurationError(f"rephrase.out is rephrase.source: {out}")
    sources = chunk_files(source)
    by = {
        seat: entrant(seat, config.rephrase.by, Path(config.run_dir), tuple(config.teachers))
        for seat in config.rephrase.seats
    }
    with locked(out):
        check_mark(out, _key(config, sources, by), [lines(path) for path in sources])
        missing = [i for i, path in enumerate(sources) if not (out / path.name).is_file()]
        if missing:
            policy = engine(config)
            try:
                for who in by.values():
                    if who.folder is not None and who.ref.adapter is not None:
                        policy.load_adapter(who.ref.adapter, who.folder)
                asyncio.run(_Rewriter(config, policy, by).chunks(sources, missing, out))
            finally:
                policy.close()
        counts = _total(out, [path.name for path in sources])
        write_file(out / "counts.json", json.dumps(counts, indent=1))
    return out, counts


class _Rewriter:
    def __init__(self, config: RunConfig, policy: Policy, by: Mapping[Seat, Entrant]) -> None:
        self.config, self.policy, self.by = config, policy, by
        chat = Chat(policy.tokenizer)
        self.rules = Rules(
            chat, config.game.leak, config.sampling.max_tokens, config.rephrase.keep_arguments
        )
        own = config.rephrase
        self.sampling = Sampling(temperature=own.temperature, max_tokens=own.max_tokens)
        self.gate = asyncio.Semaphore(own.concurrency)
        self.fault = ""

    async def chunks(self, sources: Sequence[Path], missing: Sequence[int], out: Path) -> None:
        bar = tqdm(
            total=len(missing),
            unit="chunk",
            desc="rephrasing",
            disable=not self.config.logger.progress,
        )
        with bar:
            for i in missing:
                counts: dict[str, Counter[str]] = {seat.value: Counter() for seat in self.by}
                episodes = await asyncio.gather(
                    *(self._episode(e, f"{i}/{n}", counts) for n, e in enumerate(read(sources[i])))
                )
                self._check_faults(counts)
                # The counts first: the chunk is there once its episodes are.
                write_file(_counts(out, sources[i].name), json.dumps(counts))
                write_file(out / sources[i].name, "".join(e.to_json() + "\n" for e in episodes))
                bar.update()

    def _check_faults(self, counts: Mapping[str, Counter[str]]) -> None:
        failed = sum(c["fault"] for c in counts.values())
        asked = sum(sum(c.values()) - c["no reasoning"] - c["not won"] for c in counts.values())
        if failed > self.config.algo.max_error_share * max(1, asked):
            raise ArlasError(f"{failed} of {asked} rewritings failed; the last one: {self.fault}")

    async def _episode(
        self, episode: Episode, place: str, counts: Mapping[str, Counter[str]]
    ) -> Episode:
        for seat in self.by:
            turns = [(i, t) for i, t in enumerate(episode.turns) if t.seat is seat]
            tally = counts[seat.value]
            if won(episode, seat) is not None:
                tally["not won"] += len(turns)
                continue
            # The attacker was never told a goal with private data in it.
            goal = episode.goal if seat is Seat.AGENT else Curtain(episode.user)(episode.goal)
            segments = episode.segments.get(seat, ())
            spoken = runs(segments)
            told = await asyncio.gather(
                *(
                    self._turn(t, goal, episode.user, f"{place}/{seat}/{n}")
                    for n, (_, t) in enumerate(turns)
                )
            )
            new: dict[int, tuple[int, ...]] = {}
            replies = list(episode.turns)
            for n, ((i, turn), (text, reason)) in enumerate(zip(turns, told, strict=True)):
                if text is not None and not self._reads(segments, spoken, len(turns), n, turn):
                    text, reason = None, "not encodable"
                tally[reason] += 1
                if text is None:
                    continue
                new[n] = self.rules.chat.encode(text)
                replies[i] = dataclasses.replace(turn, text=text, completion_tokens=len(new[n]) + 1)
            episode = dataclasses.replace(
                episode,
                turns=tuple(replies),
                segments={**episode.segments, seat: splice(segments, new)},
            )
        return episode

    def _reads(
        self,
        segments: Sequence[Segment],
        spoken: Sequence[tuple[int, int, int]],
        turns: int,
        n: int,
        turn: Turn,
    ) -> bool:
        """Whether the n-th run of tokens is the turn's text in this tokenizer."""
        if len(spoken) != turns:
            return False
        segment, start, stop = spoken[n]
        return self.rules.chat.decode(segments[segment].token_ids[start:stop]) == turn.text

    async def _turn(
        self, turn: Turn, goal: str, user: Mapping[str, str], place: str
    ) -> tuple[str | None, str]:
        """The new reply, or None, and what became of it."""
        try:
            parts(turn)
            answer = await self._ask(turn, goal, derive(self.config.seed, "rephrase", place))
            return retell(turn, answer, user, goal, self.rules), REWRITTEN
        except Refused as refused:
            return None, str(refused)

    async def _ask(self, turn: Turn, goal: str, seed: int) -> str:
        messages = prompt(turn, goal)
        prompt_ids = self.rules.chat.render(messages)
        if len(prompt_ids) > self.config.game.max_prompt_tokens:
            raise Refused("prompt too long")
        ref = self.by[turn.seat].ref
        request = Request(ref, prompt_ids, self.sampling, seed, tuple(messages))
        for _ in range(self.config.algo.episode_retries + 1):
            try:
                async with self.gate:
                    completion = await self.policy.complete(request)
            except PolicyError as fault:
                self.fault = str(fault)
                continue
            if completion.stop_reason is StopReason.LENGTH:
                raise Refused("cut off")
            return self.rules.chat.decode(completion.token_ids)
        raise Refused("fault")


def _key(config: RunConfig, sources: Sequence[Path], by: Mapping[Seat, Entrant]) -> str:
    plainly = dataclasses.asdict(config)
    own = {
        k: v for k, v in plainly["rephrase"].items() if k not in ("source", "out", "concurrency")
    }
    return fingerprint(
        {
            "rephrasing": own,
            "sources": [digest(path) for path in sources],
            "adapters": [str(w.folder and digest(w.folder / ADAPTER)) for w in by.values()],
            "leak": plainly["game"]["leak"],
            "limits": [config.game.max_prompt_tokens, config.sampling.max_tokens],
            **{k: plainly[k] for k in ("seed", "policy", "teachers")},
        }
    )


def _counts(out: Path, chunk: str) -> Path:
    return out / chunk.replace("episodes-", "counts-").replace(".jsonl", ".json")


def _total(out: Path, chunks: Sequence[str]) -> dict[str, dict[str, int]]:
    total: dict[str, Counter[str]] = {}
    for chunk in chunks:
        path = _counts(out, chunk)
        try:
            for seat, counts in json.loads(path.read_text("utf-8")).items():
                total.setdefault(seat, Counter()).update({k: int(n) for k, n in counts.items()})
        except (ValueError, AttributeError, TypeError) as error:
            raise CheckpointError(
                f"{path} is damaged ({error!r}); delete it and {out / chunk}, and call this again"
            ) from error
    return {seat: dict(counts.most_common()) for seat, counts in total.items()}
