"""`http/access_policy`: host, origin and key checks. The same rows over sockets are in `api/test_app.py`."""

from __future__ import annotations

from hashlib import sha256

import pytest

from antiphon.config import Config, KeyConfig, ServerConfig
from antiphon.dialects.responses.stream_out import SelectableEventStyle
from antiphon.errors import ApiError
from antiphon.http.access_policy import ANONYMOUS_OWNER, AccessPolicy

pytestmark = pytest.mark.without_coverage
KEY = "sk-alice-0123456789"


def policy(*, keys: bool = True, host: str = "127.0.0.1", **server: object) -> AccessPolicy:
    key_configs = [KeyConfig(name="alice", sha256=sha256(KEY.encode()).hexdigest())] if keys else []
    return AccessPolicy.from_config(Config(server=ServerConfig(host=host, **server), keys=key_configs), {})  # type: ignore[arg-type]


def scope(*headers: tuple[str, str | bytes]) -> dict[str, object]:
    return {
        "headers": [
            (name.encode(), value if isinstance(value, bytes) else value.encode("utf-8")) for name, value in headers
        ]
    }


def refusal(edge: AccessPolicy, *headers: tuple[str, str | bytes]) -> tuple[int, str]:
    with pytest.raises(ApiError) as caught:
        edge.check_host_and_origin(scope(*headers))
    return caught.value.status, caught.value.code


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.0.0.1:8080", "localhost", "LocalHost:1", "[::1]:8080", "localhost."]
)
def test_loopback_names_are_admitted(host: str) -> None:
    policy().check_host_and_origin(scope(("host", host)))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "127.0.0.1.evil.example",
        "localhost@evil",
        "",
        " ",
        "localhost:99999999",
        "a b",
        "[::1",
        b"\xff",
        "localhost\x00",
    ],
)
def test_odd_hosts_are_refused(host: str | bytes) -> None:
    """Security: odd `Host` values."""
    assert refusal(policy(), ("host", host)) == (403, "forbidden_host")


def test_missing_or_repeated_host_is_refused() -> None:
    assert refusal(policy()) == (403, "forbidden_host")
    assert refusal(policy(), ("host", "localhost"), ("host", "localhost")) == (403, "forbidden_host")


def test_configured_hosts_are_admitted() -> None:
    for name in ("api.example", "API.example:443", "localhost"):
        policy(allowed_hosts=["api.example"]).check_host_and_origin(scope(("host", name)))
    assert refusal(policy(allowed_hosts=["api.example"]), ("host", "other.example")) == (403, "forbidden_host")
    policy(allowed_hosts=["*"]).check_host_and_origin(scope(("host", "other.example")))


def test_public_address_accepts_any_valid_host() -> None:
    policy(host="0.0.0.0").check_host_and_origin(scope(("host", "whatever.example")))
    assert refusal(policy(host="0.0.0.0"), ("host", "what ever")) == (403, "forbidden_host")


def test_origins_are_refused_unless_configured() -> None:
    """Security: a foreign `Origin` is refused, and gets no CORS header."""
    rules = policy(allowed_origins=["https://page.example"])
    asked = ("host", "localhost"), ("origin", "https://page.example")
    rules.check_host_and_origin(scope(*asked))
    assert (b"access-control-allow-origin", b"https://page.example") in rules.cors_headers(scope(*asked))
    for origin in ("https://evil.example", "null", "https://page.example.evil", ""):
        assert refusal(rules, ("host", "localhost"), ("origin", origin)) == (403, "forbidden_origin")
        assert rules.cors_headers(scope(("origin", origin))) == []
    assert refusal(rules, *asked, asked[1]) == (403, "forbidden_origin")
    assert rules.cors_headers(scope(*asked, asked[1])) == []
    assert rules.cors_headers(scope()) == []


@pytest.mark.parametrize(
    "headers",
    [
        [("authorization", f"Bearer {KEY}")],
        [("authorization", f"bearer  {KEY} ")],
        [("x-api-key", KEY)],
        [("x-goog-api-key", KEY)],
        [("authorization", "Bearer placeholder"), ("x-api-key", KEY)],
        [("x-api-key", "placeholder"), ("x-goog-api-key", KEY)],
    ],
)
def test_key_identifies_its_owner(headers: list[tuple[str, str]]) -> None:
    assert policy().authenticate(scope(*headers)).owner == "alice"


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "")],
        [("authorization", KEY)],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", f"Basic {KEY}")],
        [("authorization", f"Bearer {KEY[:-1]}")],
        [("authorization", f"Bearer {KEY}x")],
        [("authorization", "Bearer ключ")],
        [("authorization", b"Bearer \xff\x00")],
        [("authorization", "Bearer " + "x" * 1_000_000)],
        [("authorization", f"Bearer {KEY}"), ("authorization", f"Bearer {KEY}")],
        [("authorization", "Bearer a"), ("authorization", f"Bearer {KEY}")],
        [("x-api-key", KEY), ("x-api-key", KEY)],
        [("x-goog-api-key", KEY), ("x-goog-api-key", KEY)],
        [("x-api-key", "")],
        [("x-api-key", sha256(KEY.encode()).hexdigest())],
    ],
)
def test_invalid_keys_all_get_the_same_error(headers: list[tuple[str, str | bytes]]) -> None:
    """HTTP-6: one body for all wrong keys, and one for requests without a key."""
    with pytest.raises(ApiError) as caught:
        policy().authenticate(scope(*headers))
    with pytest.raises(ApiError) as other:
        policy().authenticate(scope(("x-api-key", "other")))
    with pytest.raises(ApiError) as missing:
        policy().authenticate(scope())
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert caught.value.message in (other.value.message, missing.value.message)
    assert other.value.message != missing.value.message


@pytest.mark.parametrize(
    ("query", "is_taken"),
    [
        (f"key={KEY}", True),
        (f"alt=sse&key={KEY}", True),
        (f"key={KEY[:-1]}%{ord(KEY[-1]):02x}", True),
        ("key=other", False),
        (f"key={KEY}&key={KEY}", False),
        ("key=", False),
        ("a=1&" * 100 + f"key={KEY}", False),
        ("key=%D0%9A", False),
        ("", False),
    ],
)
def test_key_in_the_query_counts_only_where_allowed(query: str, is_taken: bool) -> None:
    asked = {"headers": [], "query_string": query.encode()}
    if is_taken:
        assert policy().authenticate(asked, in_query=True).owner == "alice"
    else:
        with pytest.raises(ApiError, match=r"no key|invalid key"):
            policy().authenticate(asked, in_query=True)
    with pytest.raises(ApiError, match="no key"):
        policy().authenticate(asked)


def test_policy_without_keys_admits_everybody() -> None:
    assert policy(keys=False).authenticate(scope(("authorization", "Bearer whatever"))) == (ANONYMOUS_OWNER, None)


def test_caller_has_the_style_of_the_accepted_key() -> None:
    """API-6: one owner may have keys of different styles; of several keys in a request the first valid one counts."""
    styles: dict[str, SelectableEventStyle | None] = {"sk-plain": None, "sk-older": "older", "sk-standard": "standard"}
    keys = [
        KeyConfig(name="alice", sha256=sha256(key.encode()).hexdigest(), style=style) for key, style in styles.items()
    ]
    rules = AccessPolicy.from_config(Config(keys=keys), {})
    for key, style in styles.items():
        assert rules.authenticate(scope(("x-api-key", key))) == ("alice", style)
    both = scope(("authorization", "Bearer sk-plain"), ("x-api-key", "sk-older"))
    assert rules.authenticate(both).style is None
    assert rules.authenticate(scope(("authorization", "Bearer wrong"), ("x-api-key", "sk-older"))).style == "older"


@pytest.mark.parametrize(
    ("host", "size", "is_accepted"), [("10.0.0.7", 15, False), ("10.0.0.7", 16, True), ("::1", 1, True)]
)
def test_short_keys_are_refused_on_a_public_address(
    host: str, size: int, is_accepted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    key = "k" * size
    config = Config(
        server=ServerConfig(host=host), keys=[KeyConfig(name="bob", sha256=sha256(key.encode()).hexdigest())]
    )
    edge = AccessPolicy.from_config(config, {})
    if is_accepted:
        assert edge.authenticate(scope(("x-api-key", key))).owner == "bob"
        assert caplog.text == ""
        return
    with pytest.raises(ApiError) as caught:
        edge.authenticate(scope(("x-api-key", key)))
    with pytest.raises(ApiError) as wrong:
        edge.authenticate(scope(("x-api-key", "wrong")))
    assert (caught.value.code, caught.value.message) == (wrong.value.code, wrong.value.message)
    assert caplog.text.count("a key was refused: it has fewer than 16 characters") == 1


def test_metrics_key_opens_only_the_metrics() -> None:
    config = Config(server=ServerConfig(metrics_key_env="M"), keys=[KeyConfig(name="bob", env="B")])
    edge = AccessPolicy.from_config(config, {"M": "key-of-metrics", "B": "key-of-bob"})
    assert edge.has_metrics_key(scope(("authorization", "Bearer key-of-metrics")))
    assert not edge.has_metrics_key(scope(("authorization", "Bearer key-of-bob")))
    assert not policy().has_metrics_key(scope(("authorization", f"Bearer {KEY}")))
    with pytest.raises(ApiError, match="invalid key"):
        edge.authenticate(scope(("authorization", "Bearer key-of-metrics")))


@pytest.mark.parametrize(
    ("head", "owner"),
    [
        (b"POST /v1/responses HTTP/1.1\r\nhost: a\r\nAuthorization: Bearer %b\r\n\r\n", "alice"),
        (b"POST /v1/messages HTTP/1.1\r\nX-Api-Key:%b\r\n", "alice"),
        (b"POST /v1/messages HTTP/1.1\r\nauthorization: Bearer other\r\nx-goog-api-key: %b\r\n", "alice"),
        (b"POST /v1beta/models/m:generateContent?alt=sse&key=%b HTTP/1.1\r\n", "alice"),
        (b"POST /v1/responses HTTP/1.1\r\nauthorization: Bearer x%b\r\n", "POST"),
        (b"GET /health HTTP/1.1\r\nhost: %b\r\n\r\n", "GET"),
        (b"x-api-key: %b\r\n", None),
    ],
)
def test_owner_is_guessed_from_the_bytes_of_a_head(head: bytes, owner: str | None) -> None:
    assert policy().guess_owner(head % KEY.encode()) == owner


def test_owner_is_guessed_from_the_first_bytes_only() -> None:
    head = b"POST /v1/responses HTTP/1.1\r\nfiller: %b\r\nx-api-key: %b\r\n"
    assert policy().guess_owner(head % (b"x" * 10_000, KEY.encode())) == "POST"
