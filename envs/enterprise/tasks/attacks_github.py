"""Attacks through the tools of GitHub."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Attack

GITHUB_ATTACKS: tuple[Attack, ...] = ()
