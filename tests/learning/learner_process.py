"""Run by torchrun in the test of several processes: one update, adapter saved by the first."""

from __future__ import annotations

import sys

import torch
from learning_cases import groups_sharing_prompts, make_learner

from arlas.types import Seat

torch.set_num_threads(1)
learner = make_learner(micro_batch_tokens=60, batch_size=4)
metrics = learner.update(Seat.AGENT, groups_sharing_prompts(), seed=0)
if learner.accelerator.is_main_process:
    learner.save_adapter(Seat.AGENT, sys.argv[1])
    print(f"processes={learner.accelerator.num_processes} {sorted(metrics.items())}")
