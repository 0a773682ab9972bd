"""Showing text that a model wrote. It is data wherever it is shown (invariant 14)."""

from __future__ import annotations

import html as _html
import re
import unicodedata

# Escape sequences of terminals (ECMA-48): strings up to their terminator, CSI, and the short ones. The
# 8-bit forms begin with a C1 control. An unterminated string swallows its line, never the whole text.
_ANSI = re.compile(
    "(?:\x1b[\\]PX^_]|[\x90\x98\x9d-\x9f])[^\x1b\x07\x9c\n]*(?:\x1b\\\\|\x07|\x9c|(?=\n)|$)"
    "|(?:\x1b\\[|\x9b)[0-?]*[ -/]*[@-~]?"
    "|\x1b[ -/]*[0-~]?"
)
_HIDDEN = {"Cc", "Cf", "Cs", "Co", "Cn"}
# Blank, but no format characters: Hangul fillers, the braille blank, variation selectors.
_BLANK = re.compile("[\u115f\u1160\u3164\uffa0\u2800\ufe00-\ufe0f\U000e0100-\U000e01ef]")
_MARKDOWN = re.compile(r"[!-/:-@\[-`{-~]")
_PLAIN_PUNCTUATION = frozenset(",;?%'")
ELLIPSIS = " […]"


def plain(text: str, limit: int | None = None) -> str:
    """Text for a terminal or a log: newlines and tabs stay; control characters, terminal sequences,
    direction overrides and invisible characters go. Longer than ``limit`` characters is cut, visibly."""
    text = re.sub("\r\n|[\u2028\u2029\x0b\x0c\x85]", "\n", text)
    text = _BLANK.sub("", _ANSI.sub("", text))
    kept = "".join(c for c in text if c in "\n\t" or unicodedata.category(c) not in _HIDDEN)
    return kept if limit is None or len(kept) <= limit else kept[:limit] + ELLIPSIS


def line(text: str, limit: int | None = None) -> str:
    """`plain` on one line: every run of white space becomes one space."""
    kept = " ".join(plain(text).split())
    return kept if limit is None or len(kept) <= limit else kept[:limit] + ELLIPSIS


def html(text: str, limit: int | None = None) -> str:
    """Text for an HTML element or a quoted attribute."""
    return _html.escape(plain(text, limit), quote=True)


def markdown(text: str, limit: int | None = None) -> str:
    """Text for one line, table cell or quotation of Markdown, in any dialect; line breaks show as ↵.

    Punctuation that could mean anything to Markdown, HTML or an autolinker becomes a numeric entity,
    which every dialect shows as the character itself.
    """
    lines = [" ".join(part.split()) for part in plain(text, limit).split("\n")]
    return " ↵ ".join(_MARKDOWN.sub(_entity, part) for part in lines if part)


def _entity(match: re.Match[str]) -> str:
    char = match.group()
    if char in _PLAIN_PUNCTUATION:
        return char
    before = match.string[max(0, match.start() - 1) : match.start()]
    after = match.string[match.end() :][:1]
    # A full stop is only dangerous in addresses (autolinks) and in "1." at the start of a line, a hyphen
    # only at the start of a line or beside another one.
    if char == "." and not before.isdigit() and not after.isalnum():
        return char
    if char == "-" and before.isalnum() and after.isalnum():
        return char
    return f"&#{ord(char)};"
