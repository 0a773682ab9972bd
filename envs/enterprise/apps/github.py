"""GitHub: repositories with issues, pull requests, files, collaborators and keys."""

from __future__ import annotations

from typing import Any

from envs.enterprise.toolkit import ToolFailed, app
from envs.enterprise.workspace import Row, Workspace

SCHEMA = """
CREATE TABLE repos (id INTEGER PRIMARY KEY, name TEXT UNIQUE, description TEXT, private INTEGER);
CREATE TABLE issues (id INTEGER PRIMARY KEY, repo TEXT, title TEXT, body TEXT, author TEXT, state TEXT DEFAULT 'open',
  labels TEXT DEFAULT '', assignee TEXT DEFAULT '');
CREATE TABLE pulls (id INTEGER PRIMARY KEY, repo TEXT, title TEXT, body TEXT, author TEXT, branch TEXT, diff TEXT,
  state TEXT DEFAULT 'open');
CREATE TABLE comments (id INTEGER PRIMARY KEY, number INTEGER, author TEXT, body TEXT);
CREATE TABLE code (id INTEGER PRIMARY KEY, repo TEXT, path TEXT, content TEXT);
CREATE TABLE collaborators (id INTEGER PRIMARY KEY, repo TEXT, login TEXT, permission TEXT);
CREATE TABLE deploy_keys (id INTEGER PRIMARY KEY, repo TEXT, title TEXT, key TEXT, read_only INTEGER);
"""
PERMISSIONS = ("read", "write", "admin")
# Issues and pull requests share one count of numbers, as on GitHub.
FIRST_PULL = 500


def list_repositories(workspace: Workspace) -> list[Row]:
    """List the repositories of the organization."""
    return workspace.rows("SELECT name, description, private FROM repos")


def list_issues(workspace: Workspace, repo: str, state: str = "open") -> list[Row]:
    """List the issues of a repository: open, closed or all."""
    _repo(workspace, repo)
    if state not in ("open", "closed", "all"):
        raise ToolFailed("422 Validation Failed: state")
    sql = "SELECT id AS number, title, author, labels, assignee, state FROM issues WHERE repo = ?"
    return [r for r in workspace.rows(sql, repo) if state in ("all", r["state"])]


def read_issue(workspace: Workspace, number: int) -> Row:
    """Read an issue with its comments."""
    found = _issue(workspace, number)
    return {"number": found.pop("id"), **found, "comments": _comments(workspace, number)}


def list_pull_requests(workspace: Workspace, repo: str) -> list[Row]:
    """List the open pull requests of a repository."""
    _repo(workspace, repo)
    sql = "SELECT id AS number, title, author, branch FROM pulls WHERE repo = ? AND state = 'open'"
    return workspace.rows(sql, repo)


def read_pull_request(workspace: Workspace, number: int) -> Row:
    """Read a pull request with its diff and its comments."""
    found = _pull(workspace, number)
    return {"number": found.pop("id"), **found, "comments": _comments(workspace, number)}


def list_files(workspace: Workspace, repo: str) -> list[str]:
    """List the paths of the files of a repository."""
    _repo(workspace, repo)
    return [r["path"] for r in workspace.rows("SELECT path FROM code WHERE repo = ?", repo)]


def read_file(workspace: Workspace, repo: str, path: str) -> Row:
    """Read a file of a repository."""
    found = _file(workspace, repo, path)
    if found is None:
        raise ToolFailed("404 Not Found")
    return {"path": path, "content": found["content"]}


def list_collaborators(workspace: Workspace, repo: str) -> list[Row]:
    """List who may use a repository, and how."""
    _repo(workspace, repo)
    return workspace.rows("SELECT login, permission FROM collaborators WHERE repo = ?", repo)


def create_issue(
    workspace: Workspace, repo: str, title: str, body: str, labels: list[str] | None = None
) -> Row:
    """Open an issue."""
    _repo(workspace, repo)
    if not title.strip():
        raise ToolFailed("422 Validation Failed: title")
    text = ", ".join(sorted(labels or []))
    found = workspace.insert(
        "issues", repo=repo, title=title, body=body, author=workspace.me, labels=text
    )
    return {"number": found}


def comment(workspace: Workspace, number: int, body: str) -> Row:
    """Comment on an issue or a pull request."""
    _either(workspace, number)
    if not body.strip():
        raise ToolFailed("422 Validation Failed: body")
    found = workspace.insert("comments", number=number, author=workspace.me, body=body)
    return {"id": found}


def label_issue(workspace: Workspace, number: int, label: str) -> Row:
    """Add a label to an issue."""
    labels = {*filter(None, _issue(workspace, number)["labels"].split(", ")), label.strip()}
    workspace.update("issues", number, labels=", ".join(sorted(labels)))
    return {"number": number, "labels": sorted(labels)}


def assign_issue(workspace: Workspace, number: int, login: str) -> Row:
    """Assign an issue to a person."""
    _issue(workspace, number)
    workspace.update("issues", number, assignee=_login(workspace, login))
    return {"number": number}


def close_issue(workspace: Workspace, number: int) -> Row:
    """Close an issue."""
    if _issue(workspace, number)["state"] == "closed":
        raise ToolFailed("422 Validation Failed: already closed")
    workspace.update("issues", number, state="closed")
    return {"number": number, "state": "closed"}


def commit_file(workspace: Workspace, repo: str, path: str, content: str, message: str) -> Row:
    """Write a file to the main branch."""
    _repo(workspace, repo)
    if not path.strip("/ ") or not message.strip():
        raise ToolFailed("422 Validation Failed: path and message are required")
    found = _file(workspace, repo, path)
    if found is None:
        workspace.insert("code", repo=repo, path=path, content=content)
    else:
        workspace.update("code", found["id"], content=content)
    return {"path": path, "committed": True}


def add_collaborator(workspace: Workspace, repo: str, login: str, permission: str = "read") -> Row:
    """Give a person read, write or admin permission on a repository."""
    _repo(workspace, repo)
    if permission not in PERMISSIONS:
        raise ToolFailed("422 Validation Failed: permission")
    sql = "SELECT id FROM collaborators WHERE repo = ? AND login = ?"
    found = workspace.one(sql, repo, login := login.strip("@ ").lower())
    if found is None:
        workspace.insert("collaborators", repo=repo, login=login, permission=permission)
    else:
        workspace.update("collaborators", found["id"], permission=permission)
    return {"login": login, "permission": permission}


def add_deploy_key(
    workspace: Workspace, repo: str, title: str, key: str, read_only: bool = True
) -> Row:
    """Add an SSH key that may use a repository."""
    _repo(workspace, repo)
    if not key.strip().startswith(("ssh-", "ecdsa-")):
        raise ToolFailed("422 Validation Failed: key is invalid")
    found = workspace.insert(
        "deploy_keys", repo=repo, title=title, key=key.strip(), read_only=int(read_only)
    )
    return {"id": found}


def merge_pull_request(workspace: Workspace, number: int) -> Row:
    """Merge a pull request into the main branch."""
    if _pull(workspace, number)["state"] != "open":
        raise ToolFailed("405 Pull Request is not mergeable")
    workspace.update("pulls", number, state="merged")
    return {"number": number, "merged": True}


def delete_file(workspace: Workspace, repo: str, path: str) -> Row:
    """Delete a file from the main branch."""
    found = _file(workspace, repo, path)
    if found is None:
        raise ToolFailed("404 Not Found")
    workspace.delete("code", found["id"])
    return {"path": path, "deleted": True}


def _repo(workspace: Workspace, repo: str) -> Row:
    found = workspace.one("SELECT * FROM repos WHERE name = ?", repo)
    if found is None:
        raise ToolFailed("404 Not Found")
    return found


def _file(workspace: Workspace, repo: str, path: str) -> Row | None:
    _repo(workspace, repo)
    return workspace.one("SELECT * FROM code WHERE repo = ? AND path = ?", repo, path)


def _issue(workspace: Workspace, number: int) -> Row:
    return _found(workspace.one("SELECT * FROM issues WHERE id = ?", number))


def _pull(workspace: Workspace, number: int) -> Row:
    return _found(workspace.one("SELECT * FROM pulls WHERE id = ?", number))


def _either(workspace: Workspace, number: int) -> None:
    _found(
        workspace.one(
            "SELECT id FROM issues WHERE id = ? UNION SELECT id FROM pulls WHERE id = ?",
            number,
            number,
        )
    )


def _found(row: Row | None) -> Row:
    if row is None:
        raise ToolFailed("404 Not Found")
    return row


def _login(workspace: Workspace, login: str) -> Any:
    sql = "SELECT handle FROM people WHERE handle = ?"
    return _found(workspace.one(sql, login.strip("@ ").lower()))["handle"]


def _comments(workspace: Workspace, number: int) -> list[Row]:
    return workspace.rows("SELECT id, author, body FROM comments WHERE number = ?", number)


GITHUB = app(
    "github",
    SCHEMA,
    reads=[
        *(list_repositories, list_issues, read_issue, list_pull_requests),
        *(read_pull_request, list_files, read_file, list_collaborators),
    ],
    writes=[
        *(create_issue, comment, label_issue, assign_issue, close_issue),
        *(commit_file, add_collaborator, add_deploy_key),
    ],
    irreversible=[merge_pull_request, delete_file],
)
