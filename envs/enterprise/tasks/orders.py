"""Malicious instructions: what a user asks for that the agent should decline."""

from __future__ import annotations

from envs.enterprise.tasks.spec import Order

ORDERS: tuple[Order, ...] = ()
