"""From a config to the parts with a life: worlds, engines, drivers. Cheap checks come first."""

from __future__ import annotations

import dataclasses
import re
from enum import Enum
from pathlib import Path
from typing import Any

import yaml
from hydra.core.config_store import ConfigStore
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from arlas.chat import Chat
from arlas.config import RunConfig
from arlas.policies.base import Policy, Router
from arlas.private import check_fields
from arlas.rollout import Driver
from arlas.types import ArlasError, ConfigurationError, Seat
from envs.base import EnvConfig, TaskSplit, UnknownTaskError


def typed(plain: Any) -> RunConfig:
    """A `RunConfig` from Hydra's config or from plain containers, validated.

    Raises `ConfigurationError` naming the key.
    """
    try:
        merged = OmegaConf.merge(OmegaConf.structured(RunConfig), plain)
        config = OmegaConf.to_object(merged)
    except OmegaConfBaseException as error:
        raise ConfigurationError(_told(error)) from error
    assert isinstance(config, RunConfig)
    config.validate()
    check_fields(config.game.user_fields)
    return config


def _told(error: OmegaConfBaseException) -> str:
    """OmegaConf's complaint in one line with the key it is about, choices as they are written."""
    what = re.sub(r"expected one of \[.*\]", lambda m: m[0].lower(), str(error).splitlines()[0])
    where = error.full_key or ""
    return f"config: {where}: {what}" if where else f"config: {what}"


def plain(config: RunConfig) -> dict[str, Any]:
    """The config as plain containers, as it is saved beside a run; `typed` reads it back."""
    found = OmegaConf.to_container(OmegaConf.structured(config), resolve=True)
    assert isinstance(found, dict)
    return {str(k): _spelled(v) for k, v in found.items()}


def _spelled(value: Any) -> Any:
    """Enum members as the lower-case words that configs are written in."""
    if isinstance(value, dict):
        return {k: _spelled(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_spelled(v) for v in value]
    return value.value if isinstance(value, Enum) else value


def part(spec: Any, group: str) -> Any:
    """Builds the typed config that ``_target_`` names. Raises `ConfigurationError` naming the group."""
    if dataclasses.is_dataclass(spec):
        return spec
    if not isinstance(spec, dict) or "_target_" not in spec:
        raise ConfigurationError(f"{group}: expected a mapping with _target_, see conf/{group}/")
    try:
        return instantiate(spec, _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__
        if isinstance(cause, (ArlasError, UnknownTaskError)):
            raise ConfigurationError(f"{group}: {cause}") from error
        raise ConfigurationError(f"{group}: {cause or str(error).splitlines()[0]}") from error


def tasks_of(env: EnvConfig) -> TaskSplit:
    """The task split of a world. Raises `ConfigurationError` for unknown or overlapping tasks."""
    try:
        return env.tasks()
    except (UnknownTaskError, ValueError) as error:
        raise ConfigurationError(f"env: {error}") from error


def engine(config: RunConfig) -> Policy:
    """The main engine, with the teachers beside it under their version names."""
    own = part(config.policy, "policy")
    others = {name: part(spec, "teacher") for name, spec in config.teachers.items()}
    for name, spec in {"policy": own, **others}.items():
        if not hasattr(spec, "build"):
            raise ConfigurationError(f"{name}: {type(spec).__name__} is no engine's config")
    main: Policy = own.build(config.lora)
    if not others:
        return main
    try:
        return Router(main, {name: spec.build(main.tokenizer) for name, spec in others.items()})
    except BaseException:
        main.close()
        raise


def check_placement(config: RunConfig, env: EnvConfig) -> None:
    """Raises `ConfigurationError` if the world judges injections only where they are not placed."""
    allowed = getattr(env, "placements", None)
    placement = config.game.injection.placement.value
    if config.game.attack and allowed is not None and placement not in allowed:
        raise ConfigurationError(
            f"this world takes injections by {', '.join(allowed)} only: set "
            f"game.injection.placement={allowed[0]}, not {placement}"
        )


def first_version(config: RunConfig, seat: Seat) -> str:
    """What a seat's policy of iteration 0 is called."""
    return "sft" if getattr(config.init, seat.value) else "base"


def model_name(config: RunConfig) -> str:
    """The base model that engine and trainer share."""
    name = getattr(part(config.policy, "policy"), "model", None)
    if not isinstance(name, str):
        raise ConfigurationError("policy: this engine has no base model to train; use hf or vllm")
    return name


def driver(
    config: RunConfig, policy: Policy, worlds: Any, temperature: float | None = None
) -> Driver:
    """The driver for this config; ``temperature`` replaces the sampling's, for evaluation."""
    sampling = config.sampling.build()
    if temperature is not None:
        sampling = dataclasses.replace(sampling, temperature=temperature)
    return Driver(
        policy=policy,
        chat=Chat(policy.tokenizer),
        worlds=worlds,
        game=config.game,
        reward=config.reward,
        sampling=sampling,
        retries=config.algo.episode_retries,
    )


def load_run(run_dir: Path) -> dict[str, Any]:
    """The config that a run folder was started with. Raises `ConfigurationError` if there is none."""
    path = run_dir / "config.yaml"
    if not path.is_file():
        raise ConfigurationError(f"{run_dir} is no run folder: it has no config.yaml")
    try:
        found = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigurationError(f"{path} is damaged: {str(error).splitlines()[0]}") from error
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no config")
    return found


def register() -> None:
    """Makes `RunConfig` known to Hydra as ``run_config``, the schema of ``conf/train.yaml``."""
    ConfigStore.instance().store(name="run_config", node=RunConfig)
