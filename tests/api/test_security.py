"""docs/errors.md, "Security", over sockets: access rules, the headers that reach the upstream, and hosts that no
connection ever goes to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from tests.api.askers import ASKERS
from tests.api.probing import ALICE, ASKED, BOB, UPSTREAM_KEY, Canary, Probed, canary, head, probed, receive_json_body
from tests.websocket_client import Refused, open_websocket

from antiphon import __version__
from antiphon.api.operation import Route
from antiphon.api.routes import MODEL_ROUTES, RESOURCE_ROUTES, ROUTES
from antiphon.config import Config, ServerConfig, check_config
from antiphon.errors import ConfigError
from antiphon.gateway.client_body import dialect_at_path

pytestmark = [pytest.mark.io, pytest.mark.without_coverage]


@pytest.fixture(scope="module")
def shared() -> Iterator[Probed]:
    with probed() as place:
        yield place


@pytest.fixture(scope="module")
def shared_with_keys() -> Iterator[Probed]:
    with probed(keys=True, allowed_origins=["https://page.example"]) as place:
        yield place


@pytest.fixture
def place(shared: Probed) -> Iterator[Probed]:
    """A gateway without keys."""
    shared.begin()
    yield shared
    shared.settle()


@pytest.fixture
def guarded(shared_with_keys: Probed) -> Iterator[Probed]:
    """A gateway with the keys of alice and bob."""
    shared_with_keys.begin()
    yield shared_with_keys
    shared_with_keys.settle()


@pytest.fixture
def bird() -> Iterator[Canary]:
    with canary() as bird:
        yield bird


def went_nowhere_else(place: Probed) -> None:
    """Every connection went to the configured upstream, and to its one path."""
    assert set(place.network.asked) <= {f"{place.upstream.base_url}/chat/completions"}
    assert {received.path for received in place.seen} <= {"/v1/chat/completions"}
    assert {received.headers["host"] for received in place.seen} <= {f"127.0.0.1:{place.upstream.port}"}


def test_canary_counts_its_callers() -> None:
    """Otherwise a test without callers would prove nothing."""
    bird = Canary()
    try:
        assert bird.callers() == 0
        socket.create_connection(("127.0.0.1", bird.port)).close()
        assert bird.callers() == 1
    finally:
        bird.close()


# No part of a request chooses a host

FIELDS = [
    "base_url",
    "baseURL",
    "base_uri",
    "api_base",
    "api_url",
    "api_host",
    "url",
    "uri",
    "host",
    "hostname",
    "server",
    "server_url",
    "endpoint",
    "azure_endpoint",
    "upstream",
    "target",
    "proxy",
    "http_proxy",
    "https_proxy",
    "webhook",
    "webhook_url",
    "callback",
    "callback_url",
    "redirect",
    "provider",
    "router",
    "custom_llm_provider",
    "model_url",
    "mcp_servers",
    "metadata_url",
]


@pytest.mark.parametrize("field", FIELDS)
def test_field_that_names_a_host_opens_no_connection(place: Probed, bird: Canary, field: str) -> None:
    """Security: any field that names a host."""
    url = f"http://127.0.0.1:{bird.port}/v1"
    for value in (url, {"base_url": url, "url": url}, [url]):
        assert place.post({**ASKED, field: value}).status in (200, 400)
    went_nowhere_else(place)


def test_free_form_fields_open_no_connection(place: Probed, bird: Canary) -> None:
    """Security: the same, in fields that belong to the client."""
    url = f"http://127.0.0.1:{bird.port}/v1"
    for members in (
        {"metadata": {"base_url": url, "api_base": url}},
        {"client_metadata": {"base_url": url}},
        {
            "extra_body": {"base_url": url},
            "extra_headers": {"host": f"127.0.0.1:{bird.port}"},
            "extra_query": {"base_url": url},
        },
        {"user": url, "safety_identifier": url, "prompt_cache_key": url},
        {"tools": [{"type": "mcp", "server_label": "x", "server_url": url, "headers": {"authorization": "x"}}]},
        {"tools": [{"type": "web_search", "base_url": url}]},
        {
            "tools": [
                {
                    "type": "function",
                    "name": "f",
                    "url": url,
                    "parameters": {"type": "object", "$ref": url, "$schema": url},
                }
            ]
        },
        {
            "text": {
                "format": {"type": "json_schema", "name": "n", "schema": {"type": "object", "$ref": url, "$id": url}}
            }
        },
        {"input": [{"type": "item_reference", "id": url}]},
        {"previous_response_id": url},
        {"conversation": url},
        {"prompt": {"id": url}},
    ):
        assert place.post({**ASKED, **members}).status in (200, 400, 404)
    went_nowhere_else(place)


MODELS = [
    "http://127.0.0.1:{port}/v1",
    "https://127.0.0.1:{port}/v1/chat/completions",
    "http://user:pass@127.0.0.1:{port}/",
    "//127.0.0.1:{port}/x",
    "127.0.0.1:{port}",
    "127.0.0.1:{port}/mock-1",
    "mock-1@127.0.0.1:{port}",
    "mock-1#@127.0.0.1:{port}",
    "openai/http://127.0.0.1:{port}",
    "../../../{port}",
    "..%2f..%2f{port}",
    "mock-1?base_url=http://127.0.0.1:{port}",
    "mock-1\r\nhost: 127.0.0.1:{port}\r\n\r\n",
    "mock-1 HTTP/1.1\r\nhost: 127.0.0.1:{port}",
    "file:///etc/passwd",
    "gopher://127.0.0.1:{port}/_GET",
    "unix:/tmp/x.sock",
    "$(curl 127.0.0.1:{port})",
    "{{{{7*7}}}}",
    "x" * 100_000,
]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model[:40])
def test_model_that_names_a_host_opens_no_connection(place: Probed, bird: Canary, model: str) -> None:
    """Security: a model name that names a host. It is sent in the body to the upstream, unchanged, and nowhere else."""
    name = model.format(port=bird.port)
    assert place.post({**ASKED, "model": name}).status in (200, 400, 404)
    went_nowhere_else(place)
    assert [received.json["model"] for received in place.seen] == [name]


HEADERS = [
    "x-forwarded-host",
    "x-forwarded-server",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-forwarded-port",
    "x-forwarded-prefix",
    "forwarded",
    "via",
    "x-real-ip",
    "x-host",
    "x-original-url",
    "x-original-host",
    "x-rewrite-url",
    "x-base-url",
    "base-url",
    "api-base",
    "x-api-base",
    "x-upstream",
    "x-target",
    "x-target-url",
    "x-proxy-url",
    "proxy",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "proxy-host",
    "location",
    "referer",
    "openai-base-url",
    "x-provider",
    "x-custom-host",
    "destination",
    "x-http-method-override",
    "x-http-host-override",
]


def test_headers_that_name_a_host_open_no_connection(place: Probed, bird: Canary) -> None:
    """Security: any header that names a host."""
    for name in HEADERS:
        for value in (f"127.0.0.1:{bird.port}", f"http://127.0.0.1:{bird.port}/v1", f"host=127.0.0.1:{bird.port}"):
            assert place.post(ASKED, (name, value)).status == 200
    went_nowhere_else(place)


def test_target_that_names_a_host_opens_no_connection(place: Probed, bird: Canary) -> None:
    """Security: the absolute form of a request's target. The gateway is not a proxy: the target is a path of ours, or
    refused."""
    own = f"http://127.0.0.1:{bird.port}/v1/responses"
    answer = place.ask("POST", own, ("content-type", "application/json"), body=msgspec.json.encode(ASKED))
    assert answer.status == 200
    for target in (
        "http://evil.example/v1/responses",
        "https://10.0.0.1/v1/responses",
        f"http://169.254.169.254:{bird.port}/latest",
    ):
        body = msgspec.json.encode(ASKED)
        place.ask("POST", target, ("content-type", "application/json"), body=body).tells(403, "forbidden_host")
    place.raw(head("CONNECT", f"127.0.0.1:{bird.port}", ("host", f"127.0.0.1:{bird.port}"))).tells(400, "invalid_value")
    went_nowhere_else(place)
    assert len(place.seen) == 1


SPELLINGS = [
    "http://127.0.0.1:{port}/x.png",
    "http://localhost:{port}/x.png",
    "http://LOCALHOST.:{port}/x.png",
    "http://127.1:{port}/x.png",
    "http://127.0.1:{port}/x.png",
    "http://127.255.255.254:{port}/x.png",
    "http://0:{port}/x.png",
    "http://0.0.0.0:{port}/x.png",
    "http://2130706433:{port}/x.png",
    "http://0x7f000001:{port}/x.png",
    "http://0x7f.1:{port}/x.png",
    "http://017700000001:{port}/x.png",
    "http://0177.0.0.1:{port}/x.png",
    "http://[::1]:{port}/x.png",
    "http://[::]:{port}/x.png",
    "http://[::ffff:127.0.0.1]:{port}/x.png",
    "http://[0:0:0:0:0:ffff:7f00:1]:{port}/x.png",
    "http://[::1%25lo]:{port}/x.png",
    "http://user:pass@127.0.0.1:{port}/x.png",
    "http://example.com@127.0.0.1:{port}/x.png",
    "http://127.0.0.1:{port}#@example.com/x.png",
    "http://①②⑦.⓪.⓪.①:{port}/x.png",
    "http://127。0。0。1:{port}/x.png",
    "http:\\\\127.0.0.1:{port}\\x.png",
    "http:/127.0.0.1:{port}/x.png",
    "//127.0.0.1:{port}/x.png",
    "HTTP://127.0.0.1:{port}/x.png",
    " http://127.0.0.1:{port}/x.png",
    "http://127.0.0.1:{port}/x.png\r\nx: y",
    "https://127.0.0.1:{port}/x.png",
    "ftp://127.0.0.1:{port}/x.png",
    "ws://127.0.0.1:{port}/x.png",
    "gopher://127.0.0.1:{port}/_x",
    "dict://127.0.0.1:{port}/x",
    "file:///etc/passwd",
    "file://127.0.0.1:{port}/x.png",
    "http://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://10.0.0.1/x.png",
    "http://192.168.0.1/x.png",
    "http://172.16.0.1/x.png",
    "http://metadata.internal/x.png",
]


def parts(url: str) -> list[dict[str, Any]]:
    """Every content part that can contain an address."""
    return [
        {"type": "input_image", "image_url": url},
        {"type": "input_file", "file_url": url},
        {"type": "input_file", "filename": "x.pdf", "file_data": url},
        {"type": "input_video", "video_url": url},
        {"type": "input_audio", "input_audio": {"data": url, "format": "wav"}},
        {"type": "acme:picture", "url": url},
    ]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_images_and_files_are_never_fetched(place: Probed, bird: Canary, spelling: str) -> None:
    """Security: `image_url` and `file_url` at internal addresses in every spelling. The URL is text for the upstream,
    or refused."""
    url = spelling.format(port=bird.port)
    for part in parts(url):
        asked = [{"role": "user", "content": [{"type": "input_text", "text": "hi"}, part]}]
        output = [
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [part]},
        ]
        for items in (asked, [*output, *asked]):
            answer = place.post({**ASKED, "input": items})
            assert answer.status in (200, 400), answer.body
    went_nowhere_else(place)


# Keys


def every_call() -> list[tuple[str, str]]:
    routes = [*ROUTES.items(), *((named(path), route) for path, route in (RESOURCE_ROUTES | MODEL_ROUTES).items())]
    return [(path, method) for path, route in routes for method in route.operations]


def named(path: str) -> str:
    return path.replace("{id}", "resp_1").replace("{item_id}", "msg_1").replace("{model}", "mock-1")


def asked_at(path: str) -> bytes:
    """A turn in the form of the API that the path belongs to, or another request that it takes."""
    if path.endswith(("/completions", "/embed", "/embeddings", ":embedContent", ":batchEmbedContents")) and (
        "chat" not in path
    ):
        content = {"parts": [{"text": "Hi"}]}
        more = {"content": content, "requests": [{"content": content}]} if "/models/" in path else {"input": "Hi"}
        return msgspec.json.encode({"model": "mock-1", "prompt": "Hi", **more})
    if dialect_at_path(path).name == "vscode":
        return msgspec.json.encode(
            {"model": "mock-1", "messages": [{"role": 1, "content": "Say hello."}], "stream": False}
        )
    if path == "/api/generate":
        return msgspec.json.encode({"model": "mock-1", "prompt": "Say hello.", "stream": False})
    if dialect_at_path(path).name == "ollama":
        return msgspec.json.encode(
            {"model": "mock-1", "messages": [{"role": "user", "content": "Hi"}], "stream": False}
        )
    asker = next((asker for asker in ASKERS if dialect_at_path(path).name == asker.dialect), None)
    return msgspec.json.encode(asker.asked if asker else ASKED)


STORED_PATHS = {"/v1/conversations", "/v1/usage", *map(named, RESOURCE_ROUTES)}  # which nothing is here


def answer_to(place: Probed, method: str, path: str, *headers: tuple[str, str | bytes]) -> tuple[int, bytes]:
    """Without the key that `Probed` would add."""
    lines = [("host", "localhost"), ("connection", "close"), ("content-type", "application/json"), *headers]
    body = asked_at(path) if method == "POST" else b""
    answer = place.raw(head(method, path, *lines, ("content-length", str(len(body)))) + body)
    if answer.status >= 400:
        assert answer.error
    return answer.status, answer.body


def with_key(key: str) -> tuple[str, str]:
    return "authorization", f"Bearer {key}"


@pytest.mark.parametrize(("path", "method"), every_call())
def test_only_public_routes_answer_without_a_key(guarded: Probed, path: str, method: str) -> None:
    """HTTP-6. Security: every route × no key, wrong key. The list of routes is the server's own."""
    no_key = answer_to(guarded, method, path)
    wrong_key = answer_to(guarded, method, path, with_key("sk-wrong"))
    if path in ("/", "/health", "/livez", "/readyz", "/openapi.json"):
        assert (no_key[0], wrong_key[0]) == (200, 200)
    else:
        assert (no_key[0], wrong_key[0]) == (401, 401)
        assert b"no key" in no_key[1]
        assert b"invalid key" in wrong_key[1]
    assert guarded.seen == []


def test_requests_on_one_connection_are_authenticated_separately(guarded: Probed) -> None:
    """Security: every request is checked with its own key, whatever keys came before on the same connection."""
    wrong = "c" + ALICE[1:]
    asked = [ALICE, ALICE, BOB, BOB, wrong, wrong, ALICE, ALICE]
    served = []
    with guarded.gateway.connect() as connection:
        for at, key in enumerate(asked):
            body = msgspec.json.encode({**ASKED, "metadata": {"at": "x" * at}})
            lines = [("host", "localhost"), ("content-type", "application/json"), ("content-length", str(len(body)))]
            connection.sendall(head("POST", "/v1/responses", *lines, ("authorization", f"Bearer {key}")) + body)
            served.append("output" in msgspec.json.decode(receive_json_body(connection)))
    assert served == [True, True, True, True, False, False, True, True]
    owners = [line.get("owner") for line in guarded.gateway.requests(len(asked))[-len(asked) :]]
    assert owners == ["alice", "alice", "bob", "bob", None, None, "alice", "alice"]


@pytest.mark.parametrize(("path", "method"), every_call())
@pytest.mark.parametrize(("key", "owner"), [(ALICE, "alice"), (BOB, "bob")])
def test_request_is_logged_under_the_owner_of_its_key(
    guarded: Probed, path: str, method: str, key: str, owner: str
) -> None:
    """Security: every route × another tenant's key. A key opens only the resources of its owner, so the owner must be
    right."""
    before = len(guarded.gateway.requests(0))
    assert answer_to(guarded, method, path, with_key(key))[0] == (404 if path in STORED_PATHS else 200)
    line = guarded.gateway.requests(before + 1)[before]
    assert line.get("owner") == (None if path in ROUTES and ROUTES[path].is_public else owner)


@pytest.mark.parametrize("method", ["GET", "POST", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_unauthenticated_request_cannot_tell_which_paths_exist(guarded: Probed, method: str) -> None:
    """Security: routes fail closed, whatever the method."""
    paths = [
        "/v1/responses",
        "/v1/models",
        "/v1/nothing",
        "/x",
        "/metrics",
        "/admin",
        "/docs",
        "/v1/responses/resp_1",
        "/.env",
    ]
    answers = set()
    for path in paths:
        answer = guarded.raw(head(method, path, ("host", "localhost"), ("connection", "close")))
        answers.add((answer.status, answer.body))
    assert len(answers) == 1
    assert answers.pop()[0] == 401


ODD_PATHS = [
    "/v1/models/",
    "//v1/models",
    "/v1//models",
    "/V1/MODELS",
    "/v1/models%00",
    "/v1/models;x",
    "/v1/./models",
    "/health/../v1/models",
    "/health/%2e%2e/v1/models",
    "/openapi.json/../v1/models",
    "/health%2f..%2fv1%2fmodels",
    "/health/",
    "/health/x",
    "/v1%2fmodels",
    "/%76%31/models",
    "/health%3f/../v1/models",
    "/health%00",
    "/%ff%fe",
    "*",
]


@pytest.mark.parametrize("path", ODD_PATHS)
def test_path_spellings_do_not_bypass_the_key(guarded: Probed, path: str) -> None:
    """Security: a path is looked up exactly. A path that is not in the table letter by letter is no public route."""
    assert answer_to(guarded, "GET", path)[0] == 401
    assert guarded.network.asked == []


def test_new_route_requires_a_key(guarded: Probed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Security: new routes fail closed."""
    monkeypatch.setitem(ROUTES, "/v1/new", Route(operations=ROUTES["/health"].operations))
    assert answer_to(guarded, "GET", "/v1/new")[0] == 401
    assert answer_to(guarded, "GET", "/v1/new", with_key(ALICE))[0] == 200


ODD_KEYS: dict[str, list[tuple[str, str | bytes]]] = {
    "empty": [("authorization", "")],
    "the key alone": [("authorization", ALICE)],
    "no key behind Bearer": [("authorization", "Bearer")],
    "blanks behind Bearer": [("authorization", "Bearer   ")],
    "another scheme": [("authorization", f"Basic {ALICE}")],
    "Bearer twice": [("authorization", f"Bearer Bearer {ALICE}")],
    "a comma list": [("authorization", f"Bearer {ALICE}, Bearer {BOB}")],
    "quoted": [("authorization", f'Bearer "{ALICE}"')],
    "a letter less": [("authorization", f"Bearer {ALICE[:-1]}")],
    "a letter more": [("authorization", f"Bearer {ALICE}x")],
    "other case": [("authorization", f"Bearer {ALICE.upper()}")],
    "two keys": [("authorization", f"Bearer {ALICE} {BOB}")],
    "beyond ASCII": [("authorization", "Bearer ключ")],
    "Latin-1": [("authorization", b"Bearer cl\xe9")],
    "no UTF-8": [("authorization", b"Bearer \xff\xfe")],
    "escapes of a terminal": [("authorization", "Bearer %1b[31m")],
    "null": [("authorization", "Bearer null")],
    "a pattern": [("authorization", "Bearer *")],
    "SQL": [("authorization", "Bearer ' OR 1=1 --")],
    "the upstream's key": [("authorization", f"Bearer {UPSTREAM_KEY}")],
    "60,000 letters": [("authorization", "Bearer " + "x" * 60_000)],
    "two headers, both right": [("authorization", f"Bearer {ALICE}"), ("authorization", f"Bearer {ALICE}")],
    "two headers, one right": [("authorization", "Bearer x"), ("authorization", f"Bearer {ALICE}")],
    "two headers of one name, and another that is right": [
        ("authorization", "a"),
        ("authorization", "b"),
        ("x-api-key", ALICE),
    ],
    "two of the other kind": [("x-api-key", ALICE), ("x-api-key", BOB)],
    "the other kind, empty": [("x-api-key", "")],
    "the other kind, wrong": [("x-api-key", "x")],
    "a cookie": [("cookie", f"authorization=Bearer {ALICE}; api_key={ALICE}")],
    "for a proxy": [("proxy-authorization", f"Bearer {ALICE}")],
    "a trailer": [("trailer", "authorization")],
}


@pytest.mark.parametrize("headers", ODD_KEYS.values(), ids=ODD_KEYS)
def test_malformed_keys_all_get_the_same_401(guarded: Probed, headers: list[tuple[str, str | bytes]]) -> None:
    """HTTP-6. Security: odd `Authorization` values, non-ASCII, two headers: 401, as without a key or with a wrong
    one."""
    no_key = answer_to(guarded, "POST", "/v1/responses")
    wrong_key = answer_to(guarded, "POST", "/v1/responses", with_key("sk-wrong"))
    assert answer_to(guarded, "POST", "/v1/responses", *headers) in (no_key, wrong_key)
    assert answer_to(guarded, "POST", "/v1/responses")[0] == 401
    assert guarded.seen == []


def test_key_in_the_query_is_rejected_and_not_logged(guarded: Probed) -> None:
    """Security: the query is in no log (`settle` looks for the key there)."""
    assert answer_to(guarded, "POST", f"/v1/responses?api_key={ALICE}&key={ALICE}&access_token={ALICE}")[0] == 401


def test_key_with_nul_is_400_and_oversized_key_is_431(guarded: Probed) -> None:
    """Security: NUL, a megabyte. HTTP forbids the first and our limit the second, so neither is checked as a key."""
    assert answer_to(guarded, "POST", "/v1/responses", ("authorization", f"Bearer {ALICE}\x00"))[0] == 400
    assert answer_to(guarded, "POST", "/v1/responses", ("authorization", "Bearer " + "x" * 1_000_000))[0] == 431
    assert guarded.seen == []


def test_config_with_public_address_and_no_keys_is_refused() -> None:
    """Security: bound to a public address with no keys."""
    for host in ("0.0.0.0", "::", "192.168.1.5", "gateway.example"):
        with pytest.raises(ConfigError) as caught:
            check_config(Config(server=ServerConfig(host=host)), {})
        assert "[[keys]]" in str(caught.value)
        assert "127.0.0.1" in str(caught.value)


# Hosts and origins

ODD_HOSTS = [
    "",
    "evil.example",
    "127.0.0.1.evil.example",
    "localhost.evil.example",
    "evil.example:80",
    "localhost@evil.example",
    "localhost#evil.example",
    "localhost/evil",
    "localhost:80:80",
    "localhost:port",
    "localhost:-1",
    "localhost:999999",
    "local host",
    "[::1",
    "::1",
    "[::1]evil",
    "[evil]",
    "127.0.0.2",
    "2130706433",
    "0x7f000001",
    "127.1",
    "0.0.0.0",
    "*",
    "localhost,evil.example",
    "localhоst",
    "http://localhost",
]


@pytest.mark.parametrize("host", ODD_HOSTS)
def test_unknown_host_header_is_refused_on_every_route(place: Probed, host: str) -> None:
    """Security: odd `Host` values, public routes included: a page that points its DNS name at this machine learns
    nothing."""
    for path, method in every_call():
        place.ask(method, path, host=host).tells(403, "forbidden_host")
    assert place.seen == []


def test_missing_or_repeated_host_header_is_refused(place: Probed) -> None:
    """Security: odd `Host` values."""
    place.raw(head("GET", "/health", ("connection", "close"))).tells(403, "forbidden_host")
    twice = head("GET", "/health", ("host", "localhost"), ("host", "localhost"), ("connection", "close"))
    assert place.raw(twice).status in (400, 403)
    both = head("GET", "/health", ("host", "localhost"), ("host", "evil.example"), ("connection", "close"))
    assert place.raw(both).status in (400, 403)


ORIGINS = [
    "https://evil.example",
    "http://page.example",
    "https://page.example.evil",
    "https://page.example:8443",
    "https://sub.page.example",
    "null",
    "",
    "https://page.example/",
    "https://page.example https://evil.example",
    "http://localhost",
    "http://127.0.0.1",
    "file://",
    "*",
]


@pytest.mark.parametrize("origin", ORIGINS)
def test_foreign_origin_is_refused_without_cors_headers(guarded: Probed, origin: str) -> None:
    """Security: foreign `Origin` on POST, with a valid key, and on every other route."""
    for path, method in every_call():
        body = msgspec.json.encode(ASKED) if method == "POST" else b""
        answer = guarded.ask(method, path, ("origin", origin), ("content-type", "application/json"), body=body)
        answer.tells(403, "forbidden_origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]
    preflight = guarded.ask("OPTIONS", "/v1/responses", ("origin", origin), ("access-control-request-method", "POST"))
    preflight.tells(403, "forbidden_origin")
    assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert guarded.seen == []


def test_repeated_origin_header_is_refused(guarded: Probed) -> None:
    twice = [("origin", "https://page.example")] * 2
    guarded.post(ASKED, *twice).tells(403, "forbidden_origin")
    assert guarded.seen == []


# WebSockets


def test_websocket_opens_with_a_valid_key_and_origin(guarded: Probed) -> None:
    """Security: the same keys, hosts and origins as for every other request; each turn is its owner's."""
    for headers in ([with_key(ALICE)], [("x-api-key", ALICE)], [with_key(ALICE), ("origin", "https://page.example")]):
        with open_websocket(guarded.gateway.port, "/v1/responses", *headers) as client:
            assert client.headers["x-request-id"].startswith("req_")
            client.send({"type": "response.create", **ASKED})
            while client.receive_json()["type"] != "response.completed":
                pass
    assert {line["owner"] for line in guarded.gateway.requests(3)[-3:]} == {"alice"}
    assert len(guarded.seen) == 3


@pytest.mark.parametrize(
    ("status", "code", "headers"),
    [
        (401, "invalid_api_key", []),
        (401, "invalid_api_key", [with_key("sk-wrong")]),
        (401, "invalid_api_key", [("cookie", f"api_key={ALICE}")]),
        (401, "invalid_api_key", [("sec-websocket-protocol", f"openai-insecure-api-key.{ALICE}")]),
        (403, "forbidden_host", [with_key(ALICE), ("host", "evil.example")]),
        (403, "forbidden_host", [with_key(ALICE), ("host", "")]),
        (403, "forbidden_origin", [("origin", "https://evil.example")]),
        *(
            (403, "forbidden_origin", [with_key(ALICE), ("origin", origin)])
            for origin in ("https://evil.example", "null", "*")
        ),
        (426, "upgrade_required", [with_key(ALICE), ("sec-websocket-version", "12")]),
        (400, "invalid_value", [with_key(ALICE), ("sec-websocket-key", "short")]),
    ],
)
def test_websocket_with_bad_key_host_or_origin_is_refused(
    guarded: Probed, status: int, code: str, headers: list[tuple[str, str]]
) -> None:
    """Security: foreign `Origin` on the WebSocket upgrade, no key, another host; refused in plain HTTP, without CORS
    headers."""
    with pytest.raises(Refused) as refused, open_websocket(guarded.gateway.port, "/v1/responses", *headers):
        pass
    assert (refused.value.status, refused.value.error["code"]) == (status, code)
    assert not [name for name in refused.value.headers if name.startswith(("access-control", "sec-websocket-accept"))]
    assert guarded.seen == []


def test_unauthenticated_websocket_cannot_tell_which_paths_exist(guarded: Probed) -> None:
    """Security: routes fail closed, whatever the protocol."""
    answers = []
    for path in ("/v1/responses", "/v1/nothing", "/health", "/v1/responses/resp_1"):
        with pytest.raises(Refused) as refused, open_websocket(guarded.gateway.port, path):
            pass
        answers.append((refused.value.status, refused.value.body))
    assert len(set(answers)) == 1
    assert answers[0][0] == 401
    with pytest.raises(Refused) as refused, open_websocket(guarded.gateway.port, "/health", with_key(ALICE)):
        pass
    assert (refused.value.status, refused.value.error["code"]) == (404, "not_found")


@pytest.mark.parametrize("key", [None, ALICE])
def test_disabled_websocket_is_426(key: str | None) -> None:
    """WS: `websocket = false`; the client is referred to HTTP."""
    with probed(keys=True, websocket=False) as place:
        headers = [with_key(key)] if key else []
        with pytest.raises(Refused) as refused, open_websocket(place.gateway.port, "/v1/responses", *headers):
            pass
        assert (refused.value.status, refused.value.error["code"]) == (426, "upgrade_required")
        assert refused.value.headers["upgrade"] == "HTTP/1.1"
        place.settle()


# What reaches the upstream

CLIENTS_OWN = [
    ("authorization", f"Bearer {ALICE}"),
    ("x-api-key", ALICE),
    ("proxy-authorization", "Basic eDp5"),
    ("cookie", "session=1"),
    ("user-agent", "client/1.0"),
    ("accept", "text/event-stream"),
    ("accept-encoding", "gzip, br"),
    ("accept-language", "de"),
    ("keep-alive", "timeout=5"),
    ("te", "trailers"),
    ("trailer", "x-trailer"),
    ("via", "1.1 proxy"),
    ("forwarded", "for=10.0.0.1"),
    ("x-forwarded-for", "10.0.0.1"),
    ("x-request-id", "req_of_the_client"),
    ("idempotency-key", "1"),
    ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    ("openai-organization", "org"),
    ("openai-beta", "x"),
    ("range", "bytes=0-1"),
    ("if-none-match", "*"),
    ("x-custom", "x"),
    ("antiphon-extensions", "losses"),
]


@pytest.mark.parametrize("stream", [False, True])
def test_upstream_receives_exactly_the_listed_headers(guarded: Probed, stream: bool) -> None:
    """Security: client's `Authorization`, cookies, hop-by-hop headers. All headers that are sent, exactly."""
    body = msgspec.json.encode({**ASKED, "stream": stream})
    lines = [
        ("host", "localhost"),
        ("content-type", "application/json; charset=utf-8"),
        ("content-length", str(len(body))),
    ]
    named = ("connection", "close, x-custom, authorization, content-length")
    assert guarded.raw(head("POST", "/v1/responses?a=b", *lines, named, *CLIENTS_OWN) + body).status == 200
    [received] = guarded.seen
    assert received.headers == {
        "host": f"127.0.0.1:{guarded.upstream.port}",
        "accept-encoding": "identity",
        "content-type": "application/json",
        "user-agent": f"antiphon/{__version__}",
        "authorization": f"Bearer {UPSTREAM_KEY}",
        "content-length": str(len(received.body)),
    }
    assert received.path == "/v1/chat/completions"


def test_model_list_request_sends_only_the_listed_headers() -> None:
    """Security: the same for `GET /v1/models`, which calls the upstream too."""
    with probed(keys=True) as place:
        assert place.ask("GET", "/v1/models", ("cookie", "session=1"), ("x-custom", "x")).status == 200
        [received] = place.seen
        place.settle()
    assert set(received.headers) == {"host", "accept-encoding", "content-type", "user-agent", "authorization"}
    assert received.headers["authorization"] == f"Bearer {UPSTREAM_KEY}"


JSON_POST = [("host", "localhost"), ("content-type", "application/json")]
SMUGGLED = (
    b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
)
AMBIGUOUS: dict[str, list[tuple[str, str | bytes]]] = {
    "length and chunks": [("content-length", "5"), ("transfer-encoding", "chunked")],
    "chunks and length": [("transfer-encoding", "chunked"), ("content-length", "5")],
    "two lengths": [("content-length", "5"), ("content-length", "6")],
    "one length twice": [("content-length", "5"), ("content-length", "5")],
    "a list of lengths": [("content-length", "5, 5")],
    "a signed length": [("content-length", "+5")],
    "a length in hex": [("content-length", "0x5")],
    "chunked twice": [("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")],
    "a coding besides chunked": [("transfer-encoding", "gzip, chunked")],
    "chunked and not": [("transfer-encoding", "chunked, identity")],
    "not quite chunked": [("transfer-encoding", "xchunked")],
    "chunked behind a tab": [("transfer-encoding", "\x0bchunked")],
    "a folded coding": [("x", b"y\r\n transfer-encoding: chunked")],
    "a blank before the colon": [("content-length ", "5")],
}


@pytest.mark.parametrize("framing", AMBIGUOUS.values(), ids=AMBIGUOUS)
def test_ambiguous_framing_is_refused_and_closes_the_connection(
    place: Probed, framing: list[tuple[str, str | bytes]]
) -> None:
    """Security: ambiguous framing: 400 and close; the bytes behind it are not a request."""
    answer = place.raw(head("POST", "/v1/responses", *JSON_POST, *framing) + b"0\r\n\r\n" + SMUGGLED)
    answer.tells(400, "invalid_value")
    assert answer.headers["connection"] == "close"
    assert place.seen == []


# Content of errors


def test_errors_never_contain_a_key(guarded: Probed) -> None:
    """ERR-5: an error shows the received value unless it looks like a key; and none of it is in the log (`settle`)."""
    secret = "sk-live-0123456789abcdef"
    for asked in (
        {**ASKED, "temperature": secret},
        {**ASKED, "previous_response_id": secret},
        {**ASKED, "input": [{"type": secret}]},
        {**ASKED, "model": 5, "input": secret},
    ):
        answer = guarded.post(asked)
        assert answer.status == 400
        assert secret not in answer.body.decode()
    answer_to(guarded, "GET", f"/{secret}")
    assert secret not in str(guarded.gateway.log)


def test_client_text_cannot_inject_response_headers(guarded: Probed) -> None:
    """Security: client text that goes into a header (losses name paths) cannot start a new line."""
    asked = {**ASKED, "acme\r\nx-evil: 1": 1, "acme\u2028x": 2, "ключ": 3}
    answer = guarded.post(asked)
    assert answer.status == 200
    assert "x-evil" not in answer.headers
    assert answer.headers["antiphon-losses"].isascii()
