"""The gateway's address, and the key it is called with."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.cli.exits import InvalidUsage
from antiphon.cli.gateway_address import DEFAULT_URL, gateway_key, gateway_url
from antiphon.client import server


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080"),
        (" http://127.0.0.1:8080/v1/ ", "http://127.0.0.1:8080"),
        ("localhost:9000", "http://localhost:9000"),
        ("https://gateway.example/antiphon/v1", "https://gateway.example/antiphon"),
        ("http://[::1]:8080/v1", "http://[::1]:8080"),
    ],
)
def test_gateway_url_accepts_addresses_with_and_without_version(given: str, meant: str) -> None:
    assert gateway_url(given, {}) == meant


@pytest.mark.parametrize(
    "given",
    [
        "ftp://gateway",
        "http://",
        "http://gateway:port",
        "http://gateway:99999",
        "http://gateway:0",
        "http://[::1",
        "http://gateway?x=1",
        "http://gateway#x",
        "http://gate way",
        "http://gatewäy",
        "http://gate\r\nway",
        "http://gate\x1b[2Jway",
        "\x1b]0;",
    ],
)
def test_gateway_url_rejects_invalid_addresses(given: str) -> None:
    with pytest.raises(InvalidUsage, match=r"invalid gateway URL .*: expected a URL such as http://127\.0\.0\.1:8080"):
        gateway_url(given, {})


def test_gateway_url_rejects_a_password_without_showing_it() -> None:
    with pytest.raises(InvalidUsage, match=r"set the key in \$ANTIPHON_API_KEY") as raised:
        gateway_url("http://me:secret@gateway", {})
    assert "secret" not in str(raised.value)


def test_gateway_url_prefers_option_then_environment_then_default() -> None:
    environ = {"ANTIPHON_URL": "http://there:1/v1"}
    assert gateway_url("http://here:2", environ) == "http://here:2"
    assert gateway_url(None, environ) == "http://there:1"
    assert gateway_url(None, {"ANTIPHON_URL": ""}) == "http://127.0.0.1:8080"


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("[server]\nport = 9000\n", "http://127.0.0.1:9000"),
        ('[server]\nhost = "0.0.0.0"\nport = 9000\n', "http://127.0.0.1:9000"),
        ('[server]\nhost = "::1"\nport = 9000\n', "http://[::1]:9000"),
        ('[server]\nhost = "10.0.0.1"\nport = 9000\n', DEFAULT_URL),  # the key stays on this machine
        ("[server]\nport = 0\n", DEFAULT_URL),
        ('[server]\nport = "x"\n', DEFAULT_URL),
        ("[server\n", DEFAULT_URL),
        ("server = 1", DEFAULT_URL),
        ("", DEFAULT_URL),
    ],
)
def test_gateway_url_follows_the_configuration_of_the_folder(tmp_path: Path, text: str, url: str) -> None:
    (tmp_path / "antiphon.toml").write_text(text)
    assert gateway_url(None, {}, tmp_path) == url
    assert gateway_url(None, {"ANTIPHON_URL": "http://there:1"}, tmp_path) == "http://there:1"
    assert gateway_url(None, {"ANTIPHON_CONFIG": "missing.toml"}, tmp_path) == DEFAULT_URL


@pytest.mark.parametrize("key", ["a\r\nb: c", "schlüssel", "a\x00b"])
def test_gateway_key_rejects_invalid_characters_without_showing_them(key: str) -> None:
    with pytest.raises(InvalidUsage) as raised:
        gateway_key({"ANTIPHON_API_KEY": key})
    assert key not in str(raised.value)


def test_gateway_key_strips_spaces() -> None:
    assert gateway_key({"ANTIPHON_API_KEY": " sk-1\n"}) == "sk-1"
    assert gateway_key({}) is None


def test_default_url_is_that_of_the_client() -> None:
    assert DEFAULT_URL == server.DEFAULT_URL
