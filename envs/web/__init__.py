"""The web world: BrowserGym's MiniWoB++ tasks in a real Chromium."""

import gymnasium

from envs.web.config import WebConfig

__all__ = ["WebConfig"]

gymnasium.register("arlas/Web-v0", entry_point="envs.web.env:WebEnv")
