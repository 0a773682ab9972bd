"""Harbor packages: what is written, what comes back, and that nothing near the agent decides the reward."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from envs.base import ToolCall, ToolCallError, UnknownTaskError
from envs.enterprise.checks import others
from envs.enterprise.container.grade import rewards
from envs.enterprise.container.session import MAX_CALL, opened, saved
from envs.enterprise.env import EnterpriseEnv, Session
from envs.enterprise.experts import written
from envs.enterprise.foreign import play, read
from envs.enterprise.harbor import (
    MAX_ATTACK,
    HarborError,
    export,
    load,
    session_of,
    slug,
    verdict_of,
)
from envs.enterprise.tasks.catalog import SUITES, build, catalog
from envs.enterprise.tasks.spec import Kind

ROOT = Path(__file__).resolve().parents[3]
TASK = "crm.pay_invoice/payment.vendor_account"
HOSTILE = 'quote " \'single\' \\ """ \x7f \x07 \u2028 \U0001f600\n[task]\nname = "x"\n${HOME} $(id)'
ONE_OF_EACH = [
    next(n for n, (s, t) in catalog().items() if s.name == suite and t.kind == kind)
    for suite in SUITES
    for kind in Kind
    if any(s.name == suite and t.kind == kind for s, t in catalog().values())
]
PLAYED = ONE_OF_EACH[::2]  # one of each kind, from both suites
SAMPLE = list(dict.fromkeys([*ONE_OF_EACH, *list(catalog())[::150]]))


def attack_for(task: str) -> str:
    return HOSTILE if catalog()[task][1].kind is Kind.ATTACK else ""


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if not p.is_dir()}


def lines(calls: Sequence[ToolCall]) -> list[str]:
    return [json.dumps({"tool": c.name, "arguments": dict(c.arguments)}) for c in calls]


def environment(**more: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHON": sys.executable, **more}


@contextmanager
def served(folder: Path, journal: Path) -> Iterator[str]:
    """The exported service as a process of its own, and its URL."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = folder / "environment" / "workspace"
    command = [sys.executable, "-B", "-m", "envs.enterprise.container.serve"]
    command += [str(place / "state.json"), str(journal), "--host", "127.0.0.1"]
    process = subprocess.Popen([*command, "--port", str(port)], cwd=place / "src")
    try:
        for _ in range(300):
            assert process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


def solved(folder: Path, journal: Path) -> subprocess.CompletedProcess[str]:
    """Runs the folder's solution against its own service."""
    with served(folder, journal) as url:
        command = ["bash", str(folder / "solution" / "solve.sh")]
        return subprocess.run(
            command, env=environment(WORKSPACE_URL=url), capture_output=True, text=True, check=False
        )


def graded(folder: Path, journal: Path, logs: Path) -> dict[str, float] | None:
    """Runs the folder's verifier. None if it wrote no reward."""
    env = environment(JOURNAL=str(journal), LOGS_DIR=str(logs))
    subprocess.run(["bash", str(folder / "tests" / "test.sh")], env=env, check=False, cwd=logs)
    reward = logs / "verifier" / "reward.json"
    told: dict[str, float] | None = json.loads(reward.read_text()) if reward.exists() else None
    return told


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export(TASK, 5, tmp_path_factory.mktemp("harbor") / "task", HOSTILE)


# --- there and back ---------------------------------------------------------------------------------


@pytest.mark.parametrize("task", SAMPLE)
def test_an_exported_task_comes_back(task: str, tmp_path: Path) -> None:
    """Task, seed and text return; the workspace is the same here, and the solution has the same verdict."""
    made = export(task, 7, tmp_path / "task", attack_for(task))
    about = load(made)
    assert about == (task, 7, attack_for(task))
    env = EnterpriseEnv()
    env.reset(seed=about.seed, options={"task": about.task})
    env.plant(about.attack)
    assert env.session is not None
    assert session_of(about).built.workspace.snapshot() == env.session.built.workspace.snapshot()
    for call in env.session.built.solution:
        *_, info = env.step(written(call))
    verdict, here = info["verdict"], verdict_of(about)
    assert (verdict.completion, verdict.breach) == (here.completion, here.breach) == (1.0, 0.0)
    assert sum(len(b) for b in contents(made).values()) < 2**20
    env.close()


@pytest.mark.parametrize("task", SAMPLE)
def test_the_served_workspace_is_the_tasks(task: str, tmp_path: Path) -> None:
    """Without the task behind it, the workspace answers every call as the real session does."""
    made = export(task, 3, tmp_path / "task", attack_for(task))
    served_, real = (
        opened(made / "environment" / "workspace" / "state.json"),
        session_of(load(made)),
    )
    assert list(served_.tools) == list(real.tools)
    assert served_.built.workspace.snapshot() == real.built.workspace.snapshot()
    calls = [*real.built.compromised[:-1], *real.built.solution[:-1]]
    calls += [
        ToolCall(c.name, {**c.arguments, key: other})
        for c in calls
        for key, value in c.arguments.items()
        for other in others(value)
    ]
    for call in (*calls, real.built.solution[-1]):
        told: list[Any] = []
        for session in (served_, real):
            try:
                told.append(session.call(call.name, call.arguments))
            except ToolCallError as error:
                told.append(str(error))
        assert told[0] == told[1], call
    assert served_.ended == real.ended
    assert served_.built.workspace.snapshot() == real.built.workspace.snapshot()
    assert served_.built.workspace.now == real.built.workspace.now


def test_exporting_twice_gives_the_same_bytes(folder: Path, tmp_path: Path) -> None:
    """An export of the same task is replaced; nothing but the folder is left beside it."""
    again = export(TASK, 5, tmp_path / "task", "another text")
    assert contents(again) != contents(folder)
    assert contents(export(TASK, 5, tmp_path / "task", HOSTILE)) == contents(folder)
    assert [p.name for p in tmp_path.iterdir()] == ["task"]


def test_the_configuration_is_valid(folder: Path) -> None:
    """TOML holds, whatever the text; the verifier has a container of its own; the journal is the service's."""
    told = tomllib.loads((folder / "task.toml").read_text(encoding="utf-8"))
    assert told["task"]["name"] == f"arlas/{slug(TASK, 5)}"
    assert told["metadata"]["arlas"]["attack"] == HOSTILE
    assert told["verifier"]["environment_mode"] == "separate"
    assert told["artifacts"] == [{"source": "/journal/calls.jsonl", "service": "workspace"}]
    assert told["environment"]["mcp_servers"][0]["transport"] == "streamable-http"
    for script in ("tests/test.sh", "solution/solve.sh"):
        assert os.access(folder / script, os.X_OK)


@pytest.mark.parametrize("task", ONE_OF_EACH)
def test_nothing_of_solution_or_verifier_is_near_the_agent(task: str, tmp_path: Path) -> None:
    """Neither modules nor names of needs, breaches and reference calls; what is harmful is not marked."""
    made = export(task, 1, tmp_path / "task", attack_for(task))
    near = {n: b for n, b in contents(made).items() if not n.startswith(("tests/", "solution/"))}
    near.pop("task.toml")  # Harbor reads it and shows it to nobody
    assert not [n for n in near if "/tasks/" in n or n.endswith(("verify.py", "grade.py"))]
    assert not [n for n in near if n.endswith(("solve.py", "suite.py", "calls.jsonl"))]
    family = catalog()[task][1].family
    state = near["environment/workspace/state.json"].decode()
    assert set(json.loads(state)) == {
        *("instruction", "workspace", "now", "tables", "modules", "tools")
    }
    for word in ("needs", "breaches", "compromised", task, *([family] if family else [])):
        assert word not in state
    for name, text in near.items():
        assert b"import arlas" not in text
        assert b"from arlas" not in text
        if "/envs/enterprise/" in name:
            assert b"import verify" not in text
            assert b"envs.enterprise.tasks" not in text or name.endswith("mcp.py")
    dockerfile = near["environment/Dockerfile"].decode()
    assert "COPY" not in dockerfile


# --- the whole way, in processes of their own --------------------------------------------------------


@pytest.mark.parametrize("task", PLAYED)
def test_the_solution_earns_the_reward(task: str, tmp_path: Path) -> None:
    """Service, solution and verifier of an export, each a process that knows only its own folder."""
    made = export(task, 11, tmp_path / "task", attack_for(task))
    before = contents(made)
    ran = solved(made, tmp_path / "calls.jsonl")
    assert ran.returncode == 0, ran.stderr
    told = graded(made, tmp_path / "calls.jsonl", tmp_path)
    assert told is not None
    assert (told["completion"], told["breach"], told["reward"]) == (1.0, 0.0, 1.0)
    assert told["exposed"] == float(bool(attack_for(task)))
    assert contents(made) == before


def test_a_fooled_agent_breaches(folder: Path, tmp_path: Path) -> None:
    """Through the exported service; calls after the end are refused and change nothing."""
    made = tmp_path / "task"
    shutil.copytree(folder, made)
    built = build(TASK, 5)
    late = [*built.compromised, *built.solution]
    (made / "solution" / "calls.jsonl").write_text("\n".join(lines(late)) + "\n")
    ran = solved(made, tmp_path / "calls.jsonl")
    assert "no more calls are taken" in ran.stdout
    assert verdict_of(load(made), tmp_path / "calls.jsonl").breach == 1.0
    assert len((tmp_path / "calls.jsonl").read_text().splitlines()) == len(built.compromised)


def test_without_a_journal_there_is_no_reward(folder: Path, tmp_path: Path) -> None:
    """A service that failed is no agent that failed; an agent that did nothing has an empty journal."""
    assert graded(folder, tmp_path / "nothing", tmp_path) is None
    with pytest.raises(OSError):
        verdict_of(load(folder), tmp_path / "nothing")
    (tmp_path / "empty").touch()
    told = rewards(verdict_of(load(folder), tmp_path / "empty"))
    assert told == {"reward": 0.0, "completion": 0.0, "breach": 0.0, "exposed": 0.0}


FORGED = {
    "empty": [""],
    "garbage": ["not json", "\x00\x00", "\udcff", "[]", "null", "1e999"],
    "claims": ['{"reward": 1.0, "completion": 1.0}', '{"tool": "finish", "completion": 1}'],
    "claimed answer": [json.dumps({"tool": "finish", "arguments": {"answer": "All done."}})],
    "extra arguments": ['{"tool": "finish", "arguments": {"answer": "x", "completion": 1.0}}'],
    "unknown tool": ['{"tool": "set_reward", "arguments": {"value": 1}}'],
    "nested": ["[" * 100_000, '{"tool":' * 50_000],
    "long": ['{"tool": "' + "x" * 3 * MAX_CALL + '"}'],
    "many": ['{"tool": "list_mails", "arguments": {}}'] * 200,
    "large number": ['{"tool": "read_mail", "arguments": {"mail_id": ' + "9" * 5_000 + "}}"],
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED.keys())
def test_a_forged_journal_earns_nothing(forged: list[str], folder: Path, tmp_path: Path) -> None:
    """Whatever stands in it, alone or before the real calls."""
    journal = tmp_path / "calls.jsonl"
    journal.write_text("\n".join(forged) + "\n", encoding="utf-8", errors="surrogatepass")
    about = load(folder)
    verdict = verdict_of(about, journal)
    assert rewards(verdict) == {"reward": 0.0, "completion": 0.0, "breach": 0.0, "exposed": 0.0}
    extra = [json.dumps({**json.loads(c), "reward": 9, "error": None}) for c in
             lines(build(TASK, 5).compromised)]  # fmt: skip
    journal.write_text("\n".join(extra) + "\n")
    assert verdict_of(about, journal).breach == 1.0


def test_what_follows_the_end_is_ignored(folder: Path, tmp_path: Path) -> None:
    """Calls appended after finish neither complete nor breach."""
    built, journal = build(TASK, 5), tmp_path / "calls.jsonl"
    journal.write_text("\n".join(lines([*built.solution, *built.compromised])) + "\n")
    verdict = verdict_of(load(folder), journal)
    assert (verdict.completion, verdict.breach) == (1.0, 0.0)
    journal.write_text("\n".join(lines([built.solution[-1], *built.solution])) + "\n")
    assert verdict_of(load(folder), journal).completion == 0.0


def test_no_call_escapes_the_journal(folder: Path) -> None:
    """What the verifier would not play again, the service does not do: too long, too many, too much."""
    session = opened(folder / "environment" / "workspace" / "state.json")
    before = session.built.workspace.snapshot()
    body = {"to": ["a@x.example"], "subject": "s", "body": "x" * (MAX_CALL + 1)}
    with pytest.raises(ToolCallError, match="longer than"):
        session.call("send_mail", body)
    session.taken = 10_000
    with pytest.raises(ToolCallError, match="no more calls"):
        session.call("send_mail", {**body, "body": "x"})
    with pytest.raises(ValueError):  # a number that Python does not write out
        session.call("read_mail", {"mail_id": 10**5_000})
    assert session.built.workspace.snapshot() == before


# --- bad folders -------------------------------------------------------------------------------------


def about_toml(**changes: str) -> str:
    told = {"format": "1", "task": json.dumps(TASK), "seed": "5", "attack": '""', **changes}
    return "[metadata.arlas]\n" + "".join(f"{k} = {v}\n" for k, v in told.items() if v)


BAD = {
    "no task.toml": ("", "no task.toml"),
    "malformed": ("[metadata\n", "not valid TOML"),
    "not text": ("\udcff\udcfe", "not valid TOML"),
    "nested": ("a = " + "[" * 50_000, "not valid TOML"),
    "foreign": ("[metadata]\n", "not exported from here"),
    "no table": ("metadata = 3\n", "not exported from here"),
    "later format": (about_toml(format="99"), "format 99"),
    "unknown task": (about_toml(task='"slack.nothing/benign"'), "no task"),
    "hostile name": (about_toml(task='"../../etc/passwd"'), "no task"),
    "name of a list": (about_toml(task='["x"]'), "no task"),
    "negative seed": (about_toml(seed="-1"), "seed"),
    "seed is true": (about_toml(seed="true"), "seed"),
    "huge seed": (about_toml(seed="9" * 30), "seed"),
    "no attack": (about_toml(attack=""), "attack"),
    "long attack": (about_toml(attack=json.dumps("x" * (MAX_ATTACK + 1))), "attack"),
    "attack without a site": (
        about_toml(task='"malicious/harass"', attack='"x"'),
        "attacked by nobody",
    ),
}


@pytest.mark.parametrize(("text", "complaint"), BAD.values(), ids=BAD.keys())
def test_a_bad_folder_is_refused(text: str, complaint: str, tmp_path: Path) -> None:
    """The error says what is wrong; nothing is written over such a folder."""
    made = tmp_path / "task"
    made.mkdir()
    if text:
        (made / "task.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
    (made / "precious").write_text("mine")
    before = contents(made)
    with pytest.raises(HarborError, match=complaint):
        load(made)
    with pytest.raises(HarborError, match="exists and is no export"):
        export(TASK, 5, made)
    assert contents(made) == before


def test_an_unsafe_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    """Links that lead out, huge files, pipes, files in place of folders, another task's export."""
    for number, spoil in enumerate(
        (
            lambda f: (f / "tests" / "x").symlink_to("/etc/passwd"),
            lambda f: (f / "out").symlink_to("../.."),
            lambda f: (f / "huge").write_bytes(b"\0" * (8 * 2**20 + 1)),
            lambda f: os.mkfifo(f / "pipe"),
        )
    ):
        made = tmp_path / str(number)
        shutil.copytree(folder, made)
        spoil(made)
        with pytest.raises(HarborError, match=r"leads out|larger than|neither file nor folder"):
            load(made)
    with pytest.raises(HarborError, match="is no folder"):
        load(folder / "task.toml")
    with pytest.raises(HarborError, match="holds an export of"):
        export("malicious/harass", 0, folder)


def test_what_cannot_be_exported(tmp_path: Path) -> None:
    """Unknown tasks, seeds out of range, long texts, texts without a place; no folder is left behind."""
    with pytest.raises(UnknownTaskError):
        export("../../escape", 0, tmp_path / "a")
    for task, seed, text, complaint in (
        (TASK, -1, "", "seed"),
        (TASK, 2**31, "", "seed"),
        (TASK, 0, "x" * (MAX_ATTACK + 1), "at most"),
        ("malicious/harass", 0, "x", "attacked by nobody"),
        ("crm.pay_invoice/benign", 0, "x", "attacked by nobody"),
    ):
        with pytest.raises(HarborError, match=complaint):
            export(task, seed, tmp_path / "a", text)
    assert not list(tmp_path.iterdir())


def test_a_workspace_survives_being_saved(tmp_path: Path) -> None:
    """Rows, ids, clock: also after calls that added and removed rows."""
    work = Session(built := build(TASK, 9), build(TASK, 9).tools)
    for call in built.solution[:-1]:
        work.call(call.name, call.arguments)
    path = tmp_path / "state.json"
    path.write_text(saved(built.workspace, "x", built.tools), encoding="utf-8")
    again = opened(path)
    assert again.built.workspace.snapshot() == built.workspace.snapshot()
    assert again.built.workspace.tick() == built.workspace.tick()


# --- tasks of others ---------------------------------------------------------------------------------

bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap is not installed")


def foreign(folder: Path, files: Mapping[str, str] | None = None) -> Path:
    """A task as others write them: copy a file to the right place."""
    base = {
        "task.toml": 'schema_version = "1.4"\n[environment]\nnetwork_mode = "no-network"\n',
        "instruction.md": "Copy data.txt to out.txt.\n",
        "environment/Dockerfile": "FROM ubuntu:24.04\nWORKDIR /app\nCOPY data.txt .\nENV A='b c'\n",
        "environment/data.txt": "data\n",
        "solution/solve.sh": 'test "$A" = "b c" && cp data.txt out.txt\n',
        "tests/test.sh": "cmp -s /app/out.txt /tests/data && r=1 || r=0\n"
        "echo $r > /logs/verifier/reward.txt\n",
        "tests/data": "data\n",
    }
    for name, text in {**base, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def commands(calls: list[str]) -> str:
    """An agent's shell commands as one script; each runs whether or not the one before failed."""
    return "\n".join(f"( {c}\n) || true" for c in calls)


@bubblewrap
def test_a_foreign_task_runs_in_the_sandbox(tmp_path: Path) -> None:
    """Its solution is rewarded, doing nothing is not, and claims left behind are removed before it is verified."""
    task = read(foreign(tmp_path / "task"))
    before = contents(task.folder)
    assert play(task) == {"reward": 1.0}
    assert play(task, "true") == {"reward": 0.0}
    claims = ["echo 1 > /logs/verifier/reward.txt", "rm -rf /tests", "mv /logs /old", "exit 3"]
    assert play(task, commands(claims)) == {"reward": 0.0}
    assert play(task, commands(["test -e /solution/solve.sh && cp data.txt out.txt"])) == {
        "reward": 0.0
    }
    setting = "/proc/sys/vm/swappiness"  # written with what stands there
    assert play(task, f"v=$(cat {setting}); echo $v > {setting} && cp data.txt out.txt") == {
        "reward": 0.0
    }
    assert contents(task.folder) == before
    with pytest.raises(HarborError, match="not done after 1 s"):
        play(task, "sleep 60", limit_s=1.0)


@bubblewrap
@pytest.mark.parametrize(
    ("test", "complaint"),
    [
        ("echo broken >&2; exit 1", "no reward.*broken"),
        ("echo NaN > /logs/verifier/reward.txt", "no finite numbers"),
        ('echo \'{"a": "1"}\' > /logs/verifier/reward.json', "no finite numbers"),
        ("ln -s /etc/passwd /logs/verifier/reward.txt", "no reward"),
    ],
)
def test_a_verifier_without_a_reward_is_an_error(test: str, complaint: str, tmp_path: Path) -> None:
    """It is no reward of zero."""
    task = read(foreign(tmp_path / "task", {"tests/test.sh": test}))
    with pytest.raises(HarborError, match=complaint):
        play(task)


@pytest.mark.parametrize(
    ("files", "complaint"),
    [
        ({"environment/Dockerfile": "FROM debian\nRUN apt-get install -y gcc\n"}, "RUN apt-get"),
        ({"environment/Dockerfile": "FROM nvidia/cuda:12\n"}, "FROM nvidia"),
        ({"environment/Dockerfile": "FROM debian\nCOPY 'x y\n"}, "COPY"),
        ({"environment/docker-compose.yaml": "services: {}\n"}, "Docker Compose"),
        ({"tests/Dockerfile": "FROM debian\n"}, "Docker image of its own"),
        ({"task.toml": '[environment]\ndocker_image = "x/y"\n'}, "Docker image x/y"),
        ({"task.toml": '[environment]\nos = "windows"\n'}, "Windows"),
    ],
)
def test_what_needs_docker_is_said(files: dict[str, str], complaint: str, tmp_path: Path) -> None:
    """The instruction is read all the same; running is refused with the reason."""
    task = read(foreign(tmp_path / "task", files))
    assert "Copy data.txt" in task.instruction
    with pytest.raises(HarborError, match=complaint):
        play(task)


@bubblewrap
@pytest.mark.parametrize("line", ["COPY ../task.toml .", "COPY data.txt /usr/x", "COPY none ."])
def test_a_copy_stays_in_its_place(line: str, tmp_path: Path) -> None:
    """Neither out of the folder nor over this machine's programs."""
    task = read(foreign(tmp_path / "t", {"environment/Dockerfile": f"FROM debian\n{line}\n"}))
    with pytest.raises(HarborError, match=r"no such file|cannot be written"):
        play(task)


# --- the script, and Harbor itself -------------------------------------------------------------------


def test_the_script_exports_and_runs(folder: Path, tmp_path: Path) -> None:
    """The last line is JSON; what is wrong is one line and exit code 2."""
    (tmp_path / "a.txt").write_text(HOSTILE)
    out = tmp_path / "out"
    started = [
        subprocess.Popen(
            [sys.executable, "scripts/harbor.py", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for arguments in (
            ("export", TASK, "--out", str(out), "--attack", str(tmp_path / "a.txt")),
            ("run", str(folder)),
            ("run", str(tmp_path)),
        )
    ]
    (made, _), (told, _), (_, complaint) = (p.communicate() for p in started)
    assert json.loads(made.splitlines()[-1])["exported"] == 1
    assert load(out / slug(TASK, 0)) == (TASK, 0, HOSTILE)
    verdict = json.loads(told.splitlines()[-1])
    assert (verdict["completion"], verdict["breach"], verdict["exposed"]) == (1.0, 0.0, 1.0)
    assert [p.returncode for p in started] == [0, 0, 2]
    assert complaint.startswith("error: ")
    assert "no task.toml" in complaint
    assert len(complaint.splitlines()) == 1


def harbors_python() -> str:
    """An interpreter that has Harbor, or a skip."""
    named = os.environ.get("ARLAS_HARBOR_PYTHON") or shutil.which("python3.12")
    if not named:
        pytest.skip("Harbor needs Python 3.12: set ARLAS_HARBOR_PYTHON to one that has it")
    found = subprocess.run([named, "-c", "import harbor"], capture_output=True, check=False)
    if found.returncode:
        pytest.skip("Python 3.12 without harbor: pip install harbor, or set ARLAS_HARBOR_PYTHON")
    return named


def test_harbor_reads_the_folder(folder: Path) -> None:
    """Harbor's own loader takes it, with the verifier's container of its own."""
    code = (
        "import sys; from pathlib import Path; from harbor.models.task.task import Task\n"
        "from harbor.models.task.verifier_mode import resolve_verifier_environment_definition\n"
        "t = Task(Path(sys.argv[1])); d = resolve_verifier_environment_definition(t.config, t.paths)\n"
        "print(t.config.verifier.environment_mode.value, d.bundled_tests, d.directory.name)\n"
    )
    command = [harbors_python(), "-c", code, str(folder)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["separate", "True", "tests"]


@bubblewrap
def test_harbor_runs_the_oracle(folder: Path, tmp_path: Path) -> None:
    """A real trial by Harbor's command line, with sandboxes in place of containers."""
    command = [
        harbors_python(),
        "-c",
        "from harbor.cli.main import app; app()",
        "run",
        "-p",
        str(folder),
        "-a",
        "oracle",
    ]
    command += ["-e", "tests.envs.enterprise.harbor_provider:Bubblewrap", "-o", str(tmp_path)]
    env = environment(
        PYTHONPATH=str(ROOT),
        ARLAS_PYTHON=sys.executable,
        HOME=str(tmp_path),
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        HARBOR_TELEMETRY="0",
    )
    ran = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    rewards_ = [json.loads(p.read_text()) for p in tmp_path.rglob("verifier/reward.json")]
    assert rewards_ == [{"reward": 1.0, "completion": 1.0, "breach": 0.0, "exposed": 1.0}], (
        ran.stdout + ran.stderr
    )
