"""Attacks through the tools of the CRM."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Attack

CRM_ATTACKS: tuple[Attack, ...] = ()
