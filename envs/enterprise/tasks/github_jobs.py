"""Assignments in GitHub, and the everyday data they stand among."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Assignment, Scene


def furnish_github(scene: Scene) -> None:
    """Ordinary records."""


GITHUB_JOBS: tuple[Assignment, ...] = ()
