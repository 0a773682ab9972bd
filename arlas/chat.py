"""Messages to token ids by a model's own chat template, and replies back to actions.

Message contents never pass through the template's code nor through special-token parsing: the template is
rendered with markers, and what stands at a marker is encoded as plain text. So text planted by an
attacker cannot open a turn of its own, and sampled tokens return into a conversation as they were
(invariant 1).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from arlas.choices import ReplyFormat
from arlas.types import ConfigurationError, Message

_MARK = "\ue000{}\ue001"
_SPLIT = re.compile("\ue000(\\d+)\ue001")


class ReplyError(ValueError):
    """A reply without exactly one action. The text is shown to the model."""


def parse_reply(text: str, reply: ReplyFormat) -> str:
    """The action in a reply. Raises `ReplyError` if there is none, or more than one."""
    if reply is ReplyFormat.WORD:
        if not text.strip():
            raise ReplyError("the reply is empty")
        return text.strip()
    found = list(_tagged(without_thought(text), "<action>", "</action>"))
    if not found:
        raise ReplyError("no <action>…</action> in the reply")
    if len(found) > 1:
        raise ReplyError("more than one <action> in the reply")
    action = found[0].strip()
    if not action:
        raise ReplyError("the action is empty")
    return action


def without_thought(text: str) -> str:
    """A reply without its thoughts: what follows the first ``</think>``, or all of it."""
    _, closed, rest = text.partition("</think>")
    return (rest if closed else text).lstrip()


def _tagged(text: str, start: str, end: str) -> Iterator[str]:
    """What stands between ``start`` and the next ``end``; linear in a text that may be hostile."""
    at = 0
    while (opens := text.find(start, at)) >= 0:
        closes = text.find(end, opens)
        if closes < 0:
            return
        yield text[opens + len(start) : closes]
        at = closes + len(end)


class Chat:
    """A tokenizer's chat template, probed once for its habits.

    ``system_role`` says whether the template has one (Gemma's has not: the system text then opens the
    first user message); ``keeps_thoughts`` whether it leaves ``<think>`` in earlier turns (Qwen3's does not).
    """

    def __init__(self, tokenizer: Any) -> None:
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigurationError(
                "the model's tokenizer has no chat template; use an instruction-tuned model, or add a "
                "chat_template.jinja to its folder"
            )
        self.tokenizer = tokenizer
        # Not all_special_ids: that leaves out Gemma's <end_of_turn>.
        self._special = set(tokenizer.all_special_ids) | {
            i for i, token in tokenizer.added_tokens_decoder.items() if token.special
        }
        self._pieces: dict[tuple[str, ...], list[int | tuple[int, ...]]] = {}
        self.system_role = self._has_system_role()
        self.keeps_thoughts = self._keeps_thoughts()

    def render(
        self, messages: Sequence[Message], sampled: Mapping[int, tuple[int, ...]] | None = None
    ) -> tuple[int, ...]:
        """Token ids of a conversation with the generation prompt at its end.

        ``sampled`` gives, by index into ``messages``, the token ids of assistant turns as they were
        sampled; they are used instead of encoding the text again. A stop token at their end is left to
        the template.
        """
        sampled = dict(sampled or {})
        contents = [m.content for m in messages]
        roles = [m.role for m in messages]
        if not self.system_role and roles[0] == "system":
            contents[1] = f"{contents[0]}\n\n{contents[1]}"
            roles, contents = roles[1:], contents[1:]
            sampled = {i - 1: ids for i, ids in sampled.items()}
        ids: list[int] = []
        for piece in self._scaffold(tuple(roles)):
            if isinstance(piece, tuple):
                ids.extend(piece)
            elif piece in sampled:
                ids.extend(self._without_stop(sampled[piece]))
            else:
                ids.extend(self.encode(contents[piece]))
        return tuple(ids)

    @property
    def end_of_turn(self) -> int:
        """The token that the template writes behind an assistant's message."""
        pieces = self._scaffold(("user", "assistant", "user"))
        after = pieces[pieces.index(1) + 1]
        assert isinstance(after, tuple)
        return after[0]

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of plain text; the names of special tokens in it are ordinary characters."""
        text = text.encode("utf-8", "replace").decode("utf-8")  # a page may hold lone surrogates
        found = self.tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True)
        return tuple(found)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of a completion, without special tokens."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True))

    def _without_stop(self, token_ids: tuple[int, ...]) -> tuple[int, ...]:
        if token_ids and token_ids[-1] in self._special:
            return token_ids[:-1]
        return token_ids

    def _scaffold(self, roles: tuple[str, ...]) -> list[int | tuple[int, ...]]:
        """What the template writes around contents: token ids, and at each content its index."""
        if roles not in self._pieces:
            text = self._template([Message(r, _MARK.format(i)) for i, r in enumerate(roles)])
            pieces: list[int | tuple[int, ...]] = []
            parts = _SPLIT.split(text)
            for i, part in enumerate(parts):
                if i % 2:
                    pieces.append(int(part))
                elif part:
                    pieces.append(tuple(self.tokenizer.encode(part, add_special_tokens=False)))
            if sorted(p for p in pieces if isinstance(p, int)) != list(range(len(roles))):
                raise ConfigurationError(
                    f"the model's chat template does not show a conversation of {', '.join(roles)} whole"
                )
            self._pieces[roles] = pieces
        return self._pieces[roles]

    def _template(self, messages: Sequence[Message]) -> str:
        rendered = self.tokenizer.apply_chat_template(
            [{"role": m.role, "content": m.content} for m in messages],
            tokenize=False,
            add_generation_prompt=True,
            enable_thinking=False,
        )
        return str(rendered)

    def _has_system_role(self) -> bool:
        try:
            text = self._template([Message("system", _MARK.format(0)), Message("user", "x")])
        except Exception:  # a template may raise whatever its author chose
            return False
        return text.count(_MARK.format(0)) == 1 and not re.search(
            rf"user\W{{0,4}}{_MARK.format(0)}", text
        )

    def _keeps_thoughts(self) -> bool:
        turns = [
            Message("user", "x"),
            Message("assistant", "<think>a</think>b"),
            Message("user", "y"),
        ]
        return "<think>a</think>b" in self._template(turns)
