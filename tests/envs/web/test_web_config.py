"""The config of the web world: what is refused before anything starts."""

from __future__ import annotations

import inspect
from pathlib import Path

import browsergym.core.action.functions as stock
import pytest
import yaml
from hydra.utils import instantiate

from envs.base import UnknownTaskError, WorldError
from envs.web import WebConfig
from envs.web.tasks import PROFILES, miniwob_tasks
from envs.web.tools import TOOLS

ROOT = Path(__file__).resolve().parents[3]


def test_all_registered_tasks_are_split_without_overlap() -> None:
    """Every BrowserGym MiniWoB task and every profile task is in exactly one half, by seed alone."""
    split = WebConfig(eval_share=0.2).tasks()
    assert len(miniwob_tasks()) == 125
    assert sorted((*split.train, *split.eval)) == sorted((*miniwob_tasks(), *PROFILES))
    assert len(split.eval) == round(0.2 * (125 + len(PROFILES)))
    assert WebConfig(eval_share=0.2).tasks() == split
    assert WebConfig(split_seed=1).tasks() != split
    assert not set(PROFILES) & set(WebConfig(profile_tasks=False).tasks().train)


def test_given_lists_are_kept_and_checked() -> None:
    """An explicit list is taken as it is, the other half is the rest of the pool, overlaps are refused."""
    pool = ["miniwob.click-test", "miniwob.enter-text", "miniwob.click-tab"]
    split = WebConfig(pool=pool, eval=["miniwob.click-tab"]).tasks()
    assert split.train == ("miniwob.click-test", "miniwob.enter-text")
    with pytest.raises(ValueError, match=r"both.*click-tab"):
        WebConfig(train=["miniwob.click-tab"], eval=["miniwob.click-tab"]).tasks()
    with pytest.raises(ValueError, match=r"both.*click-tab"):
        WebConfig(train=["page.miniwob.click-tab"], eval=["miniwob.click-tab"]).tasks()
    with pytest.raises(ValueError, match=r"both.*enter-name"):
        WebConfig(train=["profile.enter-name"], eval=["page.profile.enter-name"]).tasks()
    with pytest.raises(ValueError, match="list of task names"):
        WebConfig(pool="miniwob.click-tab").tasks()
    with pytest.raises(UnknownTaskError, match=r"'page.miniwob.click-tub'"):
        WebConfig(train=["page.miniwob.click-tub"]).tasks()


@pytest.mark.parametrize("where", ["pool", "train", "eval"])
def test_unknown_tasks_are_named_with_what_comes_close(where: str) -> None:
    """A typing error is found before a browser starts, and the message says what was meant."""
    with pytest.raises(
        UnknownTaskError, match=r"'click-tst'.*'miniwob.enter-txt'.*miniwob.enter-text"
    ):
        WebConfig(**{where: ["click-tst", "miniwob.enter-txt"]}).tasks()
    with pytest.raises(UnknownTaskError, match=r"did you mean miniwob.click-test\?"):
        WebConfig(**{where: ["click-test"]}).tasks()


def test_a_missing_chromium_is_told_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """`open` says what to install, and a wrong path is named; nothing has started yet."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("ARLAS_CHROMIUM", raising=False)
    with pytest.raises(WorldError, match="apt-get install chromium-headless-shell"):
        WebConfig().open()
    with pytest.raises(WorldError, match=r"env\.chromium=/no/such/browser"):
        WebConfig(chromium="/no/such/browser").open()
    monkeypatch.setenv("ARLAS_CHROMIUM", str(tmp_path / "nothing"))
    with pytest.raises(WorldError, match="ARLAS_CHROMIUM="):
        WebConfig().open()


def test_bad_options_are_refused() -> None:
    """What cannot work dies when the config is built, with the key, and the choices if there are any."""
    with pytest.raises(ValueError, match=r"env\.tools.*goto.*there are: click"):
        WebConfig(tools=["click", "goto"])
    with pytest.raises(ValueError, match="after, before"):
        WebConfig(id_position="above")
    with pytest.raises(ValueError, match="start, end"):
        WebConfig(plant_at="foo")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools", []),
        ("workers", 0),
        ("slots", -1),
        ("call_timeout_s", 0.0),
        ("call_timeout_s", float("nan")),
        ("start_timeout_s", -2.0),
        ("settle_ms", -1),
    ],
)
def test_numbers_that_cannot_work_are_refused(key: str, value: object) -> None:
    """Like bad options: before anything starts, with the key in the message."""
    with pytest.raises(ValueError, match=rf"env\.{key}"):
        WebConfig(**{key: value})  # type: ignore[arg-type]


def test_the_yaml_builds_the_defaults() -> None:
    """conf/env/web.yaml names every field of the config, with its default."""
    config = instantiate(yaml.safe_load((ROOT / "conf/env/web.yaml").read_text()))
    assert config == WebConfig()


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_tools_have_browsergyms_names_and_parameters(name: str) -> None:
    """Each tool is BrowserGym's of that name, or its first parameters: what it requires, ours does too."""
    theirs = list(inspect.signature(getattr(stock, name)).parameters.values())
    ours = TOOLS[name].params
    assert [p.name for p in ours] == [p.name for p in theirs[: len(ours)]]
    assert all(p.default is not inspect.Parameter.empty for p in theirs[len(ours) :])
    kinds = {str: "str", float: "float", int: "int"}
    for mine, other in zip(ours, theirs, strict=False):
        assert mine.required == (other.default is inspect.Parameter.empty)
        assert mine.type == kinds.get(other.annotation, "any")


def test_no_tool_leaves_the_page_or_runs_code() -> None:
    """Navigation, files, new tabs and chat are no tools of this world."""
    assert not {"goto", "new_tab", "upload_file", "mouse_upload_file", "send_msg_to_user"} & set(
        TOOLS
    )
