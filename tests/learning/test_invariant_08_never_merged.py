"""Invariant 8: adapters are never merged into the weights and unmerged again during training."""

from __future__ import annotations

import pytest
import torch
from learning_cases import groups_sharing_prompts, make_learner, stir
from peft.tuners.lora.layer import LoraLayer

from arlas.types import Seat


def test_invariant_8_base_weights_never_move(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bit for bit the same after updates of both seats; PEFT's merge is never called."""

    def refuse(*_args: object, **_kwargs: object) -> None:
        raise AssertionError("an adapter was merged")

    layers = {type(m) for m in make_learner().model.modules() if isinstance(m, LoraLayer)}
    assert layers
    for kind in layers:
        monkeypatch.setattr(kind, "merge", refuse)
        monkeypatch.setattr(kind, "unmerge", refuse)
    learner = make_learner(batch_size=4, epochs=2)
    stir(learner)
    before = {n: p.clone() for n, p in learner.model.named_parameters() if "lora_" not in n}
    for seat in learner.seats:
        metrics = learner.update(seat, groups_sharing_prompts(seat=seat), seed=0)
        assert metrics["steps"] == 4
    after = {n: p for n, p in learner.model.named_parameters() if "lora_" not in n}
    assert before.keys() == after.keys()
    assert all(torch.equal(before[n], after[n]) for n in before)
    assert not any(p.requires_grad for p in after.values())
    assert not any(m.merged for m in learner.model.modules() if isinstance(m, LoraLayer))


def test_seats_do_not_touch_each_other() -> None:
    """An update of the agent leaves the attacker's adapter and optimizer as they were."""
    learner = make_learner()
    before = {n: p.clone() for n, p in learner.parameters(Seat.ATTACKER).items()}
    mine = {n: p.clone() for n, p in learner.parameters(Seat.AGENT).items()}
    learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
    assert all(torch.equal(before[n], p) for n, p in learner.parameters(Seat.ATTACKER).items())
    assert learner.optimizers[Seat.ATTACKER].state == {}
    assert any(not torch.equal(mine[n], p) for n, p in learner.parameters(Seat.AGENT).items())
