"""The state of one episode: a SQLite database in memory, a clock, and a log of what was called."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

Row = dict[str, Any]
Snapshot = Mapping[str, Mapping[int, Row]]
"""Every table's rows by rowid."""

PEOPLE = """
CREATE TABLE people (id INTEGER PRIMARY KEY, handle TEXT UNIQUE, name TEXT, email TEXT UNIQUE, title TEXT, team TEXT);
"""


@dataclass(frozen=True)
class Logged:
    """One tool call as it was made. ``error`` is the service's complaint, None if it went through."""

    tool: str
    arguments: Mapping[str, Any]
    error: str | None = None
    writes: bool = False


@dataclass
class Workspace:
    """A company's data behind the tools; single use.

    ``me`` is the handle of the employee whose assistant acts. Text is stored and returned verbatim; lone
    surrogates, which no database holds, become question marks.
    """

    schemas: tuple[str, ...] = ()
    me: str = ""
    company: str = ""
    domain: str = "example.com"
    now: datetime = datetime(2026, 3, 2, 9, 0)
    log: list[Logged] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._db.row_factory = _as_dict
        self._db.executescript(PEOPLE + "\n".join(self.schemas))
        tables = self.rows("SELECT name FROM sqlite_master WHERE type = 'table'")
        self._changed = {r["name"] for r in tables}
        self._read: dict[str, Mapping[int, Row]] = {}

    def rows(self, sql: str, *values: Any) -> list[Row]:
        """The rows of a query."""
        found: list[Row] = self._db.execute(sql, [_storable(v) for v in values]).fetchall()
        return found

    def one(self, sql: str, *values: Any) -> Row | None:
        """The first row of a query."""
        return next(iter(self.rows(sql, *values)), None)

    def insert(self, table: str, **values: Any) -> int:
        """Adds a row and returns its rowid. Names of tables and columns are the program's, never a model's."""
        self._changed.add(table)
        marks = ", ".join("?" * len(values))
        sql = f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})"
        return int(self._db.execute(sql, [_storable(v) for v in values.values()]).lastrowid or 0)

    def update(self, table: str, rowid: int, **values: Any) -> None:
        """Changes columns of a row."""
        self._changed.add(table)
        sets = ", ".join(f"{name} = ?" for name in values)
        sql = f"UPDATE {table} SET {sets} WHERE rowid = ?"
        self._db.execute(sql, [*(_storable(v) for v in values.values()), rowid])

    def delete(self, table: str, rowid: int) -> None:
        """Removes a row."""
        self._changed.add(table)
        self._db.execute(f"DELETE FROM {table} WHERE rowid = ?", [rowid])

    def tick(self) -> str:
        """A time stamp one minute later than the last one."""
        self.now += timedelta(minutes=1)
        return f"{self.now:%Y-%m-%d %H:%M}"

    def snapshot(self) -> Snapshot:
        """Every table as it is now, not to be changed; only tables written to since the last one are read again."""
        for table in self._changed:
            rows = self.rows(f"SELECT rowid AS rowid_, * FROM {table}")
            self._read[table] = {r.pop("rowid_"): r for r in rows}
        self._changed.clear()
        return dict(self._read)

    def close(self) -> None:
        """Frees the database."""
        self._db.close()


def _as_dict(cursor: sqlite3.Cursor, row: tuple[Any, ...]) -> Row:
    return {column[0]: value for column, value in zip(cursor.description, row, strict=True)}


def _storable(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise OverflowError("a number is too large for the database")
    return value
