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


class Piece(Choice):
    """What of an argument a permission is about; see `arlas.guard`."""

    VALUE = "value"
    """Every text and number in it, as it is."""
    ADDRESS = "address"
    """The mail addresses in it."""
    LINK = "link"
    """The hosts of the links in it."""
    PERSON = "person"
    """It names people: what is no mail address, without its @."""


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


class Baseline(Choice):
    """What an episode's reward is compared with; see `arlas.learning.advantage`."""

    GROUP = "group"
    """The mean of its group (GRPO)."""
    LEAVE_ONE_OUT = "leave_one_out"
    """The mean of the others of its group (RLOO)."""
    MOVING = "moving"
    """A moving average of the seat's rewards (SPIRAL's role-conditioned estimate)."""


class WeightLevel(Choice):
    """Of what the importance weight between engine and trainer is the ratio."""

    TOKEN = "token"
    SEQUENCE = "sequence"
    """All action tokens of a segment: the product of their ratios."""


class WeightBound(Choice):
    """What happens to importance weights beyond the cap."""

    TRUNCATE = "truncate"
    MASK = "mask"
    """They become 0, as do those below 1 / cap."""


class LengthPenalty(Choice):
    """How the learner's reward depends on length; see `arlas.learning.shaping`."""

    NONE = "none"
    GROUP = "group"
    """Relative to the lengths in the group (Kimi k1.5)."""
    OVERLONG = "overlong"
    """For replies close to the limit (DAPO)."""


class RepetitionPenalty(Choice):
    """How repeated n-grams are punished; see `arlas.learning.shaping`."""

    NONE = "none"
    TOKENS = "tokens"
    """On the advantages of the repeating tokens."""
    SCALAR = "scalar"
    """On the reward of the episode."""


class Resume(Choice):
    """What to do with a run folder that already holds work."""

    AUTO = "auto"
    """Continue from the last whole bundle."""
    NEVER = "never"
    """Refuse to start in a folder that holds bundles."""
