"""Assignments in calendar and drive, and the everyday data they stand among."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Assignment, Scene


def furnish_drive(scene: Scene) -> None:
    """Ordinary records."""


DRIVE_JOBS: tuple[Assignment, ...] = ()
