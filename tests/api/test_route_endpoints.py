"""Routing through a gateway: plans, health, callers' words, stickiness, losses, keys and special targets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.gateway.in_background import BACKGROUND_TIMINGS
from tests.running import Running, running, until
from tests.websocket_client import open_websocket

from antiphon import testing
from antiphon.config import (
    Config,
    HealthConfig,
    ModelConfig,
    RetryConfig,
    StoreConfig,
    TargetConfig,
    UpstreamConfig,
    parse_config,
)
from antiphon.gateway.worker_pool import LARGE_INPUT
from antiphon.testing import (
    ChatServer,
    Gate,
    GeminiServer,
    MessagesServer,
    ReceivedRequest,
    Reply,
    ResponsesServer,
    end,
    error,
    exactly,
    refusal,
    turn,
)
from antiphon.testing.harness import FakeServer
from antiphon.testing.messages.errors import error_event

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]
BODY = {"model": "m", "input": "Hi."}
Script = Callable[[ReceivedRequest], Reply]


class Lab:
    """A gateway with the upstreams `a` and `b`; `m` is asked of `a` first."""

    def __init__(self, gateway: Running, servers: dict[str, FakeServer]) -> None:
        self.gateway = gateway
        self.servers = servers

    def ask(self, path: str = "/v1/responses", headers: dict[str, str] | None = None, **fields: Any) -> Any:
        return self.gateway.post({**BODY, **fields}, path, **(headers or {}))

    def upstream_of(self, **fields: Any) -> str:
        answer = self.ask(**fields)
        assert answer.status_code == 200, answer.text
        upstream: str = answer.headers["antiphon-upstream"]
        return upstream

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(len(server.received) for server in self.servers.values())


def says(text: str, **usage: int) -> Reply:
    return turn(testing.text(text), testing.usage(usage.get("prompt", 5), 2))


@contextmanager
def lab_with(
    a: Reply | Script,
    b: Reply | Script,
    *,
    kinds: tuple[Any, Any] = (ChatServer, ChatServer),
    targets: tuple[TargetConfig, ...] = (
        TargetConfig(upstream="a", model="x"),
        TargetConfig(upstream="b", model="y", priority=2),
    ),
    health: HealthConfig = HealthConfig(),  # noqa: B008
    store: str = "off",
    keys: list[str] | None = None,
    environ: dict[str, str] | None = None,
    upstream_settings: dict[str, Any] | None = None,
    contexts: dict[str, int] | None = None,
    **model: Any,
) -> Iterator[Lab]:
    dialects = {ChatServer: "chat", MessagesServer: "messages", ResponsesServer: "responses"}
    with ExitStack() as stack:
        scripts = {"a": a, "b": b}
        servers: dict[str, FakeServer] = {}
        for kind, (name, reply) in zip(kinds, scripts.items(), strict=True):
            script: Any = reply if callable(reply) else (lambda _, reply=reply: reply)
            servers[name] = stack.enter_context(kind(script))
        upstreams = [
            UpstreamConfig(
                name=name,
                dialect=dialects[kind],  # type: ignore[arg-type]
                base_url=servers[name].base_url,
                models=[f"{name}-only"],
                api_key_env=keys,
                context=(contexts or {}).get(name),
                **(upstream_settings or {}),
            )
            for kind, name in zip(kinds, servers, strict=True)
        ]
        config = Config(
            upstreams=upstreams,
            models=[ModelConfig(name="m", targets=[*targets], **model)],
            health=health,
            store=StoreConfig(url=store),
        )
        yield Lab(stack.enter_context(running(config, environ=environ)), servers)


# Plans and health


def test_plan_is_shown_without_asking_anybody() -> None:
    with lab_with(says("A"), says("B"), kinds=(MessagesServer, ChatServer)) as lab:
        plan = lab.ask("/v1/route", top_logprobs=2).json()
        assert [target["upstream"] for target in plan["targets"]] == ["a", "b"]
        assert [loss["path"] for loss in plan["targets"][0]["losses"]] == ["top_logprobs"]
        chat = lab.gateway.post(
            {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}, "/v1/route?dialect=chat"
        )
        assert [target["model"] for target in chat.json()["targets"]] == ["x", "y"]
        gemini = lab.gateway.post(
            {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}, "/v1/route?dialect=gemini&model=m"
        )
        assert gemini.json()["model"] == "m"
        assert lab.ask("/v1/route", model="unknown").status_code == 404
        assert lab.counts == (0, 0)
        assert all("model" not in line for line in lab.gateway.requests(4))  # it is not counted as a turn


def test_failing_target_rests_and_returns_after_a_trial() -> None:
    replies: list[Reply] = [error(500)] * 2
    health = HealthConfig(min_requests=2, rest=0.5)
    with lab_with(lambda _: replies.pop() if replies else says("A"), says("B"), health=health) as lab:
        assert [lab.upstream_of(input=f"{number}") for number in range(3)] == ["b", "b", "b"]
        assert lab.counts == (2, 3)  # the third turn did not ask it
        listed = {row["upstream"]: row for row in lab.gateway.get("/v1/upstreams").json()["data"]}
        assert (listed["a"]["health"], listed["a"]["failures"], listed["b"]["health"]) == ("resting", 2, "healthy")
        metrics = lab.gateway.get("/metrics").text
        assert 'antiphon_resting_targets{upstream="a"} 1' in metrics
        assert 'antiphon_attempts_total{upstream="a",outcome="server"} 2' in metrics
        assert 'antiphon_attempts_total{upstream="b",outcome="answered"} 3' in metrics
        inputs = map("new {}".format, range(10_000))  # a known conversation would stay where it was answered
        until(lambda: lab.upstream_of(input=next(inputs)) == "a")


def test_lone_target_is_not_shown_as_resting() -> None:
    with lab_with(error(500), says("B"), health=HealthConfig(min_requests=1)) as lab:
        assert [lab.ask(model="a-only").status_code for _ in range(3)] == [502, 502, 502]
        [row] = lab.gateway.get("/v1/upstreams").json()["data"]
        assert (row["health"], row["rest_seconds"], row["failures"]) == ("healthy", 0.0, 3)
        assert 'antiphon_resting_targets{upstream="a"} 0' in lab.gateway.get("/metrics").text


def test_active_check_wakes_a_resting_target() -> None:
    health = HealthConfig(min_requests=1, rest=3600.0, check_interval=0.05)
    replies: list[Reply] = [error(500)]
    with lab_with(lambda _: replies.pop() if replies else says("A"), says("B"), health=health) as lab:
        assert lab.upstream_of() == "b"
        inputs = map("new {}".format, range(10_000))  # a known conversation would stay where it was answered
        until(lambda: lab.upstream_of(input=next(inputs)) == "a")


def test_attempts_of_a_request_share_its_id() -> None:
    with lab_with(error(500), says("B")) as lab:
        answer = lab.ask()
        id = answer.headers["x-request-id"]
        until(lambda: id in lab.gateway.written)
        lines = [line for line in lab.gateway.log if line.get("request_id") == id]
        assert [line["event"] for line in lines] == ["attempt_failed", "request"]
        assert (lines[0]["upstream"], lines[0]["kind"], lines[0]["code"]) == ("a", "server", "upstream_error")
        assert (lines[1]["upstream"], lines[1]["attempts"]) == ("b", 2)


# Keys


def test_refused_key_is_replaced_and_rests() -> None:
    def script(received: ReceivedRequest) -> Reply:
        is_valid = received.headers["authorization"] == "Bearer sk-two-is-valid"
        return says("A") if is_valid else error(401)

    environ = {"ONE": "sk-one-is-invalid", "TWO": "sk-two-is-valid"}
    with lab_with(script, says("B"), keys=["ONE", "TWO"], environ=environ) as lab:
        assert [lab.upstream_of() for _ in range(3)] == ["a", "a", "a"]
        assert lab.counts == (4, 0)


def test_gateway_without_a_valid_key_says_so() -> None:
    environ = {"ONE": "sk-one-is-invalid", "TWO": "sk-two-is-invalid"}
    with lab_with(error(401), error(403), keys=["ONE", "TWO"], environ=environ) as lab:
        answer = lab.ask()
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_credentials_exhausted")
        assert "sk-" not in answer.text
        assert lab.counts == (2, 2)


def test_target_that_closes_before_a_head_is_repeated_only_if_no_other_is_left() -> None:
    with lab_with(exactly(end("rst")), error(500)) as lab:
        assert lab.ask().status_code == 502
        assert lab.counts == (1, 2)
    with lab_with(exactly(end("rst")), exactly(end("fin"))) as lab:
        assert lab.ask().json()["error"]["code"] == "upstream_disconnected"
        assert lab.counts == (2, 2)


@pytest.mark.parametrize(
    "headers",
    [
        {"retry-after": "60"},
        {"retry-after-ms": "60000"},
        {"date": "Wed, 18 Nov 2026 05:00:00 GMT", "retry-after": "Wed, 18 Nov 2026 05:01:00 GMT"},
    ],
    ids=["seconds", "milliseconds", "date"],
)
def test_limited_target_is_replaced_for_as_long_as_it_asks(headers: dict[str, str]) -> None:
    with lab_with(error(429, headers=headers), says("B")) as lab:
        assert [lab.upstream_of(input=f"{number}") for number in range(3)] == ["b", "b", "b"]
        assert lab.counts == (1, 3)
        limited = lab.gateway.get("/v1/upstreams").json()["data"][0]
        assert (limited["health"], 50.0 < limited["rest_seconds"] <= 60.0) == ("resting", True)


# Faults of requests


@pytest.mark.parametrize("status", [400, 404, 422])
def test_refused_request_is_asked_of_no_other(status: int) -> None:
    with lab_with(error(status), says("B")) as lab:
        assert lab.ask().status_code in (400, 404)
        assert lab.counts == (1, 0)


LONG = TargetConfig(upstream="b", model="long")


@pytest.mark.parametrize("stream", [True, False])
def test_too_long_request_is_asked_of_its_own_target(stream: bool) -> None:
    too_long = error(400, "maximum context length exceeded", code="context_length_exceeded")
    only_a = (TargetConfig(upstream="a", model="x"),)
    with lab_with(too_long, says("B"), targets=only_a, on_context_length=[LONG]) as lab:
        assert lab.ask(stream=stream).status_code == 200
        assert lab.servers["b"].received[0].json["model"] == "long"


@pytest.mark.parametrize("stream", [True, False])
def test_refusal_of_the_model_is_asked_of_its_own_target(stream: bool) -> None:
    only_a = (TargetConfig(upstream="a", model="x"),)
    with lab_with(turn(refusal("I can", "not.")), says("Sure."), targets=only_a, on_refusal=[LONG]) as lab:
        answer = lab.ask(stream=stream)
        assert "Sure." in answer.text
        assert "cannot" not in answer.text
        assert lab.counts == (1, 1)


def test_refusal_of_the_last_target_reaches_the_client() -> None:
    only_a = (TargetConfig(upstream="a", model="x"),)
    with lab_with(turn(refusal("No.")), turn(refusal("Never.")), targets=only_a, on_refusal=[LONG]) as lab:
        assert "Never." in lab.ask(stream=True).text


# Total failures


def test_total_failure_after_the_head_is_an_event() -> None:
    """The head went out while the first target was silent."""
    slow = turn(testing.pause(0.3), end("rst"))
    with ExitStack() as stack:
        servers = [stack.enter_context(ChatServer(lambda _: slow)) for _ in range(2)]
        upstreams = [
            UpstreamConfig(name=f"u{number}", dialect="chat", base_url=server.base_url, models=["m"])
            for number, server in enumerate(servers)
        ]
        config = Config(upstreams=upstreams, retry=RetryConfig(rounds=1))
        gateway = stack.enter_context(running(config, first_byte_timeout=0.05))
        answer = gateway.post({**BODY, "stream": True})
        assert answer.status_code == 200
        assert answer.text.count("event: response.created") == answer.text.count("event: response.failed") == 1
        assert "antiphon-upstream" not in answer.headers
        assert [len(server.received) for server in servers] == [1, 1]


def test_total_failure_before_the_head_has_a_status() -> None:
    with lab_with(error(500), error(500), retry=RetryConfig(rounds=1)) as lab:
        answer = lab.ask(stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "upstream_error")
        assert answer.headers["antiphon-attempts"] == "2"


def test_total_failure_names_no_upstream_that_was_skipped() -> None:
    kinds, retry = (ChatServer, MessagesServer), RetryConfig(rounds=1)
    with lab_with(error(500), says("B"), kinds=kinds, retry=retry) as lab:
        answer = lab.ask(top_logprobs=2, headers={"antiphon_losses": "strict"})
        assert (answer.status_code, answer.headers["antiphon-upstream"]) == (502, "a")
        assert [line["upstream"] for line in lab.gateway.requests(1)] == ["a"]
        assert lab.counts == (1, 0)


def test_refused_target_costs_little() -> None:
    """A refused connection adds at most 5 ms; the best of many turns, because other processes share the machine."""
    health = HealthConfig(min_requests=10_000)
    with lab_with(says("A"), says("B"), health=health) as lab:
        lab.servers["a"].stop()
        for number in range(40):
            for model in ("m", "b-only"):
                assert lab.ask(model=model, input=f"{number}").headers["antiphon-upstream"] == "b"
        lines = lab.gateway.requests(80)
    best = {model: min(line["duration_ms"] for line in lines if line["model"] == model) for model in ("m", "b-only")}
    assert best["m"] - best["b-only"] < 5.0


# Stickiness

EITHER = (TargetConfig(upstream="a", model="x"), TargetConfig(upstream="b", model="y"))


def upstreams_of(lab: Lab, headers: dict[str, str] | None = None, **fields: Any) -> set[str]:
    """The upstreams that answer twelve turns, each of which begins with another text unless `input` is given."""
    bodies = [{**BODY, "input": f"Text {number}.", **fields} for number in range(12)]
    answers = [httpx2.post(f"{lab.gateway.url}/v1/responses", json=body, headers=headers) for body in bodies]
    return {answer.headers["antiphon-upstream"] for answer in answers}


@pytest.mark.parametrize(
    "header", ["x-claude-code-session-id", "session_id", "session-id", "x-session-affinity", "x-session-id"]
)
def test_session_of_an_agent_stays_with_the_target_that_answered(header: str) -> None:
    with lab_with(says("A"), says("B"), targets=EITHER) as lab:
        assert len(upstreams_of(lab, {header: "s1"})) == 1


@pytest.mark.parametrize("identify", [{"prompt_cache_key": "k"}, {"input": "Hi.", "instructions": "Be brief."}])
def test_conversation_stays_with_the_target_that_answered(identify: dict[str, Any]) -> None:
    with lab_with(says("A"), says("B"), targets=EITHER) as lab:
        assert len(upstreams_of(lab, **identify)) == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1beta/models/m:generateContent"])
def test_conversation_stays_from_its_first_turn_to_the_second(path: str) -> None:
    field = "contents" if "beta" in path else "messages"
    answer_role = "model" if "beta" in path else "assistant"

    def content(text: str) -> dict[str, Any]:
        return {"parts": [{"text": text}]} if "beta" in path else {"content": text}

    with lab_with(says("A"), says("B"), targets=EITHER) as lab:
        for number in range(6):
            first = [{"role": "user", **content(f"Text {number}.")}]
            second = [*first, {"role": answer_role, **content("A")}, {"role": "user", **content("And?")}]
            bodies = [{"model": "m", "max_tokens": 16, field: turns} for turns in (first, second)]
            answers = [lab.gateway.post(body, path) for body in bodies]
            assert len({answer.headers["antiphon-upstream"] for answer in answers}) == 1


def test_other_conversations_are_shared_by_the_targets() -> None:
    with lab_with(says("A"), says("B"), targets=EITHER) as lab:
        assert upstreams_of(lab, {"x-client-request-id": "r1"}) == {"a", "b"}


def test_order_of_the_caller_comes_before_stickiness() -> None:
    with lab_with(says("A"), says("B"), targets=EITHER) as lab:
        for name in ("a", "b", "a"):
            assert upstreams_of(lab, {"session-id": "s1"}, provider={"order": [name]}) == {name}


def test_stored_chain_stays_with_its_target_in_every_replica(tmp_path: Path) -> None:
    """Two gateways on one store: what one answered, the other continues at the same target."""
    store = f"sqlite:///{tmp_path}/a.db"
    with lab_with(says("A"), says("B"), targets=EITHER, store=store) as lab:
        urls = {name: server.base_url for name, server in lab.servers.items()}
        upstreams = [
            UpstreamConfig(name=name, dialect="chat", base_url=url, models=[f"{name}-only"])
            for name, url in urls.items()
        ]
        entry = ModelConfig(name="m", targets=[*EITHER])
        config = Config(upstreams=upstreams, models=[entry], store=StoreConfig(url=store))
        conversation = lab.gateway.post({}, "/v1/conversations").json()["id"]
        with running(config) as replica:
            for turn_number in range(6):
                first = lab.ask(input=f"{turn_number}")
                again = replica.post({**BODY, "input": "And?", "previous_response_id": first.json()["id"]})
                assert again.headers["antiphon-upstream"] == first.headers["antiphon-upstream"]
                stored = replica.get(f"/v1/responses/{first.json()['id']}").json()
                assert "antiphon:target" not in stored
            first = lab.ask(conversation=conversation)
            for _ in range(6):
                again = replica.post({**BODY, "conversation": conversation})
                assert again.headers["antiphon-upstream"] == first.headers["antiphon-upstream"]


def test_conversation_moves_with_the_target_that_took_over() -> None:
    replies: list[Reply] = [error(500)]
    with lab_with(lambda _: replies.pop() if replies else says("A"), says("B")) as lab:
        assert [lab.upstream_of(prompt_cache_key="k") for _ in range(3)] == ["b", "b", "b"]
        assert lab.upstream_of(prompt_cache_key="other") == "a"


# Losses


def test_fewest_losses_are_preferred_and_strict_mode_excludes() -> None:
    targets = (TargetConfig(upstream="a", model="x"), TargetConfig(upstream="b", model="y"))
    kinds = (MessagesServer, ChatServer)
    with lab_with(says("A"), says("B"), kinds=kinds, targets=targets, prefer="fewest-losses") as lab:
        assert {lab.upstream_of(top_logprobs=2, input=f"{number}") for number in range(6)} == {"b"}
        answer = lab.ask(top_logprobs=2)
        assert "antiphon-losses" not in answer.headers
    with lab_with(says("A"), says("B"), kinds=kinds) as lab:
        answer = lab.ask(top_logprobs=2, headers={"antiphon_losses": "strict"})
        assert answer.headers["antiphon-upstream"] == "b"
        assert answer.headers["antiphon-attempts"] == "1"  # the first was not asked
        assert lab.counts == (0, 1)


def test_losses_of_a_failed_attempt_are_not_reported() -> None:
    with lab_with(testing.messages_error(500), says("B"), kinds=(MessagesServer, ChatServer)) as lab:
        for stream in (True, False):
            answer = lab.ask(top_logprobs=2, stream=stream)
            assert answer.headers["antiphon-upstream"] == "b"
            assert "antiphon-losses" not in answer.headers


def test_sealed_reasoning_is_asked_of_its_maker_and_lost_elsewhere() -> None:
    replies = [turn(testing.reasoning("I think."), testing.text("B")), says("B"), testing.messages_error(500)]
    with lab_with(says("A"), lambda _: replies.pop(0), kinds=(ChatServer, MessagesServer)) as lab:
        first = lab.ask(model="b-only", reasoning={"effort": "low"}, include=["reasoning.encrypted_content"]).json()
        history = [{"role": "user", "content": "Hi."}, *first["output"], {"role": "user", "content": "And?"}]
        assert lab.upstream_of(input=history) == "b"  # the second in priority
        [_, other] = lab.ask("/v1/route", input=history).json()["targets"]
        assert other["why"] == ["priority 1", "it cannot open the sealed reasoning of the conversation"]
        answer = lab.ask(input=history)
        assert (answer.headers["antiphon-upstream"], answer.headers["antiphon-losses"]) == ("a", "1; input[1]")
        assert b"I think." not in lab.servers["a"].received[0].body


def test_reasoning_of_a_responses_client_is_asked_of_a_responses_server() -> None:
    """Its content has no envelope: the client got it as the server sent it."""
    sealed = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAA"}
    history = [{"role": "user", "content": "Hi."}, sealed, {"role": "assistant", "content": "B"}]
    with lab_with(says("A"), says("B"), kinds=(ChatServer, ResponsesServer)) as lab:
        body: dict[str, Any] = {"input": [*history, {"role": "user", "content": "And?"}], "store": False}
        [_, other] = lab.ask("/v1/route", **body).json()["targets"]
        assert (other["upstream"], other["why"][1]) == ("a", "it cannot open the sealed reasoning of the conversation")
        assert lab.upstream_of(**body) == "b"
        assert b"gAAAAA" in lab.servers["b"].received[0].body


@pytest.mark.parametrize("way", ["previous_response_id", "conversation"])
def test_stored_reasoning_is_asked_of_its_maker(way: str, tmp_path: Path) -> None:
    replies = [turn(testing.reasoning("I think."), testing.text("B")), says("B")]
    kinds, store = (ChatServer, MessagesServer), f"sqlite:///{tmp_path}/a.db"
    with lab_with(says("A"), lambda _: replies.pop(0), kinds=kinds, store=store) as lab:
        conversation = lab.gateway.post({}, "/v1/conversations").json()["id"] if way == "conversation" else None
        reference = {"conversation": conversation} if conversation else {}
        first = lab.ask(provider={"only": ["b"]}, reasoning={"effort": "low"}, **reference)
        reference = reference or {way: first.json()["id"]}
        plan = lab.ask("/v1/route", **reference).json()["targets"]
        assert [target["upstream"] for target in plan] == ["b", "a"]
        assert plan[1]["why"] == ["priority 1", "it cannot open the sealed reasoning of the conversation"]
        assert lab.upstream_of(**reference) == "b"


def test_stored_conversation_that_is_too_long_is_asked_of_a_longer_context(tmp_path: Path) -> None:
    with lab_with(says("word " * 3000), says("B"), store=f"sqlite:///{tmp_path}/a.db", contexts={"a": 500}) as lab:
        first = lab.ask()
        assert first.headers["antiphon-upstream"] == "a"
        assert lab.upstream_of(previous_response_id=first.json()["id"]) == "b"
        assert lab.counts == (1, 1)


# Callers' words


def test_caller_orders_targets() -> None:
    with lab_with(says("A"), says("B")) as lab:
        assert lab.upstream_of(provider={"order": ["b"]}) == "b"
        assert lab.upstream_of(provider={"only": ["B"]}) == "b"
        assert lab.upstream_of(provider={"ignore": ["a"]}) == "b"
        assert lab.upstream_of(providerOptions={"gateway": {"order": ["b"]}}) == "b"
        assert "provider" not in lab.servers["b"].received[0].json
        answer = lab.ask(provider={"order": ["b", "unknown"], "zdr": True})
        assert answer.headers["antiphon-losses"] == "2; provider.zdr, provider.order"


TURNS: dict[str, Callable[[str], dict[str, Any]]] = {
    "/v1/responses": lambda text: {"input": text},
    "/v1/chat/completions": lambda text: {"messages": [{"role": "user", "content": text}]},
    "/v1/messages": lambda text: {"max_tokens": 16, "messages": [{"role": "user", "content": text}]},
    "/v1beta/models/m:generateContent": lambda text: {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    "/api/chat": lambda text: {"stream": False, "messages": [{"role": "user", "content": text}]},
    "/v1/vscode/chat": lambda text: {
        "stream": False,
        "messages": [{"role": 1, "content": [{"kind": "text", "value": text}]}],
    },
}


@pytest.mark.parametrize("path", TURNS)
def test_caller_orders_targets_in_every_dialect(path: str) -> None:
    with lab_with(says("A"), says("B")) as lab:
        for text in ("Hi.", "x" * (LARGE_INPUT + 1)):  # a large body is read in another process
            words = {"provider": {"order": ["b"]}}
            answer = lab.gateway.post({"model": "m", **TURNS[path](text), **words}, path)
            assert (answer.status_code, answer.headers["antiphon-upstream"]) == (200, "b"), answer.text[:500]
            assert "provider" not in answer.headers.get("antiphon-losses", "")
        assert all(b"provider" not in request.body for request in lab.servers["b"].received)


def test_caller_names_further_models() -> None:
    with lab_with(error(500), says("B")) as lab:
        chat = {"model": "a-only", "messages": [{"role": "user", "content": "Hi."}], "models": ["b-only"]}
        answer = lab.gateway.post(chat, "/v1/chat/completions")
        assert (answer.status_code, answer.headers["antiphon-upstream"]) == (200, "b")
        assert "models" not in lab.servers["a"].received[0].json
        assert lab.ask(model="a-only", fallbacks=["b-only"]).status_code == 200


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions", "/v1/messages"])
def test_caller_names_a_list_of_models_only(path: str) -> None:
    with lab_with(says("A"), says("B")) as lab:
        body = {**TURNS[path]("Hi."), "models": ["unknown", "b-only", "a-only"]}
        answer = lab.gateway.post(body, path)
        assert (answer.status_code, answer.headers["antiphon-upstream"]) == (200, "b"), answer.text
        assert answer.headers["antiphon-losses"] == "1; models[0]"


def test_caller_can_forbid_fallbacks() -> None:
    with lab_with(error(500), says("B")) as lab:
        assert lab.ask(provider={"allow_fallbacks": False}).status_code == 502
        assert lab.counts == (1, 0)
        assert lab.ask(provider={"order": ["a"], "allow_fallbacks": False}).status_code == 502
        assert lab.counts == (2, 0)


@pytest.mark.parametrize("provider", [{"only": ["a"]}, {"ignore": ["b"]}, {"allow_fallbacks": False}])
def test_target_for_long_requests_is_not_asked_against_the_words_of_the_caller(provider: dict[str, Any]) -> None:
    too_long = error(400, "maximum context length exceeded", code="context_length_exceeded")
    only_a = (TargetConfig(upstream="a", model="x"),)
    with lab_with(too_long, says("B"), targets=only_a, on_context_length=[LONG]) as lab:
        answer = lab.ask(provider=provider)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert lab.counts == (1, 0)


def test_caller_who_excludes_every_target_is_refused() -> None:
    with lab_with(says("A"), says("B")) as lab:
        for provider in ({"ignore": ["a", "b"]}, {"only": ["b"], "ignore": ["b"]}):
            for path in ("/v1/responses", "/v1/route", "/v1/responses/compact"):
                answer = lab.ask(path, provider=provider)
                assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found"), answer.text
                assert "'a', 'b'" in answer.json()["error"]["message"]
        assert lab.counts == (0, 0)


STRICT = {"antiphon_losses": "strict"}


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/responses/compact", "/v1/completions", "/v1/embeddings"])
def test_strict_mode_refuses_words_without_an_effect(path: str) -> None:
    with lab_with(says("A"), says("B")) as lab:
        for provider in ({"only": "b"}, {"order": ["b", "unknown"]}, {"zdr": True}, {"sort": "price"}):
            answer = lab.ask(path, STRICT, prompt="Hi.", provider=provider)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "lossy_translation"), answer.text
        assert lab.counts == (0, 0)
    with lab_with(says("A"), says("B"), upstream_settings={"losses": "strict"}) as lab:
        assert lab.ask(path, prompt="Hi.", provider={"zdr": True}).status_code == 400
        assert lab.counts == (0, 0)


def test_compaction_honours_words() -> None:
    with lab_with(says("A"), says("B")) as lab:
        path = "/v1/responses/compact"
        answer = lab.ask(path, provider={"only": ["b"], "zdr": True})
        assert (answer.status_code, answer.headers["antiphon-upstream"]) == (200, "b"), answer.text
        assert answer.headers["antiphon-losses"] == "1; provider.zdr"
        assert lab.ask(path, models=["unknown"]).headers["antiphon-losses"] == "1; models"


def test_parameters_can_be_required() -> None:
    with lab_with(says("A"), says("B"), kinds=(MessagesServer, ChatServer)) as lab:
        assert lab.upstream_of(top_logprobs=2, provider={"require_parameters": True}) == "b"


def test_words_for_a_router_behind_the_gateway_pass() -> None:
    with lab_with(says("A"), says("B")) as lab:
        provider = {"order": ["fireworks"]}
        chat = {"model": "a-only", "messages": [{"role": "user", "content": "Hi."}], "provider": provider}
        lab.gateway.post(chat, "/v1/chat/completions")
        assert lab.servers["a"].received[0].json["provider"] == provider


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/chat/completions"])
def test_words_without_names_pass_to_a_router_that_is_the_only_target(path: str) -> None:
    words = {"provider": {"data_collection": "deny", "zdr": True, "sort": "price"}}
    with lab_with(says("A"), says("B"), upstream_settings={"profile": "openrouter"}) as lab:
        answer = lab.gateway.post({"model": "a-only", **TURNS[path]("Hi."), **words}, path)
        assert "antiphon-losses" not in answer.headers
        assert lab.servers["a"].received[0].json["provider"] == words["provider"]
        answer = lab.gateway.post(
            {"model": "m", **TURNS[path]("Hi."), **words}, path
        )  # the gateway itself has a choice
        assert "provider.zdr" in answer.headers["antiphon-losses"]
        assert "provider" not in lab.servers["a"].received[1].json


def test_websocket_honours_words() -> None:
    with lab_with(says("A"), says("B")) as lab, open_websocket(lab.gateway.port, "/v1/responses") as socket:
        socket.send({"type": "response.create", **BODY, "provider": {"order": ["b"]}})
        until(lambda: socket.receive_json()["type"] == "response.completed")
        assert lab.counts == (0, 1)


def test_websocket_honours_the_session_of_an_agent() -> None:
    with lab_with(says("A"), says("B"), targets=EITHER) as lab:
        for number in range(8):
            with open_websocket(lab.gateway.port, "/v1/responses", ("session_id", "s1")) as socket:
                socket.send({"type": "response.create", **BODY, "input": f"{number}"})
                until(lambda: socket.receive_json()["type"] == "response.completed")
        assert sorted(lab.counts) == [0, 8]


# Usage


def test_usage_counts_the_tokens_of_failed_attempts_as_no_request(tmp_path: Path) -> None:
    """A Messages server reports the input tokens at the beginning, and bills them although it fails."""
    broken = turn(testing.text(""), testing.raw(error_event()), testing.usage(40, 0))
    store = f"sqlite:///{tmp_path}/a.db"
    with lab_with(broken, says("B", prompt=5), kinds=(MessagesServer, ChatServer), store=store) as lab:
        assert lab.ask(stream=True).status_code == 200

        def rows() -> dict[str, Any]:
            data = lab.gateway.get("/v1/usage?by=upstream").json()["data"]
            return {row["upstream"]: (row["requests"], row["input_tokens"]) for row in data}

        lab.gateway.services.logger.flush()
        until(lambda: rows().get("b") == (1, 5), 30)
        assert rows().get("a", (0, 0))[0] == 0


# Background responses are routed as others


def run_in_background(gateway: Running, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """The status of a background response, once it has ended."""
    answer = gateway.post({**BODY, "background": True, **fields}, **(headers or {}))
    assert answer.status_code == 200, answer.text
    path = f"/v1/responses/{answer.json()['id']}"
    until(lambda: gateway.get(path).json()["status"] not in ("queued", "in_progress"))
    return gateway.get(path).json()["status"]


@pytest.mark.parametrize(
    "words",
    [
        {"provider": {"order": ["b"]}},
        {"provider": {"only": ["b"]}},
        {"provider": {"ignore": ["a"]}},
        {"provider": {"require_parameters": True}, "top_logprobs": 2},
        {"providerOptions": {"gateway": {"order": ["b"]}}},
    ],
)
@pytest.mark.parametrize("text", ["Hi.", "x" * (LARGE_INPUT + 1)], ids=["small", "large"])
def test_background_response_honours_the_words_of_its_caller(words: dict[str, Any], text: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/a.db"
    with lab_with(says("A"), says("B"), kinds=(MessagesServer, ChatServer), store=store) as lab:
        assert run_in_background(lab.gateway, input=text, **words) == "completed"
        assert lab.counts == (0, 1)
        assert b"provider" not in lab.servers["b"].received[0].body
        assert b"antiphon" not in lab.servers["b"].received[0].body


def test_background_response_honours_further_models_and_retries(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/a.db"
    with lab_with(error(500), says("B"), store=store) as lab:
        assert run_in_background(lab.gateway, model="a-only", fallbacks=["b-only"]) == "completed"
        assert run_in_background(lab.gateway, model="a-only", models=["b-only"], input="Hello.") == "completed"
        assert lab.counts == (2, 2)
        assert run_in_background(lab.gateway, provider={"allow_fallbacks": False}) == "failed"
        assert lab.counts == (3, 2)


def test_background_response_reports_words_that_are_not_offered(tmp_path: Path) -> None:
    with lab_with(says("A"), says("B"), store=f"sqlite:///{tmp_path}/a.db") as lab:
        answer = lab.ask(background=True, provider={"order": ["b", "unknown"], "zdr": True})
        assert answer.headers["antiphon-losses"] == "2; provider.zdr, provider.order"
        until(lambda: lab.counts == (0, 1))
        line = next(line for line in lab.gateway.requests(2) if line["method"] == "BACKGROUND")
        assert (line["upstream"], line["losses"]) == ("b", 2)


def test_background_response_excludes_lossy_targets_in_strict_mode(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/a.db"
    strict = {"antiphon_losses": "strict"}
    with lab_with(says("A"), says("B"), kinds=(MessagesServer, ChatServer), store=store) as lab:
        assert run_in_background(lab.gateway, strict, top_logprobs=2) == "completed"
        assert lab.counts == (0, 1)


def test_background_responses_of_a_session_stay_with_their_target(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/a.db"
    with lab_with(says("A"), says("B"), targets=EITHER, store=store) as lab:
        for number in range(8):
            run_in_background(lab.gateway, {"x_claude_code_session_id": "s1"}, input=f"{number}")
        assert 0 in lab.counts
        assert sum(lab.counts) == 8


def test_background_response_keeps_its_words_after_a_restart(tmp_path: Path) -> None:
    """The first gateway stops before the answer begins, and another one on the same store runs the request."""
    gate = Gate()
    store = StoreConfig(url=f"sqlite:///{tmp_path}/a.db")
    with ChatServer(lambda _: says("A")) as a, ChatServer(lambda _: turn(testing.wait(gate), testing.text("B"))) as b:
        upstreams = [
            UpstreamConfig(name=name, dialect="chat", base_url=server.base_url, models=[f"{name}-only"])
            for name, server in (("a", a), ("b", b))
        ]
        targets = [TargetConfig(upstream="a", model="x"), TargetConfig(upstream="b", model="y", priority=2)]
        config = Config(
            upstreams=upstreams,
            models=[ModelConfig(name="m", targets=targets)],
            store=store,
        )
        with running(config, background_timings=BACKGROUND_TIMINGS) as first:
            id = first.post({**BODY, "background": True, "provider": {"order": ["b"]}}).json()["id"]
            until(lambda: len(b.received) == 1)
        gate.open()
        with running(config, background_timings=BACKGROUND_TIMINGS) as second:
            until(lambda: second.get(f"/v1/responses/{id}").json()["status"] == "completed")
        assert (len(a.received), len(b.received)) == (0, 2)


# A configuration with every setting

EVERY_SETTING = """
[[upstreams]]
name = "anthropic"
dialect = "messages"
base_url = "{anthropic}"
api_key_env = ["FIRST_KEY", "SECOND_KEY"]
[[upstreams]]
name = "openai"
dialect = "responses"
base_url = "{openai}"
[[upstreams]]
name = "azure"
dialect = "responses"
base_url = "{azure}"
[[upstreams]]
name = "google"
dialect = "gemini"
base_url = "{google}"
[[models]]
name = "coder"
targets = [
  {{ upstream = "anthropic", model = "claude-sonnet-4-5" }},
  {{ upstream = "openai", model = "gpt-5.5", priority = 2, weight = 3 }},
  {{ upstream = "azure", model = "gpt-5.5", priority = 2, weight = 1 }},
]
strategy = "weighted"
prefer = "fewest-losses"
on_context_length = [{{ upstream = "google", model = "gemini-3-pro" }}]
on_refusal = []
[models.retry]
rounds = 1
[retry]
rounds = 2
deadline = 120.0
"""


def test_configuration_with_every_setting_is_followed() -> None:
    replies: dict[str, Reply] = {
        "anthropic": testing.messages_error(401),
        "openai": error(500),
        "azure": error(400, "This model's maximum context length is 8 tokens.", code="context_length_exceeded"),
        "google": says("Long."),
    }
    kinds = {"anthropic": MessagesServer, "openai": ResponsesServer, "azure": ResponsesServer, "google": GeminiServer}
    with ExitStack() as stack:
        servers = {name: stack.enter_context(kind(lambda _, name=name: replies[name])) for name, kind in kinds.items()}
        keys = {"FIRST_KEY": "first-key", "SECOND_KEY": "second-key"}
        text = EVERY_SETTING.format(**{name: server.base_url for name, server in servers.items()})
        gateway = stack.enter_context(running(parse_config(text, Path("antiphon.toml"), keys), environ=keys))
        for number in range(6):
            for server in servers.values():
                server.received.clear()
            answer = gateway.post({"model": "coder", "input": f"{number}"})
            counts = {name: len(server.received) for name, server in servers.items()}
            assert (answer.status_code, answer.headers["antiphon-upstream"], answer.json()["model"]) == (
                200,
                "google",
                "coder",
            )
            assert counts["anthropic"] == (2 if number == 0 else 0)  # its keys rest
            assert counts["azure"] == counts["google"] == 1
            assert counts["openai"] <= 1
        replies["azure"] = error(500)
        assert gateway.post({"model": "coder", "input": "One round."}).status_code == 502
