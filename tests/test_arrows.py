"""Which package may use which: the arrows between the parts of the project."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OURS = ("arlas", "envs", "analysis", "scripts", "tests")
ALLOWED = {
    "arlas": ("arlas", "envs.base"),
    "envs": ("envs",),
    "analysis": ("analysis", "arlas.types", "arlas.statistics", "arlas.text"),
}
"""What each package may import of the project's own."""


def imports(source: str) -> Iterator[str]:
    """Dotted names of everything that a module imports, wherever the statement stands.

    ``from envs import base`` gives ``envs.base``; relative imports have no place here.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def crossings(package: str, source: str) -> list[str]:
    """The imports of a module of ``package`` that are not allowed."""
    return [
        name
        for name in imports(source)
        if name.partition(".")[0] in OURS
        and not any(f"{name}.".startswith(f"{allowed}.") for allowed in ALLOWED[package])
    ]


@pytest.mark.parametrize("package", ALLOWED)
def test_arrows_point_one_way(package: str) -> None:
    """Worlds know nothing of learning, learning knows worlds by their contract, analysis knows the words."""
    files = sorted((ROOT / package).rglob("*.py"))
    assert len(files) > 5
    wrong = {
        f.relative_to(ROOT).as_posix(): found
        for f in files
        if (found := crossings(package, f.read_text("utf-8")))
    }
    assert not wrong


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("arlas", "from envs.web import WebConfig"),
        ("arlas", "def late():\n    import envs.matrix"),
        ("arlas", "import envs"),
        ("envs", "from arlas.types import Seat"),
        ("envs", "import analysis.report"),
        ("analysis", "from arlas import train"),
        ("analysis", "from arlas.typesetting import x"),
        ("analysis", "import scripts.train"),
    ],
)
def test_a_wrong_arrow_is_found(package: str, source: str) -> None:
    """The check sees every way of importing, inside functions too."""
    assert crossings(package, source)
