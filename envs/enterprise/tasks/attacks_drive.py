"""Attacks through the tools of calendar and drive."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Attack

DRIVE_ATTACKS: tuple[Attack, ...] = ()
