"""Invariant 12: no log-probability code holds a [B, T, vocabulary] tensor in float32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from learning_cases import TINY, groups_sharing_prompts, make_learner, naive_logprobs
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from arlas.learning.batch import Sample, micro_batches
from arlas.learning.learner import Learner
from arlas.learning.sft import SFTConfig, train_sft
from arlas.types import Seat

CHUNK = 4


class _LargestWithVocabulary(TorchDispatchMode):
    """Watches every operator's results, forward and backward, for the most rows of vocabulary size."""

    def __init__(self, vocabulary: int, weights: set[int]) -> None:
        super().__init__()
        self.vocabulary, self.weights, self.rows = vocabulary, weights, 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if not (isinstance(leaf, torch.Tensor) and self.vocabulary in leaf.shape):
                continue
            if leaf.untyped_storage().data_ptr() not in self.weights:
                self.rows = max(self.rows, leaf.numel() // self.vocabulary)
        return result


def _rows(learner: Learner, work: Callable[[], object]) -> int:
    # The output head's weight and its transpose are as wide as the vocabulary, and are no logits.
    weights = {p.untyped_storage().data_ptr() for p in learner.model.parameters()}
    with _LargestWithVocabulary(learner.base.config.vocab_size, weights) as watch:
        work()
    return watch.rows


@pytest.mark.parametrize("model", TINY)
def test_invariant_12_only_a_chunk_of_logits_at_a_time(model: str) -> None:
    """Update, probes and imitation, with their backward passes: never more rows of logits than the chunk."""
    learner = make_learner(model, logprob_chunk=CHUNK, batch_size=4)
    groups = groups_sharing_prompts()
    episodes = [e.segments[Seat.AGENT] for g in groups for e in g.episodes]
    one = groups[0].episodes[3].segments[Seat.AGENT][0]
    assert _rows(learner, lambda: learner.update(Seat.AGENT, groups, seed=0)) == CHUNK
    assert _rows(learner, lambda: learner.logprobs(Seat.AGENT, one)) == CHUNK
    assert _rows(learner, lambda: train_sft(learner, Seat.AGENT, episodes, SFTConfig())) == CHUNK


def test_the_watch_sees_what_it_is_for() -> None:
    """The model's own forward pass on the same segment does hold [B, T, vocabulary]."""
    learner = make_learner()
    one = groups_sharing_prompts()[0].episodes[3].segments[Seat.AGENT][0]
    assert _rows(learner, lambda: naive_logprobs(learner, one)) >= len(one.token_ids) - 1


@pytest.mark.parametrize("chunk", [1, 3, 1000])
def test_the_chunk_changes_no_result(chunk: int) -> None:
    """Any chunk gives the same log-probabilities and gradients."""
    results = []
    for size in (chunk, 7):
        learner = make_learner(logprob_chunk=size)
        one = groups_sharing_prompts()[0].episodes[3].segments[Seat.AGENT][0]
        (batch,) = micro_batches([Sample(one, 1.0)], 1000)
        found = learner._logprobs(batch)
        named = learner.parameters(Seat.AGENT)
        learner.model.set_adapter("agent")
        results.append((found.detach(), torch.autograd.grad(found.sum(), list(named.values()))))
    torch.testing.assert_close(results[0], results[1], atol=1e-5, rtol=1e-5)
