"""A small provider for Harbor's own trials: every container is a bubblewrap sandbox, the workspace a process beside it.

Named on Harbor's command line as ``tests.envs.enterprise.harbor_provider:Bubblewrap``. For tests: it stands in for
the images, whose packages come from the interpreter in ARLAS_PYTHON, and knows the one service of our tasks.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import tempfile
from pathlib import Path
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import EnvironmentCapabilities

PLACES = ("logs", "tests", "solution", "journal", "app")
HIDDEN = {*PLACES, "proc", "dev", "tmp", "sys"}


class Bubblewrap(BaseEnvironment):
    """The agent's container with the workspace beside it, or the verifier's container."""

    @staticmethod
    def type() -> str:
        return "bubblewrap"

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(docker_compose=True, disable_internet=True)

    def _validate_definition(self) -> None:
        if not (self.environment_dir / "Dockerfile").is_file():
            raise FileNotFoundError(f"no Dockerfile in {self.environment_dir}")

    async def start(self, force_build: bool) -> None:
        """Makes the folders, and starts the workspace if the task has one."""
        self.root = Path(tempfile.mkdtemp(prefix="bubblewrap-"))
        for place in (*PLACES, "logs/agent", "logs/verifier", "logs/artifacts", "service"):
            (self.root / place).mkdir()
        self.service: asyncio.subprocess.Process | None = None
        self.verifies = not (self.environment_dir / "docker-compose.yaml").exists()
        self.url = ""
        if self.verifies:
            shutil.copytree(self.environment_dir, self.root / "tests", dirs_exist_ok=True)
            return
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        workspace = self.environment_dir / "workspace"
        self.service = await asyncio.create_subprocess_exec(
            *(os.environ["ARLAS_PYTHON"], "-B", "-m", "envs.enterprise.container.serve"),
            *(str(workspace / "state.json"), str(self.root / "service" / "calls.jsonl")),
            *("--host", "127.0.0.1", "--port", str(port)),
            cwd=workspace / "src",
            env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        )
        for _ in range(300):
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                await asyncio.sleep(0.1)
        self.url = f"http://127.0.0.1:{port}/mcp"

    async def stop(self, delete: bool) -> None:
        """Ends the workspace and removes the folders."""
        if self.service is not None and self.service.returncode is None:
            self.service.kill()
            await self.service.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        """Runs a command. The verifier has no network; the agent's container has it, to reach the workspace."""
        host = [p for p in Path("/").iterdir() if p.name not in HIDDEN]
        if not self.verifies:  # nothing of the task's folder is there
            host = [p for p in host if p.name in ("usr", "etc", "bin", "sbin", "lib", "lib64")]
        bound: list[str] = []
        for path in sorted(host):
            if path.is_symlink():
                bound += ["--symlink", os.readlink(path), str(path)]
            else:
                bound += ["--ro-bind-try", str(path), str(path)]
        for place in PLACES:
            bound += ["--bind", str(self.root / place), f"/{place}"]
        values = {"PATH": "/usr/bin:/bin", "WORKSPACE_URL": self.url, **(env or {})}
        if self.verifies:
            values["PYTHON"] = os.environ["ARLAS_PYTHON"]
        for key, value in values.items():
            bound += ["--setenv", key, value]
        ran = await asyncio.create_subprocess_exec(
            *("bwrap", "--unshare-all", *(() if self.verifies else ("--share-net",))),
            *("--die-with-parent", "--clearenv", "--proc", "/proc", "--dev", "/dev"),
            *("--tmpfs", "/tmp", *bound, "--chdir", cwd or "/app", "bash", "-c", command),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await asyncio.wait_for(ran.communicate(), timeout_sec)
        except TimeoutError:
            ran.kill()
            raise
        return ExecResult(
            stdout=out.decode(errors="replace"),
            stderr=err.decode(errors="replace"),
            return_code=ran.returncode or 0,
        )

    def _host(self, path: str) -> Path:
        place = (self.root / path.lstrip("/")).resolve()
        if not place.is_relative_to(self.root.resolve()):
            raise ValueError(f"{path} lies outside")
        return place

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        self._host(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source_path, self._host(target_path))

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        shutil.copytree(source_dir, self._host(target_dir), dirs_exist_ok=True)

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self._host(source_path), target_path)

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        shutil.copytree(self._host(source_dir), target_dir, dirs_exist_ok=True)

    async def service_is_dir(self, path: str, *, service: str | None = None,
                             user: str | int | None = None) -> bool:  # fmt: skip
        return await self.is_dir(path) if self.is_main_service(service) else False

    async def service_download_file(self, source_path: str, target_path: Path | str, *,
                                    service: str | None = None) -> None:  # fmt: skip
        if self.is_main_service(service):
            await self.download_file(source_path, target_path)
            return
        Path(target_path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(self.root / "service" / Path(source_path).name, target_path)

    async def service_exec(self, command: str, **kwargs: Any) -> ExecResult:
        if self.is_main_service(kwargs.pop("service", None)):
            return await self.exec(command, **kwargs)
        return ExecResult(return_code=1, stderr="the workspace takes no commands")

    async def stop_service(self, service: str) -> None:
        """The agent's sandbox ends with each command; nothing is left to stop."""
