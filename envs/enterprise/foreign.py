"""Harbor tasks that others wrote, as far as they run without Docker: in bubblewrap, on this machine's own programs.

Nothing is built or installed and there is no network. A task whose image needs more than copied files is refused
with what it needs. A verifier that shares the agent's container can be fooled by an agent: that is the task's own choice.
"""

from __future__ import annotations

import json
import math
import posixpath
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from envs.enterprise.harbor import HarborError, read_toml

BASES = ("alpine", "debian", "ubuntu", "python", "scratch")
"""Images that hold little more than a shell, for which this machine's programs can stand in."""
IDLE = {"CMD", "EXPOSE", "LABEL", "MAINTAINER"}
MOUNTED = ("usr", "proc", "dev", "tmp", "logs", "tests", "solution")
TAIL = 2_000


@dataclass(frozen=True)
class Foreign:
    """A task folder that was read. ``obstacles`` says why it cannot run here; empty if it can."""

    folder: Path
    instruction: str
    copies: tuple[tuple[str, str], ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    workdir: str = "/"
    obstacles: tuple[str, ...] = ()


def read(folder: Path) -> Foreign:
    """Reads a task folder and changes nothing. Raises `HarborError` for one that is no single-step task."""
    told = read_toml(folder)
    if told.get("steps"):
        raise HarborError(f"{folder} has several steps: only tasks of one step are read")
    for name in ("instruction.md", "tests/test.sh"):
        if not (folder / name).is_file():
            raise HarborError(f"{folder} has no {name}")
    obstacles = list(_asked(told))
    if any((folder / "tests" / n).exists() for n in ("Dockerfile", "docker-compose.yaml")):
        obstacles.append("its verifier needs a Docker image of its own (tests/Dockerfile)")
    if (folder / "environment" / "docker-compose.yaml").exists():
        obstacles.append("it needs services of Docker Compose (environment/docker-compose.yaml)")
    file = folder / "environment" / "Dockerfile"
    copies: list[tuple[str, str]] = []
    env: dict[str, str] = {}
    workdir = "/"
    for keyword, rest in _instructions(file):
        try:
            parts = shlex.split(rest)
        except ValueError:
            parts = []
        if keyword == "WORKDIR" and len(parts) == 1:
            workdir = posixpath.normpath(posixpath.join(workdir, parts[0]))
        elif keyword == "COPY" and len(parts) == 2 and not rest.startswith(("-", "[")):
            slash = "/" if parts[1].endswith("/") or parts[1] == "." else ""
            target = posixpath.normpath(posixpath.join(workdir, parts[1])) + slash
            copies.append((parts[0], target))
        elif keyword == "ENV" and parts and all("=" in p for p in parts):
            env |= dict(p.split("=", 1) for p in parts)
        elif keyword == "FROM" and len(parts) == 1 and parts[0].partition(":")[0] in BASES:
            continue
        elif keyword not in IDLE:
            obstacles.append(f"its image needs Docker: {keyword} {rest[:80]}")
    environment = told.get("environment")
    if isinstance(environment, dict) and isinstance(environment.get("workdir"), str):
        workdir = environment["workdir"]
    text = (folder / "instruction.md").read_text(encoding="utf-8", errors="replace")
    return Foreign(folder.resolve(), text, tuple(copies), env, workdir, tuple(obstacles))


def _asked(told: Mapping[str, Any]) -> list[str]:
    environment = told.get("environment", {})
    if not isinstance(environment, dict):
        raise HarborError("[environment] of task.toml is no table")
    found = {
        "docker_image": "it needs the Docker image {}",
        "gpus": "it needs {} GPUs",
        "tpu": "it needs a TPU",
        "mcp_servers": "it needs MCP servers of its own",
        "healthcheck": "it needs a service that answers a health check",
    }
    asked = [text.format(environment[key]) for key, text in found.items() if environment.get(key)]
    if str(environment.get("os", "linux")).lower() != "linux":
        asked.append("it needs Windows")
    return asked


def _instructions(file: Path) -> list[tuple[str, str]]:
    if not file.is_file():
        return []
    text = file.read_text(encoding="utf-8", errors="replace").replace("\\\n", " ")
    lines = [line.strip() for line in text.splitlines()]
    split = [line.partition(" ") for line in lines if line and not line.startswith("#")]
    return [(keyword.upper(), rest.strip()) for keyword, _, rest in split]


def play(task: Foreign, script: str | None = None, limit_s: float = 300.0) -> dict[str, float]:
    """Runs a shell script, or the reference solution, then the verifier. Returns the rewards by name.

    Raises `HarborError` where it cannot run here, or if the verifier writes no reward: that is no reward of zero.
    """
    if task.obstacles:
        raise HarborError(f"{task.folder} cannot run without Docker: {'; '.join(task.obstacles)}")
    if shutil.which("bwrap") is None:
        raise HarborError("bubblewrap is missing: apt-get install bubblewrap")
    if script is None and not (task.folder / "solution" / "solve.sh").is_file():
        raise HarborError(f"{task.folder} has no solution/solve.sh: give a script")
    with tempfile.TemporaryDirectory(prefix="harbor-") as scratch:
        root, logs, empty = (Path(scratch) / n for n in ("root", "logs", "empty"))
        empty.mkdir()
        _prepare(task, root)
        solution = task.folder / "solution" if script is None else empty
        for command, tests, answers in (
            (script or "bash /solution/solve.sh", empty, solution),
            ("bash /tests/test.sh", task.folder / "tests", empty),
        ):
            if logs.exists():
                shutil.rmtree(logs)  # what an agent left there is no reward
            (logs / "verifier").mkdir(parents=True)
            mounts = {"logs": logs, "tests": tests, "solution": answers}
            said = _inside(task, root, mounts, command, Path(scratch) / "said", limit_s)
        return _rewards(logs / "verifier", said)


def _prepare(task: Foreign, root: Path) -> None:
    for name in (*MOUNTED, "root", "etc", "var"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        if Path("/usr", name).exists():
            (root / name).symlink_to(f"usr/{name}")
    (root / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    _below(root, task.workdir).mkdir(parents=True, exist_ok=True)
    context = task.folder / "environment"
    for source, target in task.copies:
        origin = (context / source).resolve()
        if not origin.is_relative_to(context.resolve()) or not origin.exists():
            raise HarborError(f"COPY {source}: there is no such file in {context}")
        place = _below(root, target)
        if origin.is_dir():
            shutil.copytree(origin, place, dirs_exist_ok=True)
            continue
        place = place / origin.name if target.endswith("/") or place.is_dir() else place
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(origin, place)


def _below(root: Path, path: str) -> Path:
    """A path inside the container, from outside; never one of those that are mounted."""
    place = root / posixpath.normpath(path).lstrip("/")
    top = place.relative_to(root).parts[:1]
    if ".." in place.parts or (top and (top[0] in MOUNTED or (root / top[0]).is_symlink())):
        raise HarborError(f"{path} cannot be written in the sandbox")
    return place


def _inside(task: Foreign, root: Path, mounts: Mapping[str, Path], command: str,
            said: Path, limit_s: float) -> str:  # fmt: skip
    """Runs a command in the sandbox. Returns the end of what it said."""
    bound: list[str] = []
    for name, place in mounts.items():
        bound += ["--bind" if name == "logs" else "--ro-bind", str(place), f"/{name}"]
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root", "LANG": "C.UTF-8", **task.env}
    for key, value in env.items():
        bound += ["--setenv", key, value]
    sandbox = [
        *("bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv"),
        *("--bind", str(root), "/", "--ro-bind", "/usr", "/usr"),
        # where we are root, the files of /proc/sys would let themselves be written
        *("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", *bound),
        *("--chdir", task.workdir, "bash", "-c", command),
    ]
    try:
        with said.open("wb") as file:
            subprocess.run(
                sandbox,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=limit_s,
                check=False,
            )
    except subprocess.TimeoutExpired as error:
        raise HarborError(f"{command[:80]}: not done after {limit_s:.0f} s") from error
    except ValueError as error:  # a null byte
        raise HarborError(f"{task.folder} cannot run: {error}") from error
    with said.open("rb") as file:
        file.seek(max(0, said.stat().st_size - TAIL))
        return file.read().decode("utf-8", "replace").strip()


def _rewards(folder: Path, said: str) -> dict[str, float]:
    def written(name: str) -> str | None:
        path = folder / name
        if (
            folder.is_symlink()
            or path.is_symlink()
            or not path.is_file()
            or path.stat().st_size > 2**20
        ):
            return None
        return path.read_text(encoding="utf-8", errors="replace")

    text, plain = written("reward.json"), written("reward.txt")
    try:
        told = json.loads(text) if text is not None else float(plain or "")
        found = told if isinstance(told, dict) else {"reward": told}
        numbers = {str(k): float(v) for k, v in found.items() if isinstance(v, int | float)}
        if len(numbers) < len(found) or not all(map(math.isfinite, numbers.values())):
            raise ValueError(str(found))
    except (ValueError, RecursionError, OverflowError) as error:
        if text is None and plain is None:
            end = said or "it said nothing"
            raise HarborError(
                f"the verifier wrote no reward (it may need packages or the network): {end}"
            ) from error
        raise HarborError(f"the verifier wrote no finite numbers: {(text or plain)!r}") from error
    return numbers
