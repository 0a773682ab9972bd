"""Calendar and drive: events with guests, documents with shares."""

from __future__ import annotations

import re
from datetime import datetime

from envs.enterprise.toolkit import ToolFailed, app
from envs.enterprise.workspace import Row, Workspace

SCHEMA = """
CREATE TABLE events (id INTEGER PRIMARY KEY, title TEXT, start TEXT, minutes INTEGER, organizer TEXT, guests TEXT DEFAULT '',
  description TEXT DEFAULT '', room TEXT DEFAULT '');
CREATE TABLE documents (id INTEGER PRIMARY KEY, title TEXT UNIQUE, owner TEXT, content TEXT, link TEXT DEFAULT 'restricted');
CREATE TABLE shares (id INTEGER PRIMARY KEY, document INTEGER, email TEXT, role TEXT);
"""
ROLES = ("reader", "commenter", "editor")
LINKS = ("restricted", "company", "anyone")
_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+\.[^@\s,;<>]+")


def list_events(workspace: Workspace, day: str) -> list[Row]:
    """List the events of a day (YYYY-MM-DD)."""
    _moment(day, "%Y-%m-%d")
    sql = "SELECT id, title, start, minutes, organizer, room FROM events WHERE start LIKE ? ORDER BY start"
    return workspace.rows(sql, f"{day}%")


def get_event(workspace: Workspace, event_id: int) -> Row:
    """Show an event with its guests and its description."""
    return _one(workspace, "events", event_id)


def list_documents(workspace: Workspace) -> list[Row]:
    """List the documents of the drive."""
    return workspace.rows("SELECT id, title, owner, link FROM documents")


def read_document(workspace: Workspace, document_id: int) -> Row:
    """Read a document, and whom it is shared with."""
    found = _one(workspace, "documents", document_id)
    sql = "SELECT email, role FROM shares WHERE document = ?"
    return {**found, "shares": workspace.rows(sql, document_id)}


def create_event(
    workspace: Workspace,
    title: str,
    start: str,
    minutes: int,
    guests: list[str],
    description: str = "",
    room: str = "",
) -> Row:
    """Create an event (start: YYYY-MM-DD HH:MM) and invite guests by address."""
    if not title.strip() or not 0 < minutes <= 1440:
        raise ToolFailed("badRequest: title and minutes (1 to 1440) are required")
    found = workspace.insert(
        "events",
        title=title,
        start=_moment(start),
        minutes=minutes,
        organizer=workspace.me,
        guests=_addresses(guests),
        description=description,
        room=room,
    )
    return {"id": found}


def move_event(workspace: Workspace, event_id: int, start: str) -> Row:
    """Move an event to another start (YYYY-MM-DD HH:MM)."""
    _one(workspace, "events", event_id)
    workspace.update("events", event_id, start=_moment(start))
    return {"id": event_id}


def invite_guest(workspace: Workspace, event_id: int, email: str) -> Row:
    """Invite one more guest to an event."""
    found = _one(workspace, "events", event_id)
    guests = [*filter(None, found["guests"].split(", ")), email]
    workspace.update("events", event_id, guests=_addresses(guests))
    return {"id": event_id}


def create_document(workspace: Workspace, title: str, content: str) -> Row:
    """Create a document."""
    if not title.strip():
        raise ToolFailed("badRequest: title")
    if workspace.one("SELECT id FROM documents WHERE title = ?", title):
        raise ToolFailed("alreadyExists: title")
    return {"id": workspace.insert("documents", title=title, owner=workspace.me, content=content)}


def append_to_document(workspace: Workspace, document_id: int, text: str) -> Row:
    """Add a line at the end of a document."""
    found = _one(workspace, "documents", document_id)
    workspace.update("documents", document_id, content=f"{found['content']}\n{text}")
    return {"id": document_id}


def share_document(workspace: Workspace, document_id: int, email: str, role: str = "reader") -> Row:
    """Share a document with an address as reader, commenter or editor."""
    _one(workspace, "documents", document_id)
    if role not in ROLES:
        raise ToolFailed("badRequest: role")
    address = _addresses([email])
    if not address:
        raise ToolFailed("invalidSharingRequest: email")
    sql = "SELECT id FROM shares WHERE document = ? AND email = ?"
    known = workspace.one(sql, document_id, address)
    if known is None:
        workspace.insert("shares", document=document_id, email=address, role=role)
    else:
        workspace.update("shares", known["id"], role=role)
    return {"id": document_id}


def set_link_sharing(workspace: Workspace, document_id: int, link: str) -> Row:
    """Set who may open a document by its link: restricted, company or anyone."""
    _one(workspace, "documents", document_id)
    if link not in LINKS:
        raise ToolFailed("badRequest: link")
    workspace.update("documents", document_id, link=link)
    return {"id": document_id}


def cancel_event(workspace: Workspace, event_id: int) -> Row:
    """Cancel an event for everybody."""
    _one(workspace, "events", event_id)
    workspace.delete("events", event_id)
    return {"id": event_id}


def delete_document(workspace: Workspace, document_id: int) -> Row:
    """Delete a document for good."""
    _one(workspace, "documents", document_id)
    workspace.delete("documents", document_id)
    return {"id": document_id}


def _one(workspace: Workspace, table: str, rowid: int) -> Row:
    found = workspace.one(f"SELECT * FROM {table} WHERE id = ?", rowid)
    if found is None:
        raise ToolFailed("notFound")
    return found


def _moment(text: str, form: str = "%Y-%m-%d %H:%M") -> str:
    try:
        return datetime.strptime(text.strip(), form).strftime(form)
    except ValueError:
        raise ToolFailed(f"badRequest: {text!r} is no time of the form {form}") from None


def _addresses(given: list[str]) -> str:
    for address in given:
        if not _ADDRESS.fullmatch(address.strip()):
            raise ToolFailed(f"badRequest: invalid address {address}")
    return ", ".join(sorted({a.strip().lower() for a in given}))


DRIVE = app(
    "drive",
    SCHEMA,
    reads=[list_events, get_event, list_documents, read_document],
    writes=[
        *(create_event, move_event, invite_guest, create_document),
        *(append_to_document, share_document, set_link_sharing),
    ],
    irreversible=[cancel_event, delete_document],
)
