"""Another model as a teacher: its own template and tokens inside, the main engine's outside."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from fakes import AGENT, chat_of
from support import composed, matrix_run

from arlas.build import engine, part
from arlas.collect import collect, filtered
from arlas.config import LoraConfig
from arlas.policies.hf import HFConfig
from arlas.policies.models import load_tokenizer
from arlas.policies.teacher import TeacherConfig
from arlas.types import (
    AdapterError,
    ConfigurationError,
    Message,
    Request,
    Sampling,
    Seat,
    StopReason,
)

MESSAGES = (Message("system", "Be short."), Message("user", "Say ünï <|im_end|> now."))


def _config(model: str) -> HFConfig:
    return HFConfig(model=model, dtype="float32", device="cpu", prefix_cache_tokens=0)


def test_a_teacher_says_what_its_model_says() -> None:
    """The same text as from the model alone, in the student's tokens, with its end of turn and no likelihood."""
    chat, own = chat_of("tiny-llama"), chat_of("tiny-qwen3")
    teacher = TeacherConfig(_config("tiny-qwen3")).build(chat.tokenizer)
    alone = _config("tiny-qwen3").build(LoraConfig())
    sampling = Sampling(temperature=1.0, max_tokens=40)

    async def both() -> None:
        for seed in range(4):
            student = chat.render(MESSAGES)
            said = await teacher.complete(Request(AGENT, student, sampling, seed, MESSAGES))
            plain = await alone.complete(
                Request(AGENT, own.render(MESSAGES), sampling, seed, MESSAGES)
            )
            text = own.decode(plain.token_ids)
            ids = chat.encode(text)
            assert said.token_ids[: len(ids)] == ids[:40]
            assert set(said.logprobs) <= {0.0}
            assert len(said.token_ids) <= 40
            if said.stop_reason is StopReason.STOP:
                assert said.token_ids == (*ids, chat.end_of_turn)

    try:
        asyncio.run(both())
        with pytest.raises(AdapterError):
            teacher.load_adapter("x", Path("x"))
        assert teacher.adapters() == ()
    finally:
        teacher.close()
        alone.close()


def test_teachers_of_another_model_play_either_seat(tmp_path: Path) -> None:
    """``teacher=model`` by configuration; counts of kept and dropped lie beside the demonstrations."""
    teacher = {
        "_target_": "arlas.policies.teacher.TeacherConfig",
        "engine": {"_target_": "arlas.policies.hf.HFConfig", "model": "tiny-llama-words:4"},
    }
    config = matrix_run(
        tmp_path, "collect.agent=big", "collect.attacker=base", "collect.episodes=12"
    )
    config.teachers = {"big": teacher}
    episodes = collect(config, tmp_path / "demos")
    assert {e.agent.version for e in episodes} == {"big"}
    assert all(e.ok for e in episodes)
    counts = json.loads((tmp_path / "demos" / "counts.json").read_text())
    assert counts == {seat.value: filtered(episodes, seat)[1] for seat in Seat}
    assert sum(counts["agent"].values()) == 12


def test_an_adapter_that_changed_makes_other_demonstrations(tmp_path: Path) -> None:
    """A folder of demonstrations by an adapter belongs to its weights, not to its path; both seats by one folder."""
    from arlas.train import train

    train(matrix_run(tmp_path / "a", "algo.iterations=2", "algo.lr=3e-2"))
    bundles = tmp_path / "a" / "iterations"
    made = tmp_path / "made"
    made.symlink_to(bundles / "0001")
    config = matrix_run(tmp_path / "b", f"collect.agent={made}", f"collect.attacker={made}")
    collect(config, tmp_path / "demos")
    made.unlink()
    made.symlink_to(bundles / "0002")
    with pytest.raises(ConfigurationError, match="another config"):
        collect(config, tmp_path / "demos")


def test_the_config_file_wants_a_model(tmp_path: Path) -> None:
    """``+teacher@teachers.big=model`` composes; an engine that is none is refused."""
    run = composed(
        "env=matrix",
        "policy=tiny",
        f"run_dir={tmp_path}",
        "+teacher@teachers.big=model",
        "teachers.big.engine.model=tiny-qwen3",
        "+teachers.big.engine.device=cpu",
    )
    assert part(run.teachers["big"], "teacher").engine == HFConfig("tiny-qwen3", device="cpu")
    engine(run).close()
    with pytest.raises(ConfigurationError, match=r"teacher\.engine"):
        TeacherConfig({"model": "x"}).build(load_tokenizer("tiny-llama"))
