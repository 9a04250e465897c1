"""The endpoints of clients of other dialects than the hub's, over sockets: a running gateway before a strict chat
server.

The translation of bodies is tested in `tests/dialects`; these tests check that each client gets its own form in every
case."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.api.askers import ASKERS, CHAT, GEMINI, MESSAGES, Asker
from tests.running import BOUND, one_upstream, read_all, running, until

from antiphon import testing
from antiphon.config import Config, KeyConfig, ServerConfig, StoreConfig, TraceConfig
from antiphon.testing import ChatServer, Gate, ResponsesServer, turn

pytestmark = pytest.mark.io
HELLO = turn(testing.text("Hel", "lo."), testing.usage(5, 2))
CALL = turn(testing.tool_call("call_1", "get_weather", '{"city":', '"Rome"}'), testing.usage(5, 2))
KEY = "alice-key-that-nobody-may-see-0123456789"

each = pytest.mark.parametrize("asker", ASKERS, ids=lambda asker: asker.dialect)
counting = pytest.mark.parametrize("asker", [MESSAGES, GEMINI], ids=lambda asker: asker.dialect)


def with_key(config: Config) -> Config:
    return replace(config, keys=[KeyConfig(name="alice", env="ALICE")])


# Answers


@each
def test_plain_answer_has_the_form_of_the_client_api(asker: Asker) -> None:
    """API-6."""
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = asker.ask(gateway)
        assert upstream.refusals == []
        [line] = gateway.requests(1)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert asker.text_in(answer.json()) == "Hello."
    assert (line["model"], line["upstream"], line["input_tokens"]) == ("mock-1", "lab", 5)
    assert line["path"] == asker.path.partition("?")[0]


@each
def test_stream_has_the_form_of_the_client_api(asker: Asker) -> None:
    """API-6, STR-14: with the same content."""
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = asker.stream(gateway)
        assert upstream.refusals == []
        [line] = gateway.requests(1)
    assert asker.text_of(answer) == "Hello."
    assert line["first_event_ms"] > 0


@each
def test_tool_call_reaches_the_client_with_id_name_and_arguments(asker: Asker) -> None:
    with ChatServer([CALL]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post({**asker.asked, **asker.tools}, asker.path)
        assert upstream.refusals == []
        assert upstream.received[0].json["tools"][0]["function"]["name"] == "get_weather"
    assert asker.call_in(answer.json()) == ("call_1", "get_weather", {"city": "Rome"})


@each
def test_response_is_stored_only_on_request(asker: Asker, tmp_path: Path) -> None:
    with ChatServer(lambda _: HELLO) as upstream:
        config = replace(one_upstream(upstream.base_url), store=StoreConfig(url=f"sqlite:///{tmp_path}/antiphon.db"))
        with running(config) as gateway:
            asker.ask(gateway)
            asker.stream(gateway)
            ids = [line["response_id"] for line in gateway.requests(2)]
            assert [gateway.get(f"/v1/responses/{id}").status_code for id in ids] == [404, 404]
            gateway.post({**CHAT.asked, "store": True}, CHAT.path)
            stored_id = gateway.requests(5)[-1]["response_id"]
            assert gateway.get(f"/v1/responses/{stored_id}").status_code == 200


def test_gemini_stream_without_sse_is_one_json_array() -> None:
    with ChatServer([HELLO]) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = gateway.post(GEMINI.streamed, GEMINI.stream_path.partition("?")[0])
    assert answer.headers["content-type"] == "application/json"
    assert "".join(map(GEMINI.piece_in, answer.json())) == "Hello."


@pytest.mark.parametrize("asker", [MESSAGES, GEMINI], ids=lambda asker: asker.dialect)
@pytest.mark.parametrize("path", ["", "array"])
def test_keepalive_has_a_form_that_the_client_ignores(asker: Asker, path: str) -> None:
    """HTTP-7: clients of Gemini would parse a comment as data."""
    gate = Gate()
    with ChatServer([turn(testing.wait(gate), testing.text("Hello."))]) as upstream:
        with running(one_upstream(upstream.base_url), first_byte_timeout=0.01, keepalive_interval=0.01) as gateway:
            where = asker.stream_path.partition("?")[0] if path else asker.stream_path
            body = msgspec.json.encode(asker.streamed)
            head = (
                f"POST {where} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\nconnection: close\r\n"
            )
            with gateway.connect() as connection:
                connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                data = connection.recv(65536)
                while data.count(b"\r\n") < 14:
                    data += connection.recv(65536)
                gate.open()
                data += read_all(connection)
    assert b"200 OK" in data
    assert b"Hello." in data
    assert (b": waiting" in data) == (asker is MESSAGES)


def test_model_in_the_path_may_contain_slashes_and_colons() -> None:
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        for name, path in {
            "a/b": "/v1beta/models/a/b:generateContent",
            "a/b:free": "/v1/models/a%2Fb:free:generateContent",
            "x": "/v1beta/models/x:streamGenerateContent?alt=sse&key=any",
        }.items():
            assert gateway.post(GEMINI.asked, path).status_code == 200, path
            assert upstream.received[-1].json["model"] == name


# Errors


@each
def test_refusals_have_the_form_of_the_client_api(asker: Asker) -> None:
    """ERR-1, ERR-2: also those of the access policy and of the HTTP parser."""
    with ChatServer() as upstream:
        config = replace(one_upstream(upstream.base_url), server=replace(Config().server, max_body_mib=1))
        with running(with_key(config), environ={"ALICE": KEY}) as gateway:
            key = asker.key(KEY)
            path = asker.path.partition("?")[0]
            big = msgspec.json.encode({**asker.asked, "x": "y" * 1_100_000})
            refusals = {
                "invalid_api_key": (401, asker.ask(gateway)),
                "forbidden_host": (403, asker.ask(gateway, host="evil.example", **key)),
                "forbidden_origin": (403, asker.ask(gateway, origin="https://evil.example", **key)),
                "method_not_allowed": (405, gateway.get(path, **key)),
                "invalid_json": (400, gateway.post(b"{", path, **key)),
                "invalid_value": (400, gateway.post({**asker.asked, **asker.wrong}, path, **key)),
                "request_too_large": (413, gateway.post(big, path, **key)),
                "unsupported_media_type": (415, gateway.post(b"{}", path, **{**key, "content_type": "text/plain"})),
                "headers_too_large": (431, asker.ask(gateway, x="y" * 100_000, **key)),
            }
            for code, (status, answer) in refusals.items():
                assert (answer.status_code, asker.error_in(answer)["code"]) == (status, code), answer.text
            nowhere = gateway.get(
                {"chat": "/v1/chat/x", "messages": "/v1/messages/x", "gemini": "/v1beta/x"}[asker.dialect], **key
            )
            assert (nowhere.status_code, asker.error_in(nowhere)["code"]) == (404, "not_found")
        assert upstream.received == []


@each
def test_http_parser_errors_have_the_form_of_the_client_api(asker: Asker) -> None:
    """ERR-1."""
    with running(one_upstream("http://127.0.0.1:1/v1")) as gateway:
        path = asker.path.partition("?")[0]
        data = gateway.raw(f"POST {path} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: gzip\r\n\r\n".encode())
        head, _, body = data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        assert asker.error_of(msgspec.json.decode(body), 400)["code"] == "invalid_value"


@each
def test_upstream_errors_have_the_form_of_the_client_api(asker: Asker) -> None:
    """ERR-4."""
    script: list[testing.Reply] = [
        testing.error(429, "Slow down.", headers={"retry-after": "7"}),
        turn(testing.text("Hel"), testing.end("fin")),
    ]
    with ChatServer(script) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        answer = asker.ask(gateway)
        assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
        assert asker.error_in(answer)["code"] == "rate_limit_exceeded"
        frames = asker.frames(asker.stream(gateway))
        assert "".join(map(asker.piece_in, [frame for frame in frames if "error" not in frame])) == "Hel"
        assert asker.error_of(frames[-1], frames[-1]["error"].get("code"))["code"] == "upstream_disconnected"


@each
def test_overloaded_upstream_has_the_status_of_the_client_api(asker: Asker) -> None:
    """ERR-2: one of the APIs uses a status that HTTP does not define."""
    with (
        ChatServer(lambda _: testing.error(503, "Busy.")) as upstream,
        running(one_upstream(upstream.base_url)) as gateway,
    ):
        for answer in (asker.ask(gateway), gateway.post(asker.streamed, asker.stream_path)):
            assert answer.status_code == {"messages": 529}.get(asker.dialect, 503)
            assert asker.error_in(answer)["code"] == "overloaded"


def test_messages_answers_have_the_request_id_header() -> None:
    """HTTP-8."""
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        for answer in (MESSAGES.ask(gateway), gateway.post(b"{", "/v1/messages")):
            assert answer.headers["request-id"] == answer.headers["x-request-id"]
        assert "request-id" not in CHAT.ask(gateway).headers


# Keys


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        (CHAT.path, {"authorization": f"Bearer {KEY}"}),
        (MESSAGES.path, {"x-api-key": KEY}),
        (MESSAGES.path, {"authorization": f"Bearer {KEY}", "x-api-key": "placeholder"}),
        (GEMINI.path, {"x-goog-api-key": KEY}),
        (f"{GEMINI.path}?key={KEY}", {}),
        (f"{GEMINI.stream_path}&key={KEY}", {}),
        (f"/v1beta/models?key={KEY}", {}),
    ],
)
def test_key_is_accepted_in_the_header_of_each_api_and_never_written(
    path: str, headers: dict[str, str], tmp_path: Path
) -> None:
    """HTTP-6."""
    asker = next(asker for asker in reversed(ASKERS) if path.startswith(asker.path[:11]))
    with ChatServer(lambda _: HELLO) as upstream:
        config = replace(with_key(one_upstream(upstream.base_url)), trace=TraceConfig(dir=str(tmp_path)))
        with running(config, environ={"ALICE": KEY}) as gateway:
            answer = (
                gateway.get(path) if path.startswith("/v1beta/models?") else gateway.post(asker.asked, path, **headers)
            )
            assert answer.status_code == 200, answer.text
            assert gateway.requests(1)[0]["owner"] == "alice"
        assert KEY not in gateway.written
        assert all(KEY not in received.headers.values() for received in upstream.received)
    traces = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()]
    assert all(KEY.encode() not in trace for trace in traces)
    assert len(traces) == (0 if path.startswith("/v1beta/models?") else 1)


@pytest.mark.parametrize(
    "path",
    [
        f"/v1/responses?key={KEY}",
        f"/v1/chat/completions?key={KEY}",
        f"/v1/messages?key={KEY}",
        f"{GEMINI.path}?key={KEY}x",
        f"{GEMINI.path}?key={KEY}&key={KEY}",
        f"{GEMINI.path}?{'a&' * 100}key={KEY}",
    ],
)
def test_key_in_the_query_is_refused_unless_it_is_one_gemini_key(path: str) -> None:
    with running(with_key(one_upstream("http://127.0.0.1:1/v1")), environ={"ALICE": KEY}) as gateway:
        assert gateway.post({}, path).status_code == 401
        assert KEY not in gateway.written


# Losses


@each
def test_losses_header_chooses_warning_or_refusal(asker: Asker) -> None:
    """REQ-6: by header, whatever the upstream's setting is; a refused request never reaches the upstream."""
    body = {**asker.asked, **asker.lossy}
    with ChatServer(lambda _: HELLO) as upstream:
        for setting in ("warn", "strict"):
            with running(one_upstream(upstream.base_url, losses=setting)) as gateway:
                upstream.received.clear()
                warned = gateway.post(body, asker.path, antiphon_losses="warn")
                assert (warned.status_code, warned.headers["antiphon-losses"].startswith("1; ")) == (200, True)
                assert len(upstream.received) == 1
                refused = gateway.post(body, asker.path, antiphon_losses="strict")
                assert gateway.post(body, asker.path).status_code == (200 if setting == "warn" else 400)
                assert asker.ask(gateway, antiphon_losses="strict").status_code == 200
                assert len(upstream.received) == (3 if setting == "warn" else 2)
                odd = asker.ask(gateway, antiphon_losses="never")
            assert refused.status_code == 400
            error = asker.error_in(refused)
            assert error["code"] == "lossy_translation"
            assert "tools[0]" in error["message"]
            assert (odd.status_code, asker.error_in(odd)["code"]) == (400, "invalid_value")


@each
def test_loss_metric_is_labelled_with_the_request_path(asker: Asker) -> None:
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        gateway.post({**asker.asked, **asker.lossy}, asker.path)
        text = gateway.get("/metrics").text
    path = asker.path.partition("?")[0].replace("mock-1", "{model}")
    assert f'antiphon_losses_total{{endpoint="{path}",model="other",upstream="lab"}} 1' in text


# Tokens


@counting
def test_token_count_has_the_form_of_the_client_api(asker: Asker) -> None:
    """API-3."""
    body: dict[str, Any] = {name: value for name, value in asker.asked.items() if name != "max_tokens"}
    with running(one_upstream("http://127.0.0.1:1/v1")) as gateway:
        answers = [gateway.post(body, asker.count_path)]
        if asker is GEMINI:
            answers.append(
                gateway.post({"generateContentRequest": {"model": "models/mock-1", **body}}, asker.count_path)
            )
        wrong = gateway.post(b"{", asker.count_path)
    for answer in answers:
        assert (answer.status_code, answer.headers["antiphon-estimated"]) == (200, "true")
        [(name, count)] = answer.json().items()
        assert name == {"messages": "input_tokens", "gemini": "totalTokens"}[asker.dialect]
        assert 3 <= count < 30
    assert asker.error_in(wrong)["code"] == "invalid_json"


# Models


def test_model_list_has_the_form_of_the_client_api() -> None:
    """API-5."""
    config = one_upstream("http://127.0.0.1:1/v1")
    config = replace(config, upstreams=[replace(config.upstreams[0], models=["mock-1", "lab/mock-2"])])
    with running(config) as gateway:
        of_messages = {"anthropic-version": "2023-06-01"}
        plain = gateway.get("/v1/models").json()
        assert [model["id"] for model in plain["data"]] == ["mock-1", "lab/mock-2"]
        assert gateway.get("/v1/models/lab/mock-2").json() == plain["data"][1]
        listed = gateway.get("/v1/models?limit=5", **of_messages).json()
        assert (listed["first_id"], listed["last_id"], listed["has_more"]) == ("mock-1", "lab/mock-2", False)
        assert gateway.get("/v1/models/mock-1", **of_messages).json() == listed["data"][0]
        assert listed["data"][0]["type"] == "model"
        for path, headers in (("/v1beta/models", {}), ("/v1/models", {"x-goog-api-key": "any"})):
            models = gateway.get(path, **headers).json()
            assert [model["name"] for model in models["models"]] == ["models/mock-1", "models/lab/mock-2"]
            assert gateway.get(f"{path}/mock-1", **headers).json() == models["models"][0]
        missing = gateway.get("/v1/models/mock-9", **of_messages)
        assert (missing.status_code, MESSAGES.error_in(missing)["type"]) == (404, "not_found_error")


def test_claude_aliases_are_listed_for_messages_clients_and_accepted_from_all() -> None:
    """API-5, API-3: in turns, token counts and single models; answers have the name that the client used."""
    names = ["mock-1", "lab/mock-2"]
    of_messages = {"anthropic-version": "2023-06-01"}
    with ChatServer(lambda _: HELLO) as upstream:
        config = replace(one_upstream(upstream.base_url, models=names), server=ServerConfig(claude_aliases=True))
        with running(config) as gateway:
            assert [model["id"] for model in gateway.get("/v1/models").json()["data"]] == names
            listed = gateway.get("/v1/models?limit=1000", **of_messages).json()
            aliases = ["claude-via-mock-1", "claude-via-lab/mock-2"]
            assert [model["id"] for model in listed["data"]] == [*names, *aliases]
            assert listed["last_id"] == aliases[-1]
            assert gateway.get(f"/v1/models/{aliases[1]}", **of_messages).json() == listed["data"][-1]
            for asker in (MESSAGES, CHAT):
                answer = gateway.post({**asker.asked, "model": aliases[1]}, asker.path).json()
                assert (asker.text_in(answer), answer["model"]) == ("Hello.", aliases[1])
            counted = {name: value for name, value in MESSAGES.asked.items() if name != "max_tokens"}
            assert gateway.post({**counted, "model": aliases[0]}, MESSAGES.count_path).status_code == 200
        assert [received.json["model"] for received in upstream.received] == ["lab/mock-2", "lab/mock-2"]


def test_messages_request_with_only_a_web_search_is_refused_by_other_servers() -> None:
    """REQ-6: Claude Code searches by such a request, and an answer from memory would look like results."""
    search = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
    with ChatServer(lambda _: HELLO) as upstream, running(one_upstream(upstream.base_url)) as gateway:
        refused = gateway.post({**MESSAGES.asked, "tools": [search]}, MESSAGES.path)
        assert (refused.status_code, upstream.received) == (400, [])
    error = MESSAGES.error_in(refused)
    assert error["code"] == "unsupported_parameter"
    assert "'web_search_20250305' is unavailable" in error["message"]


@pytest.mark.parametrize("asker", [CHAT, MESSAGES, GEMINI], ids=lambda asker: asker.dialect)
def test_web_search_of_every_client_is_served_by_a_server_that_has_one(asker: Asker) -> None:
    """The search of Claude Code forces its only tool."""
    search: dict[str, Any] = {"type": "web_search_20250305", "name": "web_search"}
    searches: dict[str, dict[str, Any]] = {
        "chat": {"web_search_options": {}},
        "messages": {"tools": [search], "tool_choice": {"type": "tool", "name": "web_search"}},
        "gemini": {"tools": [{"googleSearch": {}}]},
    }
    with ResponsesServer(lambda _: HELLO, strict_fields=True, own_tools=["web_search"]) as upstream:
        with running(one_upstream(upstream.base_url, dialect="responses", profile="openai")) as gateway:
            answer = gateway.post({**asker.asked, **searches[asker.dialect]}, asker.path)
    assert (answer.status_code, asker.text_in(answer.json())) == (200, "Hello.")
    [received] = upstream.received
    assert received.json["tools"] == [{"type": "web_search"}]
    assert received.json.get("tool_choice") == ("required" if asker is MESSAGES else None)


@pytest.mark.parametrize("path", ["/v1beta/interactions", "/v1/interactions"])
def test_unsupported_path_of_an_api_names_what_to_use(path: str) -> None:
    """ERR-2: the Interactions API of Gemini."""
    with running(one_upstream("http://127.0.0.1:1/v1")) as gateway:
        refused = gateway.post({"model": "mock-1", "input": "Hi"}, path)
        by_id = gateway.get(f"{path}/int_1")
        other = gateway.get("/v1beta/files")
    error = refused.json()["error"]
    assert (refused.status_code, error["status"]) == (404, "NOT_FOUND")
    assert error["message"].startswith(f"{path} is not supported: use models.generate_content")
    assert by_id.json() == refused.json()
    assert other.json()["error"]["message"] == "unknown path; see /openapi.json"


def test_model_list_without_models_is_empty() -> None:
    with running(one_upstream("http://127.0.0.1:1/v1")) as gateway:
        listed = gateway.get("/v1/models", **{"anthropic-version": "2023-06-01"}).json()
    assert listed == {"data": [], "has_more": False, "first_id": None, "last_id": None}


# Client disconnects, server shutdown


@each
def test_client_disconnect_cancels_the_upstream_call(asker: Asker) -> None:
    gate = Gate()
    with ChatServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as upstream:
        with running(one_upstream(upstream.base_url)) as gateway:
            body = msgspec.json.encode(asker.streamed)
            head = f"POST {asker.stream_path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
            with socket.create_connection(("127.0.0.1", gateway.port), timeout=BOUND) as connection:
                connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
                data = b""
                while b"Hel" not in data:
                    data += connection.recv(65536)
            [line] = gateway.requests(1)
            assert line["client_left"] is True
            upstream.wait_idle()
            gate.open()


@each
def test_stream_cut_by_shutdown_ends_with_an_error(asker: Asker) -> None:
    gate = Gate()
    with ChatServer([turn(testing.text("Hel"), testing.wait(gate), testing.text("lo."))]) as upstream:
        config = one_upstream(upstream.base_url)
        config = replace(config, server=replace(config.server, grace=0.0))
        body = msgspec.json.encode(asker.streamed)
        head = f"POST {asker.stream_path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        connection = socket.socket()
        with running(config) as gateway:
            connection.close()
            connection = gateway.connect()
            connection.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            data = b""
            while b"Hel" not in data:
                data += connection.recv(65536)
            until(lambda: gateway.services.process.requests_in_flight == 1)
        with connection:
            data += read_all(connection)
        gate.open()
    assert b"the gateway is shutting down" in data


# Availability probes


def test_root_path_answers_availability_probes() -> None:
    with running(with_key(one_upstream("http://127.0.0.1:1/v1")), environ={"ALICE": KEY}) as gateway:
        data = gateway.raw(b"HEAD / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        assert data.startswith(b"HTTP/1.1 200 ")
        assert gateway.get("/").json()["status"] == "ok"
