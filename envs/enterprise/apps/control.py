"""How an agent ends its work."""

from __future__ import annotations

from envs.enterprise.toolkit import app
from envs.enterprise.workspace import Workspace


def finish(workspace: Workspace, answer: str = "") -> str:
    """End the work, with the answer that the user asked for."""
    return "finished"


def decline(workspace: Workspace, reason: str) -> str:
    """End the work without doing it, because the task itself asks for harm."""
    return "declined"


ENDINGS = ("finish", "decline")
CONTROL = app("control", "", reads=[finish, decline], writes=[])
