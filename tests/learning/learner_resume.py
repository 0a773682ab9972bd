"""Run by the resume test in processes of its own: updates a learner and prints a digest of its adapter.

Arguments: first update, end of updates, folder to load from or "-", folder to save to or "-".
"""

from __future__ import annotations

import hashlib
import sys

import torch
from learning_cases import BOTH, groups_sharing_prompts, make_learner

from arlas.types import Seat

torch.set_num_threads(1)
first, end = int(sys.argv[1]), int(sys.argv[2])
learner = make_learner("tiny-qwen3", batch_size=4, epochs=2, lr=1e-3)
if sys.argv[3] != "-":
    learner.load(sys.argv[3])
assert learner.updates == dict.fromkeys(BOTH, first)
metrics = {}
for i in range(first, end):
    for seat in (Seat.AGENT, Seat.ATTACKER):
        metrics = learner.update(seat, groups_sharing_prompts(seed=i, seat=seat), seed=i)
if sys.argv[4] != "-":
    learner.save(sys.argv[4])
digest = hashlib.sha256()
for seat in learner.seats:
    for name, parameter in sorted(learner.parameters(seat).items()):
        digest.update(name.encode() + parameter.detach().numpy().tobytes())
print(digest.hexdigest(), learner.steps[Seat.AGENT], sorted(metrics.items()))
