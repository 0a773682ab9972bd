"""The matrix world: what it shows, what it accepts, how it judges."""

import asyncio

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

from arlas.policies.tiny import WORDS
from envs.base import UnknownTaskError
from envs.matrix import MatrixConfig, MatrixEnv, find_game
from envs.matrix.games import task_names


async def play(task, attack, action, **config):
    """One episode through the pool, as the game plays it; attack None plants nothing."""
    kind, _, words = task.partition("-")
    worlds = MatrixConfig(game=kind, words=int(words) if words else None, **config).open()
    world = await worlds.acquire()
    start = await world.reset(task, 0, {})
    seen = start.observation if attack is None else await world.plant(attack)
    step = await world.step(action)
    await world.close()
    await worlds.close()
    return start, seen, step


@pytest.mark.parametrize("attack", ["left", "middle", "right"])
@pytest.mark.parametrize("guard", ["left", "middle", "right"])
async def test_hidden_breaches_exactly_when_the_attacked_door_is_open(attack, guard):
    """Hidden: breach unless the attacked door is guarded, and the attack counts as exposed."""
    start, seen, step = await play("hidden", attack, guard)
    assert step.done
    assert (step.verdict.breach, step.verdict.completion) == (
        (0.0, 1.0) if attack == guard else (1.0, 0.0)
    )
    assert step.verdict.exposed
    assert seen == start.observation, "the agent must not see the attacker's word"


@pytest.mark.parametrize("task", ["observed", "observed-2", "observed-6"])
async def test_observed_has_exactly_one_right_answer_a_word(task):
    """Observed: one reply of all parries each word, no two words share it, and the word is shown."""
    words = find_game(task).words
    answers = []
    for attack in words:
        right = []
        for reply in words:
            _, seen, step = await play(task, attack, reply)
            assert seen.text == attack
            assert step.verdict.completion + step.verdict.breach == 1.0
            right += [reply] * int(step.verdict.completion)
        assert len(right) == 1
        answers += right
    assert sorted(answers) == sorted(words)
    assert all(a != w for a, w in zip(answers, words, strict=True)), "an echo must not win"


@pytest.mark.parametrize("task", ["hidden", "observed"])
@pytest.mark.parametrize(
    "attack", [None, "", "banana", "left right", "red green", "word", "\x1b[31mred"]
)
async def test_without_a_valid_word_there_is_no_attack(task, attack):
    """Any valid reply wins, nothing is exposed, and the hostile text does not reach the observation."""
    word = find_game(task).words[0]
    start, seen, step = await play(task, attack, word)
    assert seen == start.observation
    assert (step.verdict.completion, step.verdict.breach) == (1.0, 0.0)
    assert not step.verdict.exposed


@pytest.mark.parametrize(
    "reply", ["", "banana", "left left", "guard()", "guard('x')", "__import__"]
)
async def test_a_malformed_reply_guards_nothing(reply):
    """A malformed reply loses to an attack, fails without one, and is told why; it never raises."""
    for task, attack in (("hidden", "left"), ("observed", "red")):
        _, _, attacked = await play(task, attack, reply)
        assert (attacked.verdict.completion, attacked.verdict.breach) == (0.0, 1.0)
        _, _, alone = await play(task, None, reply)
        assert (alone.verdict.completion, alone.verdict.breach) == (0.0, 0.0)
        assert attacked.error
        assert attacked.done
        assert alone.done


@pytest.mark.parametrize("form", ["left", " Left\n", 'guard("left")', "guard(word='LEFT')"])
async def test_the_word_may_be_bare_or_a_tool_call(form):
    """A one-token reply and a tool call say the same."""
    _, _, step = await play("hidden", "left", form)
    assert step.verdict.completion == 1.0
    assert step.error is None


async def test_values_make_breaches_unequal():
    """With values, an open door costs its own value."""
    for attack, value in zip(("left", "middle", "right"), (1.0, 0.5, 0.25), strict=True):
        reply = "middle" if attack == "left" else "left"
        _, _, step = await play("hidden", attack, reply, values=[1.0, 0.5, 0.25])
        assert step.verdict.breach == value


async def test_a_used_environment_forgets_the_last_attack():
    """Handles are given back and reused, but an attack never survives a reset; a full pool waits."""
    worlds = MatrixConfig(game="observed", capacity=1).open()
    world = await worlds.acquire()
    start = await world.reset("observed", 0, {})
    await world.plant("red")
    waiting = asyncio.create_task(worlds.acquire())
    await asyncio.sleep(0)
    assert not waiting.done()
    await world.close()
    again = await waiting
    assert (await again.reset("observed", 1, {})).observation == start.observation
    assert not (await again.step("red")).verdict.exposed
    await again.close()
    await worlds.close()


def test_it_is_a_registered_gymnasium_environment():
    """gymnasium's own checker accepts it, and an episode cannot be continued after its end."""
    env = gymnasium.make("arlas/Matrix-v0", task="observed")
    check_env(env.unwrapped, skip_render_check=True)
    env.reset(seed=3)
    env.step("red")
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.unwrapped.step("red")


def test_prompts_are_made_of_the_tiny_vocabulary():
    """The tiny model of words has one token for every move and for every word of the goals."""
    for name in task_names():
        game = find_game(name)
        assert set(game.goal.split()) | set(game.words) <= set(WORDS)


def test_unknown_tasks_and_bad_values_are_refused_when_the_config_is_built():
    """The message names what there is, before any work is done."""
    for bad in (
        {"game": "visible"},
        {"game": "observed", "words": 7},
        {"game": "hidden", "words": 1},
    ):
        with pytest.raises(UnknownTaskError, match=r"hidden|words"):
            MatrixConfig(**bad)
    for values in ([1.0], [1.0, 2.0, 0.5], [0.0, 1.0, 1.0]):
        with pytest.raises(ValueError, match="values must be 3"):
            MatrixConfig(game="hidden", values=values)
    with pytest.raises(ValueError, match="capacity"):
        MatrixConfig(capacity=0)
    with pytest.raises(UnknownTaskError, match="no matrix task 'click-button'"):
        MatrixEnv().reset(options={"task": "click-button"})


def test_every_task_name_is_a_game_and_the_split_names_it():
    """`task_names` lists what `find_game` knows; the config's split holds its one task, for training."""
    for name in task_names():
        assert find_game(name).name == name
    split = MatrixConfig(game="observed", words=6).tasks()
    assert split.train == ("observed-6",)
    assert split.eval == ()


def test_the_yaml_builds_the_config():
    """conf/env/matrix.yaml holds the defaults of the class, so that the two cannot drift apart."""
    from hydra.utils import instantiate
    from omegaconf import OmegaConf

    assert instantiate(OmegaConf.load("conf/env/matrix.yaml").env) == MatrixConfig()


def test_only_the_last_word_may_be_the_move() -> None:
    """With last_word what stands before it is thought, in both seats; without it such a text is no move."""
    for last_word, completion in ((True, 1.0), (False, 0.0)):
        env = MatrixEnv("observed", last_word=last_word)
        env.reset()
        seen = env.plant("yes no red")
        assert seen.text == ("red" if last_word else "")
        *_, info = env.step("the answer is green")
        assert info["verdict"].completion == completion
        env.reset()
        assert env.plant("  ").text == ""
    pool = MatrixConfig("observed", last_word=True).open()
    assert pool.capacity == 256
