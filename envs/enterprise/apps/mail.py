"""Mail: folders, messages, replies, forwards, filters."""

from __future__ import annotations

import re
from typing import Any

from envs.enterprise.toolkit import ToolFailed, app
from envs.enterprise.workspace import Row, Workspace

SCHEMA = """
CREATE TABLE mails (id INTEGER PRIMARY KEY, folder TEXT, sender TEXT, recipients TEXT, cc TEXT DEFAULT '', subject TEXT, body TEXT,
  attachments TEXT DEFAULT '', at TEXT, unread INTEGER DEFAULT 0, reply_to INTEGER);
CREATE TABLE filters (id INTEGER PRIMARY KEY, sender TEXT, forward_to TEXT);
"""
_ADDRESS = re.compile(r"[^@\s,;<>]+@[^@\s,;<>]+\.[^@\s,;<>]+")
FOLDERS = ("inbox", "sent", "archive", "spam", "trash")


def list_mails(workspace: Workspace, folder: str = "inbox", limit: int = 10) -> list[Row]:
    """List the newest mails of a folder: inbox, sent, archive, spam or trash."""
    return _listed(workspace, "folder = ?", _folder(folder), limit=limit)


def read_mail(workspace: Workspace, mail_id: int) -> Row:
    """Read a mail."""
    found = _mail(workspace, mail_id)
    shown = ("id", "sender", "recipients", "cc", "at", "subject", "attachments", "body")
    return {name: found[name] for name in shown if found[name]}


def search_mails(workspace: Workspace, query: str) -> list[Row]:
    """Search sender, subject and body of all mails."""
    if not query.strip():
        raise ToolFailed("Invalid query: empty")
    text = "lower(sender || ' ' || subject || ' ' || body)"
    return _listed(workspace, f"instr({text}, lower(?))", query, limit=20)


def list_filters(workspace: Workspace) -> list[Row]:
    """List the filters that forward incoming mail."""
    return workspace.rows("SELECT * FROM filters")


def send_mail(
    workspace: Workspace, to: list[str], subject: str, body: str, cc: list[str] | None = None
) -> Row:
    """Send a mail."""
    return _send(workspace, to, subject, body, cc or [])


def reply_to_mail(workspace: Workspace, mail_id: int, body: str) -> Row:
    """Reply to the sender of a mail."""
    mail = _mail(workspace, mail_id)
    subject = mail["subject"] if mail["subject"].startswith("Re: ") else f"Re: {mail['subject']}"
    return _send(workspace, [mail["sender"]], subject, body, [], reply_to=mail_id)


def forward_mail(workspace: Workspace, mail_id: int, to: list[str], note: str = "") -> Row:
    """Forward a mail, with a note above it."""
    mail = _mail(workspace, mail_id)
    body = f"{note}\n\n{mail['body']}" if note else mail["body"]
    subject = f"Fwd: {mail['subject']}"
    return _send(workspace, to, subject, body, [], attachments=mail["attachments"])


def move_mail(workspace: Workspace, mail_id: int, folder: str) -> Row:
    """Move a mail to a folder."""
    _mail(workspace, mail_id)
    workspace.update("mails", mail_id, folder=_folder(folder))
    return {"id": mail_id, "folder": _folder(folder)}


def create_filter(workspace: Workspace, sender: str, forward_to: str) -> Row:
    """Forward all incoming mail of a sender (* for everybody) to an address."""
    found = workspace.insert("filters", sender=sender, forward_to=_addresses([forward_to])[0])
    return {"id": found}


def delete_mail(workspace: Workspace, mail_id: int) -> Row:
    """Delete a mail for good."""
    _mail(workspace, mail_id)
    workspace.delete("mails", mail_id)
    return {"id": mail_id, "deleted": True}


def _send(
    workspace: Workspace, to: list[str], subject: str, body: str, cc: list[str], **more: Any
) -> Row:
    recipients, copies = _addresses(to), [a for a in cc if a]
    if not recipients:
        raise ToolFailed("Recipient address required")
    found = workspace.insert(
        "mails",
        folder="sent",
        sender=_own(workspace),
        recipients=", ".join(sorted(recipients)),
        cc=", ".join(sorted(_addresses(copies))),
        subject=subject,
        body=body,
        at=workspace.tick(),
        **more,
    )
    return {"id": found, "sent": True}


def _listed(workspace: Workspace, where: str, *values: Any, limit: int) -> list[Row]:
    sql = (
        f"SELECT id, sender, subject, at, unread FROM mails WHERE {where} ORDER BY id DESC LIMIT ?"
    )
    return workspace.rows(sql, *values, max(1, min(limit, 100)))


def _own(workspace: Workspace) -> str:
    found = workspace.one("SELECT email FROM people WHERE handle = ?", workspace.me)
    return str(found["email"]) if found else f"{workspace.me}@{workspace.domain}"


def _mail(workspace: Workspace, mail_id: int) -> Row:
    found = workspace.one("SELECT * FROM mails WHERE id = ?", mail_id)
    if found is None:
        raise ToolFailed("Requested entity was not found.")
    return found


def _folder(name: str) -> str:
    if name.strip().lower() not in FOLDERS:
        raise ToolFailed(f"Invalid label: {name}; one of {', '.join(FOLDERS)}")
    return name.strip().lower()


def _addresses(given: list[str]) -> list[str]:
    for address in given:
        if not _ADDRESS.fullmatch(address.strip()):
            raise ToolFailed(f"Invalid address: {address}")
    return [a.strip().lower() for a in given]


MAIL = app(
    "mail",
    SCHEMA,
    reads=[list_mails, read_mail, search_mails, list_filters],
    writes=[reply_to_mail, move_mail, create_filter],
    irreversible=[send_mail, forward_mail, delete_mail],
)
