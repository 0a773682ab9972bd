"""Assignments in the CRM, and the everyday data they stand among."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Assignment, Scene


def furnish_crm(scene: Scene) -> None:
    """Ordinary records."""


CRM_JOBS: tuple[Assignment, ...] = ()
