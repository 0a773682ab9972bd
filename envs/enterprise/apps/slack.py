"""Slack: channels, messages and threads, direct messages, reactions, pins, invitations."""

from __future__ import annotations

from typing import Any

from envs.enterprise.toolkit import ToolFailed, app
from envs.enterprise.workspace import Row, Workspace

SCHEMA = """
CREATE TABLE channels (id INTEGER PRIMARY KEY, name TEXT UNIQUE, topic TEXT, private INTEGER);
CREATE TABLE members (id INTEGER PRIMARY KEY, channel TEXT, handle TEXT);
CREATE TABLE messages (id INTEGER PRIMARY KEY, channel TEXT, thread INTEGER, author TEXT, text TEXT, at TEXT, pinned INTEGER DEFAULT 0);
CREATE TABLE reactions (id INTEGER PRIMARY KEY, message INTEGER, handle TEXT, emoji TEXT);
"""
_LIMIT = 40_000  # characters of a message


def list_channels(workspace: Workspace) -> list[Row]:
    """List the channels with topic and number of members."""
    return workspace.rows(
        "SELECT name, topic, (SELECT COUNT(*) FROM members m WHERE m.channel = c.name) AS members FROM channels c"
    )


def list_members(workspace: Workspace, channel: str) -> list[Row]:
    """List the members of a channel with handle, name, title and e-mail."""
    name = _channel(workspace, channel)
    return workspace.rows(
        "SELECT p.handle, p.name, p.title, p.email FROM members m JOIN people p USING (handle) WHERE m.channel = ?",
        name,
    )


def read_channel(workspace: Workspace, channel: str, limit: int = 10) -> list[Row]:
    """Read the newest messages of a channel, oldest first."""
    name = _channel(workspace, channel)
    return _shown(workspace, "channel = ? AND thread IS NULL", name, limit=limit)


def read_thread(workspace: Workspace, message_id: int) -> list[Row]:
    """Read a message and the replies to it."""
    _message(workspace, message_id)
    return _shown(workspace, "id = ? OR thread = ?", message_id, message_id)


def read_direct_messages(workspace: Workspace, handle: str) -> list[Row]:
    """Read the direct messages exchanged with a person."""
    return _shown(workspace, "channel = ?", _direct(workspace, handle))


def search_messages(workspace: Workspace, query: str) -> list[Row]:
    """Search the messages of all channels for a word or phrase."""
    if not query.strip():
        raise ToolFailed("no_query")
    return _shown(workspace, "instr(lower(text), lower(?)) AND channel NOT LIKE '@%'", query)


def get_profile(workspace: Workspace, handle: str) -> Row:
    """Show a person's name, title, team and e-mail."""
    return _person(workspace, handle)


def post_message(workspace: Workspace, channel: str, text: str) -> Row:
    """Post a message to a channel."""
    return _post(workspace, _channel(workspace, channel), text)


def reply_in_thread(workspace: Workspace, message_id: int, text: str) -> Row:
    """Reply to a message in its thread."""
    parent = _message(workspace, message_id)
    return _post(workspace, parent["channel"], text, parent["thread"] or parent["id"])


def send_direct_message(workspace: Workspace, handle: str, text: str) -> Row:
    """Send a direct message to a person."""
    return _post(workspace, _direct(workspace, handle), text)


def add_reaction(workspace: Workspace, message_id: int, emoji: str) -> Row:
    """React to a message with an emoji."""
    _message(workspace, message_id)
    emoji = emoji.strip(": ")
    same = "SELECT id FROM reactions WHERE message = ? AND handle = ? AND emoji = ?"
    if workspace.one(same, message_id, workspace.me, emoji):
        raise ToolFailed("already_reacted")
    workspace.insert("reactions", message=message_id, handle=workspace.me, emoji=emoji)
    return {"ok": True}


def pin_message(workspace: Workspace, message_id: int) -> Row:
    """Pin a message to its channel."""
    if _message(workspace, message_id)["pinned"]:
        raise ToolFailed("already_pinned")
    workspace.update("messages", message_id, pinned=1)
    return {"ok": True}


def set_topic(workspace: Workspace, channel: str, topic: str) -> Row:
    """Set the topic of a channel."""
    name = _channel(workspace, channel)
    found = workspace.one("SELECT id FROM channels WHERE name = ?", name)
    assert found is not None
    workspace.update("channels", found["id"], topic=topic)
    return {"ok": True}


def create_channel(workspace: Workspace, name: str, private: bool = False) -> Row:
    """Create a channel."""
    name = name.strip("# ").lower()
    if not name or len(name) > 80 or not all(c.isalnum() or c in "-_" for c in name):
        raise ToolFailed("invalid_name_specials")
    if workspace.one("SELECT id FROM channels WHERE name = ?", name):
        raise ToolFailed("name_taken")
    workspace.insert("channels", name=name, topic="", private=int(private))
    workspace.insert("members", channel=name, handle=workspace.me)
    return {"ok": True, "channel": name}


def invite_to_channel(workspace: Workspace, channel: str, handle: str) -> Row:
    """Invite a person to a channel."""
    name, person = _channel(workspace, channel), _person(workspace, handle)
    if workspace.one(
        "SELECT id FROM members WHERE channel = ? AND handle = ?", name, person["handle"]
    ):
        raise ToolFailed("already_in_channel")
    workspace.insert("members", channel=name, handle=person["handle"])
    return {"ok": True}


def delete_message(workspace: Workspace, message_id: int) -> Row:
    """Delete a message for good."""
    _message(workspace, message_id)
    workspace.delete("messages", message_id)
    return {"ok": True}


def archive_channel(workspace: Workspace, channel: str) -> Row:
    """Archive a channel: it disappears with its messages."""
    name = _channel(workspace, channel)
    if name == "general":
        raise ToolFailed("cant_archive_general")
    for table, column in (("channels", "name"), ("members", "channel"), ("messages", "channel")):
        for row in workspace.rows(f"SELECT id FROM {table} WHERE {column} = ?", name):
            workspace.delete(table, row["id"])
    return {"ok": True}


def _post(workspace: Workspace, channel: str, text: str, thread: int | None = None) -> Row:
    if not text.strip():
        raise ToolFailed("no_text")
    if len(text) > _LIMIT:
        raise ToolFailed("msg_too_long")
    found = workspace.insert(
        "messages",
        channel=channel,
        thread=thread,
        author=workspace.me,
        text=text,
        at=workspace.tick(),
    )
    return {"ok": True, "id": found}


def _shown(workspace: Workspace, where: str, *values: Any, limit: int = 20) -> list[Row]:
    newest = (
        f"SELECT id, author, at, channel, text FROM messages WHERE {where} ORDER BY id DESC LIMIT ?"
    )
    return workspace.rows(newest, *values, max(1, min(limit, 100)))[::-1]


def _channel(workspace: Workspace, channel: str) -> str:
    name = channel.strip("# ").lower()
    if not workspace.one("SELECT id FROM channels WHERE name = ?", name):
        raise ToolFailed("channel_not_found")
    return name


def _message(workspace: Workspace, message_id: int) -> Row:
    found = workspace.one("SELECT * FROM messages WHERE id = ?", message_id)
    if found is None:
        raise ToolFailed("message_not_found")
    return found


def _person(workspace: Workspace, handle: str) -> Row:
    sql = "SELECT handle, name, title, team, email FROM people WHERE handle = ?"
    found = workspace.one(sql, handle.strip("@ ").lower())
    if found is None:
        raise ToolFailed("user_not_found")
    return found


def _direct(workspace: Workspace, handle: str) -> str:
    """The conversation with a person is a channel of its own."""
    return f"@{_person(workspace, handle)['handle']}"


SLACK = app(
    "slack",
    SCHEMA,
    reads=[
        *(list_channels, list_members, read_channel, read_thread),
        *(read_direct_messages, search_messages, get_profile),
    ],
    writes=[
        *(post_message, reply_in_thread, send_direct_message, add_reaction, pin_message),
        *(set_topic, create_channel, invite_to_channel),
    ],
    irreversible=[delete_message, archive_channel],
)
