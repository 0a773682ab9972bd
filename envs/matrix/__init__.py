"""Tiny games of words whose equilibrium and exploitability are computed exactly."""

import gymnasium

from envs.matrix.env import MatrixConfig, MatrixEnv
from envs.matrix.games import MatrixGame, find_game

__all__ = ["MatrixConfig", "MatrixEnv", "MatrixGame", "find_game"]

gymnasium.register(id="arlas/Matrix-v0", entry_point="envs.matrix.env:MatrixEnv")
