"""How near demonstrations are to the policy that imitates them, and whether its groups teach anything.

Every set of episodes, demonstrations or rollouts, is scored under the base model at temperature 1. Rollouts are
groups of G episodes on tasks and seeds of the demonstrations, both seats played by one policy (base, or its adapters
before and after imitation), so that the share of groups with different rewards is measured on the same games.
`analysis.nearpolicy` makes the table: perplexity relative to the base's own rollouts, length and repetition of the
reasoning, fillers, and groups with non-zero variance.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from arlas.build import check_placement, driver, engine, model_name, part
from arlas.chat import Chat
from arlas.checkpoint import ADAPTER, digest, locked, write_file
from arlas.collect import check_mark, chunk_files, folder_of, read, read_folder, won
from arlas.config import AlgoConfig, RunConfig
from arlas.evaluate import Entrant, entrant
from arlas.fingerprint import fingerprint
from arlas.learning.batch import Sample, micro_batches
from arlas.learning.logprobs import action_logprobs, can_share, check_model
from arlas.metrics import check_faults
from arlas.policies import models
from arlas.policies.base import Policy
from arlas.rollout import GroupSpec
from arlas.seeding import derive
from arlas.types import Episode, Seat, Segment
from envs.base import Worlds

INDEX = "nearpolicy.json"
FILLERS = (
    "actually", "alright", "as an ai", "as i mentioned", "as mentioned", "basically", "certainly", "first of all",
    "hmm", "i need to make sure", "i think", "in order to", "in other words", "it is important to", "it seems that",
    "just to be sure", "let me see", "let me think", "let us", "let's", "needless to say", "now that", "of course",
    "okay", "simply", "so basically", "that being said", "to be honest", "wait", "well",
)  # fmt: skip
"""Phrases that carry no content, in lower case. Where two overlap the longer one counts."""

_FILLER = re.compile(
    rf"\b(?:{'|'.join(re.escape(f) for f in sorted(FILLERS, key=len, reverse=True))})\b"
)


# --- what is measured of a text ---------------------------------------------------------------------------


def reasoning(reply: str) -> str:
    """What stands before the action, without tags: also of replies that could not be parsed."""
    before, closed, _ = reply.partition("</think>")
    text = before if closed else reply.partition("<action>")[0]
    return text.removeprefix("<think>").strip()


def repeated(words: Sequence[str], n: int) -> tuple[int, int]:
    """(n-grams that an earlier place of the text holds too, n-grams in all)."""
    grams = [tuple(words[i : i + n]) for i in range(len(words) - n + 1)]
    return len(grams) - len(set(grams)), len(grams)


def fillers(text: str) -> int:
    """How many `FILLERS` a text holds, upper case or lower, none within another."""
    return len(_FILLER.findall(" ".join(text.lower().split())))


def text_sums(replies: Iterable[str], chat: Chat, n: int) -> dict[str, int]:
    """Sums over the replies of one seat in one episode."""
    total = dict.fromkeys(
        ("replies", "reasoning_tokens", "words", "repeated", "ngrams", "fillers"), 0
    )
    for reply in replies:
        text = reasoning(reply)
        words = text.lower().split()
        again, grams = repeated(words, n)
        found = (1, len(chat.encode(text)), len(words), again, grams, fillers(text))
        total = {k: v + more for (k, v), more in zip(total.items(), found, strict=True)}
    return total


# --- log-probabilities ------------------------------------------------------------------------------------


class Scorer:
    """Log-probabilities of action tokens under a base model, at temperature 1 and in the trainer's precision."""

    def __init__(self, model: str, algo: AlgoConfig) -> None:
        gpu = algo.device != "cpu" and torch.cuda.is_available()
        self.base: Any = models.load_model(model, dtype=algo.dtype, device="cuda" if gpu else "cpu")
        check_model(self.base.requires_grad_(False))
        self.chat = Chat(models.load_tokenizer(model))
        self.algo = algo
        hidden = self.base.get_input_embeddings().weight.shape[1]
        self.share = 6.0 * hidden if can_share(self.base.config) else 0.0

    def sums(self, segments: Sequence[Segment]) -> list[float]:
        """Σ log π over the action tokens of each segment."""
        # The number of the segment travels where an advantage would: nothing is learned here.
        samples = [Sample(s, float(i)) for i, s in enumerate(segments) if any(s.action_mask)]
        total = torch.zeros(len(segments), dtype=torch.float64)
        with torch.no_grad():
            for batch in micro_batches(samples, self.algo.micro_batch_tokens, self.share):
                on_device = batch.to(self.base.device)
                found_N = action_logprobs(self.base, on_device, 1.0, self.algo.logprob_chunk)
                total.index_add_(0, batch.advantages_N.long(), found_N.double().cpu())
        return [float(value) for value in total]


def score(
    episodes: Sequence[Episode], scorer: Scorer, ngram: int, winners: bool
) -> list[dict[str, Any]]:
    """A row for each seat of each episode; ``winners``: only seats that won, as imitation sees them."""
    rows: list[dict[str, Any]] = []
    every: list[tuple[int, Segment]] = []
    for episode in episodes:
        for seat in Seat:
            segments = episode.segments.get(seat, ())
            lost = won(episode, seat) is not None if winners else not episode.ok
            if lost or not any(any(s.action_mask) for s in segments):
                continue
            every += [(len(rows), s) for s in segments]
            replies = [t.text for t in episode.turns if t.seat is seat]
            rows.append(
                {
                    "seat": seat.value,
                    "task": episode.task,
                    "seed": episode.seed,
                    "index": episode.index,
                    "reward": episode.rewards.get(seat),
                    "tokens": sum(sum(s.action_mask) for s in segments),
                    "logprob": 0.0,
                    **text_sums(replies, scorer.chat, ngram),
                }
            )
    # All at once: prompts of a group begin alike.
    for (row, _), value in zip(every, scorer.sums([s for _, s in every]), strict=True):
        rows[row]["logprob"] += value
    return rows


# --- the measurement --------------------------------------------------------------------------------------


def measure(config: RunConfig) -> Path:
    """Plays the rollouts that are missing, scores what is not scored yet; returns the folder with ``nearpolicy.json``.

    Rollouts lie in chunks, scores in a file for each set. Raises `ConfigurationError` before anything is
    played if demonstrations are not whole or a policy is unknown.
    """
    own, run_dir = config.nearpolicy, Path(config.run_dir)
    demos = {name: folder_of(config, name) for name in own.demos}
    first = read_folder(demos[own.demos[0]])
    for folder in demos.values():
        chunk_files(folder)
    players = {
        name: {seat: entrant(seat, name, run_dir, tuple(config.teachers)) for seat in Seat}
        for name in own.policies
    }
    out = run_dir / "nearpolicy"
    with locked(out):
        rollouts = _rollouts(config, first, players, out)
        sets = [(n, "demonstrations", f) for n, f in demos.items()]
        sets += [(n, "rollouts", f) for n, f in rollouts.items()]
        index = {
            "reference": own.policies[0],
            "group_size": own.group_size,
            "ngram": own.ngram,
            "temperature": own.temperature,
            "model": model_name(config),
            "sets": _scored(config, sets, out),
        }
        write_file(out / INDEX, json.dumps(index, indent=1))
    return out


def _scored(
    config: RunConfig, sets: Sequence[tuple[str, str, Path]], out: Path
) -> list[dict[str, str]]:
    scorer: Scorer | None = None
    listed = []
    for name, kind, folder in sets:
        files = chunk_files(folder)
        decides = [model_name(config), config.algo.dtype, config.nearpolicy.ngram, kind]
        key = hashlib.sha256(json.dumps([decides, [digest(f) for f in files]]).encode())
        path = out / f"scores-{key.hexdigest()[:12]}.jsonl"
        if not path.is_file():
            scorer = scorer or Scorer(model_name(config), config.algo)
            rows: list[dict[str, Any]] = []
            quiet = not config.logger.progress
            for file in tqdm(files, desc=f"scoring {name}", unit="chunk", disable=quiet):
                rows += score(read(file), scorer, config.nearpolicy.ngram, kind != "rollouts")
            write_file(path, "".join(json.dumps(row) + "\n" for row in rows))
        listed.append({"name": name, "kind": kind, "scores": path.name, "episodes": str(folder)})
    return listed


def games(episodes: Sequence[Episode], limit: int) -> list[Episode]:
    """The first episodes with different tasks and seeds, at most ``limit``, all tasks in turn."""
    by_task: dict[str, dict[int, Episode]] = {}
    for episode in episodes:
        by_task.setdefault(episode.task, {}).setdefault(episode.seed, episode)
    queues = [list(seeds.values()) for seeds in by_task.values()]
    longest = max(map(len, queues), default=0)
    turns = [queue[i] for i in range(longest) for queue in queues if i < len(queue)]
    return turns[:limit]


def _specs(
    config: RunConfig, played: Sequence[Episode], by: Mapping[Seat, Entrant]
) -> list[GroupSpec]:
    size = config.nearpolicy.group_size
    return [
        GroupSpec(
            task=e.task,
            seed=e.seed,
            learner=None,
            agent=by[Seat.AGENT].ref,
            attackers=(by[Seat.ATTACKER].ref,) * size if e.attacker else (),
            size=size,
        )
        for e in played
    ]


def _rollouts(
    config: RunConfig,
    demos: Sequence[Episode],
    players: Mapping[str, Mapping[Seat, Entrant]],
    out: Path,
) -> dict[str, Path]:
    """The folders of rollouts by policy, after what was missing has been played."""
    env = part(config.env, "env")
    check_placement(config, env)
    played = games(demos, config.nearpolicy.groups)
    groups = max(1, config.collect.chunk // config.nearpolicy.group_size)
    folders, work = {}, []
    for name, by in players.items():
        specs = _specs(config, played, by)
        chunks = [specs[i : i + groups] for i in range(0, len(specs), groups)]
        key = _key(config, played, by)
        folders[name] = out / f"rollouts-{key[:12]}"
        check_mark(folders[name], key, [sum(s.size for s in c) for c in chunks])
        files = [folders[name] / f"episodes-{i:04d}.jsonl" for i in range(len(chunks))]
        work += [(f, c, by) for f, c in zip(files, chunks, strict=True) if not f.is_file()]
    if work:
        worlds: Worlds = env.open()
        policy: Policy | None = None
        try:
            policy = engine(config)
            for who in {w.ref.adapter: w for _, _, by in work for w in by.values()}.values():
                if who.folder is not None and who.ref.adapter is not None:
                    policy.load_adapter(who.ref.adapter, who.folder)
            asyncio.run(_play(config, policy, worlds, [(f, c) for f, c, _ in work]))
        finally:
            if policy is not None:
                policy.close()
            asyncio.run(worlds.close())
    return folders


async def _play(
    config: RunConfig,
    policy: Policy,
    worlds: Worlds,
    work: Sequence[tuple[Path, Sequence[GroupSpec]]],
) -> None:
    table = driver(config, policy, worlds, config.nearpolicy.temperature)
    total = sum(s.size for _, specs in work for s in specs)
    quiet = not config.logger.progress
    try:
        with tqdm(total=total, unit="episode", desc="rollouts", disable=quiet) as bar:
            for path, specs in work:
                seed = derive(config.seed, "nearpolicy")
                groups = await table.rollout(specs, seed, lambda _: bar.update())
                episodes = [e for g in groups for e in g.episodes]
                check_faults(episodes, config.algo.max_error_share)
                write_file(path, "".join(e.to_json() + "\n" for e in episodes))
    finally:
        await worlds.close()


def _key(config: RunConfig, played: Sequence[Episode], by: Mapping[Seat, Entrant]) -> str:
    """A digest of all that decides a policy's rollouts."""
    names = ("seed", "env", "game", "reward", "policy", "teachers", "sampling")
    plain = dataclasses.asdict(config)
    return fingerprint(
        {
            "rollouts": {k: plain[k] for k in names},
            "how": [config.nearpolicy.group_size, config.nearpolicy.temperature],
            "games": [(e.task, e.seed, e.attacker is not None) for e in played],
            "players": [
                (w.ref.version, str(w.folder and digest(w.folder / ADAPTER))) for w in by.values()
            ],
            "chunk": config.collect.chunk,
        }
    )
