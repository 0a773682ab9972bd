"""The learner: named LoRA adapters of both seats and their frozen references over one base model."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import gather_object
from peft import get_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from arlas.checkpoint import ADAPTER
from arlas.config import AlgoConfig, InitConfig, LoraConfig
from arlas.learning.advantage import MovingBaseline
from arlas.learning.batch import (
    Sample,
    TrainBatch,
    build_samples,
    micro_batches,
    optimizer_batches,
    teaches,
)
from arlas.learning.logprobs import action_logprobs, can_share, check_model
from arlas.learning.lora import attach, fill, portable
from arlas.learning.loss import Sums, add_sums, grpo_loss, summarize
from arlas.learning.shaping import PLAIN, Shaping
from arlas.policies import models
from arlas.types import CheckpointError, ConfigurationError, Group, Seat, Segment, TrainingError

_STATE = "learner.json"
_UNREADABLE = (
    *(OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError),
    *(SafetensorError, pickle.UnpicklingError),
)


class Learner:
    """Trains one LoRA adapter a seat over one frozen base model; adapters are never merged (invariant 8).

    Each seat starts from the adapter folder that ``init`` names, or from a fresh adapter (B = 0). Its
    reference is a frozen copy of that start, ``SEAT_ref``; the reference of a fresh adapter is the base
    model itself. All randomness comes from the seeds given here and to `update`.

    Under ``accelerate launch`` (``torchrun`` on CPUs) every process holds the model, takes its share of the micro-batches, and
    the adapters' gradients are summed.

    Raises `ConfigurationError` on a device that is not there, `AdapterError` on an adapter that does not
    fit the base model or ``lora``.
    """

    def __init__(
        self,
        model: str,
        lora: LoraConfig,
        algo: AlgoConfig,
        init: InitConfig,
        temperature: float,
        seats: Sequence[Seat],
        seed: int,
        device: str = "auto",
        dtype: str = "float32",
        shaping: Shaping = PLAIN,
    ) -> None:
        if device not in ("auto", "cpu") and not torch.cuda.is_available():
            raise ConfigurationError(f"device={device}, but torch sees no GPU: use device=cpu")
        self.model_name, self.lora, self.algo, self.shaping = model, lora, algo, shaping
        self.temperature, self.seats = temperature, tuple(seats)
        on_cpu = device == "cpu" or not torch.accelerator.is_available()
        AcceleratorState._reset_state()  # a process may train several runs, in different precisions
        self.accelerator = Accelerator(cpu=on_cpu, mixed_precision=algo.mixed_precision)
        self.device: torch.device = self.accelerator.device
        base = models.load_model(model, dtype=dtype, device=str(self.device))
        self.share = 6.0 * base.config.hidden_size if can_share(base.config) else 0.0
        self.model = attach(base, model, lora, init, self.seats, seed)
        self.model.to(self.device).eval()
        self.base: Any = self.model.get_base_model()
        check_model(self.base)
        if algo.gradient_checkpointing:
            _checkpoint_activations(self.base)
        self.optimizers = {
            seat: torch.optim.AdamW(
                list(self.parameters(seat).values()), lr=algo.lr, weight_decay=algo.weight_decay
            )
            for seat in self.seats
        }
        self.steps = dict.fromkeys(self.seats, 0)
        self.updates = dict.fromkeys(self.seats, 0)
        self.moving = {seat: MovingBaseline(algo.baseline_decay) for seat in self.seats}

    # --- adapters -------------------------------------------------------------------------------------

    def parameters(self, seat: Seat) -> dict[str, torch.nn.Parameter]:
        """The trained parameters of one seat's adapter by name."""
        return {n: p for n, p in self.model.named_parameters() if f".{seat.value}." in n}

    @contextmanager
    def using(self, seat: Seat, reference: bool = False) -> Iterator[None]:
        """Runs the base with a seat's adapter, or without gradients with its reference."""
        if not reference:
            self.model.set_adapter(seat.value)
            yield
            return
        named = f"{seat.value}_ref"
        frozen = named in self.model.peft_config
        self.model.set_adapter(named if frozen else seat.value, inference_mode=frozen)
        try:
            with torch.no_grad(), nullcontext() if frozen else self.model.disable_adapter():
                yield
        finally:
            self.model.set_adapter(seat.value)

    def save_adapter(self, seat: Seat, path: str | Path) -> None:
        """Writes a seat's adapter as a PEFT folder: safetensors and adapter_config.json."""
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        save_file(self._weights(seat.value), path / ADAPTER)
        config = self.model.peft_config[seat.value].to_dict() | {"inference_mode": True}
        # PEFT spells "all linear layers" out by full names; the last ones say the same in a line.
        config["target_modules"] = sorted({n.rpartition(".")[2] for n in config["target_modules"]})
        plain = json.dumps(config, indent=2, sort_keys=True, default=sorted)
        (path / "adapter_config.json").write_text(plain + "\n", encoding="utf-8")

    def _weights(self, name: str) -> dict[str, Tensor]:
        state = get_peft_model_state_dict(
            self.model, adapter_name=name, save_embedding_layers=False
        )
        return {key: tensor.detach().cpu().contiguous() for key, tensor in sorted(state.items())}

    # --- learning -------------------------------------------------------------------------------------

    def update(self, seat: Seat, groups: Sequence[Group], seed: int) -> dict[str, float]:
        """One GRPO update of a seat on its groups; returns metrics by name.

        Old log-probabilities are recomputed under the adapter as it is now, unless there is only one
        optimizer step: then they are those of that step. Without a usable group no step is taken and
        ``steps`` is 0. What is phased in counts these updates.
        """
        algo = self.algo
        self.updates[seat] += 1
        samples, counts = build_samples(
            groups, seat, algo, self.shaping, self.updates[seat], self.moving[seat]
        )
        batches = [
            micro_batches(part, algo.micro_batch_tokens, self.share)
            for part in optimizer_batches(samples, algo, seed)
        ]
        many = len(batches) * algo.epochs > 1
        batches = [[self._annotate(seat, b, many) for b in self.mine(part)] for part in batches]

        def loss_of(batch: TrainBatch) -> tuple[Tensor, Sums]:
            logprobs_N = self._logprobs(batch)
            old_N = logprobs_N.detach() if batch.old_logprobs_N is None else batch.old_logprobs_N
            return grpo_loss(
                logprobs_N,
                old_N,
                batch.sampler_logprobs_N,
                batch.ref_logprobs_N,
                batch.advantages_N,
                batch.weights_N,
                batch.denominator,
                algo,
                batch.segment_N,
            )

        metrics = counts.metrics() | {"tokens": 0.0, "steps": 0.0}
        total: Sums = {}
        norms: list[float] = []
        for _ in range(algo.epochs):
            for part in batches:
                sums, norm = self.step(seat, part, loss_of)
                total = add_sums(total, sums)
                norms.append(norm)
        if norms:
            metrics |= summarize(total, len(norms)) | {
                "grad_norm": sum(norms) / len(norms),
                "tokens": float(sum(s.actions for s in samples)),
                "steps": float(len(norms)),
            }
        return metrics

    def teaches(self, seat: Seat, group: Group) -> bool:
        """Whether the seat's next update will use the group: it is neither too small nor flat."""
        return teaches(group, seat, self.shaping, self.updates[seat] + 1)

    def step(
        self,
        seat: Seat,
        batches: Sequence[TrainBatch],
        loss_of: Callable[[TrainBatch], tuple[Tensor, Sums]],
        lr: float | None = None,
    ) -> tuple[Sums, float]:
        """One optimizer step on this process's micro-batches; returns summed metrics and gradient norm.

        Raises `TrainingError`, with the adapter unchanged, if the gradient is not finite.
        """
        optimizer, parameters = self.optimizers[seat], list(self.parameters(seat).values())
        optimizer.zero_grad(set_to_none=True)
        total: Sums = {}
        with self.using(seat):
            for batch in batches:
                with self.accelerator.autocast():
                    loss, sums = loss_of(batch.to(self.device))
                loss.backward()  # type: ignore[no-untyped-call]
                total = add_sums(total, sums)
        total = self._reduce(parameters, total)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.algo.max_grad_norm))
        if not math.isfinite(norm):
            optimizer.zero_grad(set_to_none=True)
            raise TrainingError(
                f"the gradient of {seat.value} is not finite at step {self.steps[seat]}: "
                "lower algo.lr, or look at the logged ratios"
            )
        for group in optimizer.param_groups:
            group["lr"] = self.algo.lr if lr is None else lr
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if not all(bool(p.isfinite().all()) for p in parameters):
            raise TrainingError(
                f"the adapter of {seat.value} is not finite any more: lower algo.lr"
            )
        self.steps[seat] += 1
        return total, norm

    def logprobs(self, seat: Seat, segment: Segment, reference: bool = False) -> list[float]:
        """Log-probabilities of a segment's action tokens at the sampler's temperature."""
        (batch,) = micro_batches([Sample(segment, 0.0)], len(segment.token_ids))
        with self.using(seat, reference), torch.no_grad(), self.accelerator.autocast():
            found: list[float] = self._logprobs(batch.to(self.device)).tolist()
        return found

    def _logprobs(self, batch: TrainBatch) -> Tensor:
        return action_logprobs(self.base, batch, self.temperature, self.algo.logprob_chunk)

    def _annotate(self, seat: Seat, batch: TrainBatch, old: bool) -> TrainBatch:
        """Adds reference log-probabilities if β > 0, and old ones if wanted."""
        found: dict[str, Any] = {}
        on_device = batch.to(self.device)
        with torch.no_grad(), self.accelerator.autocast():
            if self.algo.beta > 0.0:
                with self.using(seat, reference=True):
                    found["ref_logprobs_N"] = self._logprobs(on_device)
            if old:
                with self.using(seat):
                    found["old_logprobs_N"] = self._logprobs(on_device)
        return dataclasses.replace(batch, **found)

    def mine(self, batches: Sequence[TrainBatch]) -> Sequence[TrainBatch]:
        """The micro-batches that are this process's to compute."""
        return batches[self.accelerator.process_index :: self.accelerator.num_processes]

    def _reduce(self, parameters: Sequence[torch.nn.Parameter], sums: Sums) -> Sums:
        """Adds up gradients and metrics over processes."""
        if self.accelerator.num_processes == 1:
            return sums
        for parameter in parameters:
            own = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = self.accelerator.reduce(own, "sum")
        total: Sums = {}
        for part in gather_object([{name: value.cpu() for name, value in sums.items()}]):
            total = add_sums(total, part)
        return total

    # --- saving ---------------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Writes all that `load` needs to go on bit for bit: adapters, optimizers, counters.

        References are frozen: they are recorded by their digest and come from ``init`` again.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for seat in self.seats:
            self.save_adapter(seat, folder / seat.value)
            torch.save(self.optimizers[seat].state_dict(), folder / f"{seat.value}.optimizer.pt")
        state = self._identity() | {
            "steps": {seat.value: n for seat, n in self.steps.items()},
            "updates": {seat.value: n for seat, n in self.updates.items()},
            "moving": {seat.value: m.averages for seat, m in self.moving.items()},
            "files": {name: _digest((folder / name).read_bytes()) for name in self._files()},
        }
        (folder / _STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")

    def load(self, folder: str | Path) -> None:
        """Takes up what `save` wrote. Raises `CheckpointError` on damage or on another configuration."""
        folder = Path(folder)
        try:
            state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
            for key, value in self._identity().items():
                if state[key] != value:
                    raise CheckpointError(
                        f"{folder} was saved with {key} = {state[key]}, here it is {value}: start with "
                        "the same model, lora, seats and init, or in another run folder"
                    )
            for name in self._files():
                if _digest((folder / name).read_bytes()) != state["files"][name]:
                    raise CheckpointError(f"{folder / name} is damaged: its digest differs")
            for seat in self.seats:
                weights = load_file(folder / seat.value / ADAPTER)
                fill(self.model, seat.value, weights, CheckpointError, str(folder))
                saved = torch.load(
                    folder / f"{seat.value}.optimizer.pt", map_location="cpu", weights_only=True
                )
                self.optimizers[seat].load_state_dict(saved)
                self.steps[seat] = int(state["steps"][seat.value])
                self.updates[seat] = int(state["updates"][seat.value])
                if "moving" in state:  # checkpoints from before there was one have none
                    averages = {k: float(v) for k, v in state["moving"][seat.value].items()}
                    self.moving[seat].averages = averages
        except CheckpointError:
            raise
        except _UNREADABLE as error:
            raise CheckpointError(
                f"{folder} is not a whole learner checkpoint: {error!r}"
            ) from error

    def _files(self) -> list[str]:
        names = (f"{{}}/{ADAPTER}", "{}.optimizer.pt")
        return [name.format(seat.value) for seat in self.seats for name in names]

    def _identity(self) -> dict[str, Any]:
        references = {
            name: _digest(b"".join(t.numpy().tobytes() for t in self._weights(name).values()))
            for name in sorted(self.model.peft_config)
            if name.endswith("_ref")
        }
        return {
            "model": portable(self.model_name),
            "lora": dataclasses.asdict(self.lora),
            "seats": [seat.value for seat in self.seats],
            "references": references,
        }


def _checkpoint_activations(base: Any) -> None:
    """Recomputes activations in the backward pass; needs train mode, so every dropout is set to 0."""
    base.gradient_checkpointing_enable({"use_reentrant": False})
    base.train()
    for module in base.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        if hasattr(module, "attention_dropout"):
            module.attention_dropout = 0.0


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
