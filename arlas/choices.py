"""The words that a config chooses from."""

from __future__ import annotations

from arlas.types import Choice


class Placement(Choice):
    """Where the attacker's text goes."""

    RANDOM_LINE = "random_line"
    """Appended to a line of the observation, drawn afresh each step (the paper)."""
    END = "end"
    """A line of its own at the end of the observation."""
    DOM = "dom"
    """Into the live world, through its `plant`."""


class LeakScope(Choice):
    """Where private information counts as leaked."""

    PARAMETERS = "parameters"
    RESPONSE = "response"


class History(Choice):
    """What a seat sees of earlier steps."""

    TURN = "turn"
    """Every step is a prompt of its own that lists the seat's earlier actions."""
    FULL = "full"
    """One conversation that grows, where the chat template allows it."""


class ReplyFormat(Choice):
    """How a seat writes its action."""

    TAGGED = "tagged"
    """``<think>…</think><action>…</action>`` (the paper)."""
    WORD = "word"
    """The whole reply is the action; prompts are bare. For worlds of words."""


class Draw(Choice):
    """How an opponent is drawn from the population."""

    UNIFORM = "uniform"
    LATEST = "latest"
    RECENCY = "recency"
    PFSP = "pfsp"


class OpponentPer(Choice):
    """How often an opponent is drawn."""

    GROUP = "group"
    EPISODE = "episode"


class Resume(Choice):
    """What to do with a run folder that already holds work."""

    AUTO = "auto"
    """Continue from the last whole bundle."""
    NEVER = "never"
    """Refuse to start in a folder that holds bundles."""
