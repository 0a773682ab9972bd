"""Assignments in mail, and the everyday data they stand among."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Assignment, Scene


def furnish_mail(scene: Scene) -> None:
    """Ordinary records."""


MAIL_JOBS: tuple[Assignment, ...] = ()
