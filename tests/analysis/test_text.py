"""Hostile text stays text (invariant 14): terminals, HTML, Markdown."""

import html as stdlib_html
from html.parser import HTMLParser

import markdown as python_markdown
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from arlas.text import ELLIPSIS, html, line, markdown, plain

HOSTILE = [
    "</code><script>alert(1)</script>",
    "`` ``` `code` ~~~",
    "| a | b |\n|---|---|\n| c | d |",
    "![x](http://evil.example/a.png) [click](javascript:alert(1))",
    "# head\n\n---\n* list\n1. one\n> quote\n    code",
    "<img src=x onerror=alert(1)> & &lt; &#60;script&#62;",
    "www.evil.example https://evil.example/?q=1 <me@evil.example> me@evil.example",
    "\\` \\<b> \\\\ _a_ __b__ *c* ~~d~~ $x^2$ :smile: @user #1",
    "[ref]: http://evil.example\n[ref]",
    "<!-- hidden --> <?php ?> <![CDATA[x]]>",
]


class Tags(HTMLParser):
    """The tags and the text of a piece of HTML."""

    def __init__(self, source):
        super().__init__(convert_charrefs=True)
        self.tags, self.text = [], ""
        self.feed(source)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, *attrs))

    def handle_data(self, data):
        self.text += data

    def handle_comment(self, data):
        self.tags.append(("comment",))

    handle_decl = unknown_decl = handle_pi = handle_comment


def renderers():
    commonmark = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    return {
        "commonmark": commonmark.render,
        "python": lambda s: python_markdown.markdown(s, extensions=["extra", "sane_lists"]),
    }


def expected(text):
    return " ↵ ".join(" ".join(p.split()) for p in plain(text).split("\n") if p.split())


@pytest.mark.parametrize("dialect", ["commonmark", "python"])
@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_markdown_is_shown_as_it_stands(dialect, text):
    """Rendered in a quotation and in a table cell, it makes no tag of its own and reads as written."""
    render = renderers()[dialect]
    quoted = Tags(render(f"> {markdown(text)}"))
    assert [t[0] for t in quoted.tags] == ["blockquote", "p"]
    assert quoted.text.strip() == expected(text)
    cell = Tags(render(f"| h |\n| --- |\n| {markdown(text)} |"))
    assert [t[0] for t in cell.tags] == ["table", "thead", "tr", "th", "tbody", "tr", "td"]
    assert expected(text) in cell.text


@settings(max_examples=150, deadline=None)
@given(
    text=st.text(st.sampled_from("ab1 .,-_*`<>&[]()!|#~\\\n\"'=:/@+$^{}\x1b\u202e"), max_size=30)
)
def test_any_markdown_is_shown_as_it_stands(text):
    """No combination of punctuation becomes structure."""
    render = renderers()["commonmark"]
    shown = Tags(render(f"x {markdown(text)} x"))
    assert [t[0] for t in shown.tags] == ["p"]
    assert shown.text.split() == ["x", *expected(text).split(), "x"]


def test_ordinary_words_stay_legible_in_the_source():
    """Sentences and policy names need no entity."""
    assert markdown("Send it to rl-10, please. Why? It's 5 %.") == (
        "Send it to rl-10, please. Why? It's 5 %."
    )
    assert markdown("- a --- b\n1. c www.d") == ("&#45; a &#45;&#45;&#45; b ↵ 1&#46; c www&#46;d")


def test_no_dangerous_character_survives_in_the_source():
    """Even a viewer that takes the Markdown source for HTML finds neither tags nor code."""
    for text in HOSTILE:
        assert not set(markdown(text)) & set("<>`|[]()\\*_~\n$@:/")


@pytest.mark.parametrize("text", HOSTILE)
def test_html_makes_no_tag_in_elements_and_attributes(text):
    """`html` comes back whole from a parser, as content and inside both kinds of quotes."""
    shown = Tags(f"<p title=\"{html(text)}\" lang='{html(text)}'>{html(text)}</p>")
    assert shown.tags == [("p", ("title", plain(text)), ("lang", plain(text)))]
    assert shown.text == plain(text)
    assert stdlib_html.unescape(html(text)) == plain(text)


@pytest.mark.parametrize(
    ("hostile", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b[2J\x1b[1;1Hgone", "gone"),
        ("\x1b]0;title\x07text", "text"),
        ("\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cm0gLXJm\nkept", "\nkept"),
        ("\x1bPq#0\x1b\\sixel", "sixel"),
        ("\x9b31mred\x9d0;t\x9cx", "redx"),
        ("\x1b(0x\x1bcy\x1b", "xy"),
        ("a\x08\x08bc\x00\x7f", "abc"),
        ("safe\rfake", "safefake"),
        ("a\r\nb\u2028c\x85d", "a\nb\nc\nd"),
        ("\u202egnp.exe\u2066x\u2069\u200b\ufeff", "gnp.exex"),
        ("h\U000e0069\U000e0067i\ufe0f\u3164", "hi"),
        ("\ud800lone \ue000private", "lone private"),
        ("Zażółć — 日本語 é\tkept", "Zażółć — 日本語 é\tkept"),
    ],
)
def test_plain_leaves_nothing_for_a_terminal_to_obey(hostile, shown):
    """Terminal sequences, controls, direction overrides and invisible characters go; words stay."""
    assert plain(hostile) == shown


@settings(max_examples=300, deadline=None)
@given(text=st.text(max_size=40))
def test_plain_is_printable_and_stable(text):
    """The result is printable but for newlines and tabs, encodes, and cleaning it again changes nothing."""
    once = plain(text)
    assert all(c in "\n\t" or c.isprintable() or c.isspace() for c in once)
    assert "\x1b" not in once
    assert plain(once) == once
    once.encode("utf-8")


def test_long_text_is_cut_visibly_and_lines_are_joined():
    """A cut shows; `line` never holds a line break."""
    assert plain("abcdef", 3) == "abc" + ELLIPSIS
    assert plain("abc", 3) == "abc"
    assert line(" a\n\n b\tc ") == "a b c"
    assert line("a\nbcd", 3) == "a b" + ELLIPSIS
