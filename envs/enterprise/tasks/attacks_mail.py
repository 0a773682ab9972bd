"""Attacks through the tools of mail."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Attack

MAIL_ATTACKS: tuple[Attack, ...] = ()
