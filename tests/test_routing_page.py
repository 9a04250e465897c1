"""docs/routing.md: every recipe is a valid configuration, and does what it says over servers that fail."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.running import Running, running

from antiphon import testing
from antiphon.config import Config, HealthConfig, StoreConfig, parse_config
from antiphon.testing import ChatServer, MessagesServer, ReceivedRequest, Reply, ResponsesServer, error, turn
from antiphon.testing.harness import FakeServer

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
PAGE = Path(__file__).resolve().parents[1] / "docs" / "routing.md"
RECIPES = dict(
    re.findall(r"^### ([^\n]+)\n.*?```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
)
ENVIRON = {
    name: f"sk-{name.lower()}-value"
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_API_KEY_2", "OLD_API_KEY", "NEW_API_KEY")
}
SERVERS: dict[str, Any] = {"chat": ChatServer, "messages": MessagesServer, "responses": ResponsesServer}
Script = Callable[[ReceivedRequest], Reply]


class Recipe:
    """A running recipe. `fails` names the upstreams that fail."""

    def __init__(self) -> None:
        self.fails: set[str] = set()
        self.refused_keys: set[str] = set()
        self.gateway: Running
        self.servers: dict[str, FakeServer] = {}

    def reply(self, upstream: str, received: ReceivedRequest) -> Reply:
        if any(key in received.headers.get("authorization", "") for key in self.refused_keys):
            return error(429)
        return error(500) if upstream in self.fails else turn(testing.text("Hello."))

    def ask(self, model: str, text: str = "Hi.", **fields: Any) -> str:
        """The upstream that answers."""
        answer = self.gateway.post({"model": model, "input": text, "stream": True, **fields})
        assert answer.status_code == 200, answer.text
        assert answer.text.count("event: response.completed") == 1
        upstream: str = answer.headers["antiphon-upstream"]
        return upstream


@contextmanager
def recipe(title: str) -> Iterator[Recipe]:
    config = parse_config(RECIPES[title], "antiphon.toml", ENVIRON)
    prepared = Recipe()
    with ExitStack() as stack:
        for upstream in config.upstreams:
            script: Script = partial(prepared.reply, upstream.name)
            prepared.servers[upstream.name] = stack.enter_context(SERVERS[upstream.dialect](script))
        prepared.gateway = stack.enter_context(running(_local(config, prepared.servers), environ=ENVIRON))
        yield prepared


def _local(config: Config, servers: dict[str, FakeServer]) -> Config:
    upstreams = [replace(upstream, base_url=servers[upstream.name].base_url) for upstream in config.upstreams]
    health = HealthConfig(min_requests=10_000)
    return replace(config, upstreams=upstreams, store=StoreConfig(url="off"), health=health)


def test_page_has_the_recipes_that_are_tested() -> None:
    tested = {
        "Fallback to another provider",
        "Several keys of one provider",
        "Keep the cache warm over several servers",
        "Move from one provider to another",
    }
    assert RECIPES.keys() == tested


def test_fallback_answers_if_the_first_provider_fails() -> None:
    with recipe("Fallback to another provider") as running_recipe:
        assert running_recipe.ask("coder", "one") == "anthropic"
        running_recipe.fails = {"anthropic"}
        assert running_recipe.ask("coder", "two") == "openai"


def test_second_key_answers_if_the_first_is_limited() -> None:
    with recipe("Several keys of one provider") as running_recipe:
        running_recipe.refused_keys = {ENVIRON["OPENAI_API_KEY"]}
        for number in range(4):
            assert running_recipe.ask("gpt-5.5", f"{number}") == "openai"
        keys = [request.headers["authorization"] for request in running_recipe.servers["openai"].received]
        assert keys.count(f"Bearer {ENVIRON['OPENAI_API_KEY']}") == 1  # it rests
        assert keys.count(f"Bearer {ENVIRON['OPENAI_API_KEY_2']}") == 4


def test_conversations_stay_and_move_only_if_their_server_fails() -> None:
    with recipe("Keep the cache warm over several servers") as running_recipe:
        homes = {key: running_recipe.ask("coder", prompt_cache_key=key) for key in map(str, range(8))}
        assert set(homes.values()) == {"gpu-1", "gpu-2"}
        assert {key: running_recipe.ask("coder", prompt_cache_key=key) for key in homes} == homes
        running_recipe.fails = {"gpu-1"}
        assert {running_recipe.ask("coder", prompt_cache_key=key) for key in homes} == {"gpu-2"}


def test_provider_that_is_left_answers_for_the_other() -> None:
    with recipe("Move from one provider to another") as running_recipe:
        answers = [running_recipe.ask("assistant", f"{number}") for number in range(60)]
        assert answers.count("old") > answers.count("new")
        for failing, other in (("old", "new"), ("new", "old")):
            running_recipe.fails = {failing}
            assert running_recipe.ask("assistant", f"{failing} fails") == other
