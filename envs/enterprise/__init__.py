"""The enterprise world: a company's workspace with its apps, attacked through what outsiders write into it."""

import gymnasium

from envs.enterprise.config import EnterpriseConfig

__all__ = ["EnterpriseConfig"]

gymnasium.register("arlas/Enterprise-v0", entry_point="envs.enterprise.env:EnterpriseEnv")
