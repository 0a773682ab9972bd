"""The third update of the resume test, in this process or, run as a script, in one of its own.

Argument: the folder of the checkpoint after two updates.
"""

from __future__ import annotations

import hashlib
import sys

import torch
from learning_cases import BOTH, groups_sharing_prompts, make_learner

from arlas.learning.learner import Learner
from arlas.types import Seat


def start() -> Learner:
    return make_learner("tiny-qwen3", batch_size=4, epochs=2, lr=1e-3)


def update(learner: Learner, i: int) -> str:
    """Updates both seats; returns a digest of the adapters, the step count, and the metrics."""
    assert learner.updates == dict.fromkeys(BOTH, i)
    metrics = {}
    for seat in (Seat.AGENT, Seat.ATTACKER):
        metrics = learner.update(seat, groups_sharing_prompts(seed=i, seat=seat), seed=i)
    digest = hashlib.sha256()
    for seat in learner.seats:
        for name, parameter in sorted(learner.parameters(seat).items()):
            digest.update(name.encode() + parameter.detach().numpy().tobytes())
    return f"{digest.hexdigest()} {learner.steps[Seat.AGENT]} {sorted(metrics.items())}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    resumed = start()
    resumed.load(sys.argv[1])
    print(update(resumed, 2))
