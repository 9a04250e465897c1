"""The configuration from a file or from the environment: where it is looked for, how it is read, and its errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from antiphon.config import (
    Config,
    ModelRule,
    RetryConfig,
    Timeouts,
    default_config,
    find_config,
    load_config,
    parse_config,
)
from antiphon.dialects.registry import SERVER_DIALECT_NAMES
from antiphon.errors import ConfigError

DIALECT_NAMES = ", ".join(f'"{name}"' for name in sorted(SERVER_DIALECT_NAMES))
LAB = '[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "http://127.0.0.1:9001/v1"\n'
CONTRACT = """
[server]
host = "127.0.0.1"
port = 8080
workers = 1
[[upstreams]]
name = "lab"
dialect = "chat"                     # responses | chat
base_url = "http://127.0.0.1:9001/v1"
api_key_env = "LAB_KEY"              # optional
models = ["mock-*", { from = "fast", to = "mock-1" }]
profile = "chat"                     # optional
[[keys]]
name = "alice"
env = "ALICE_KEY"
[timeouts]
connect = 5.0
first_byte = 60.0
idle = 60.0
total = 600.0
[trace]
dir = "traces"
"""


def refusal(text: str, environ: dict[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "antiphon.toml", environ or {})
    return str(caught.value)


def test_removed_setting_is_refused_with_line_and_remedy() -> None:
    assert refusal("[server]\nport = 1\nrecall_mib = 0\n") == (
        "antiphon.toml, line 3: server.recall_mib was removed in 0.1: "
        "conversations are no longer cached; delete the line"
    )


def test_table_of_the_wrong_type_is_refused_before_removed_settings() -> None:
    assert "server" in refusal('server = "recall_mib"\n')


# Where it is looked for


def test_find_config_prefers_argument_then_variable_then_folder(tmp_path: Path) -> None:
    environ = {"ANTIPHON_CONFIG": "named.toml"}
    assert find_config(None, {"ANTIPHON_CONFIG": ""}, tmp_path) is None
    (tmp_path / "antiphon.toml").write_text(LAB, encoding="utf-8")
    assert find_config(None, {}, tmp_path) == tmp_path / "antiphon.toml"
    assert find_config(None, environ, tmp_path) == tmp_path / "named.toml"
    assert find_config(Path("given.toml"), environ, tmp_path) == tmp_path / "given.toml"
    assert find_config(Path("/etc/given.toml"), environ, tmp_path) == Path("/etc/given.toml")


def test_find_config_ignores_a_folder_with_the_name(tmp_path: Path) -> None:
    (tmp_path / "antiphon.toml").mkdir()
    assert find_config(None, {}, tmp_path) is None


def test_file_with_byte_order_mark_and_crlf_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_bytes(b"\xef\xbb\xbf" + LAB.replace("\n", "\r\n").encode())
    assert [upstream.name for upstream in load_config(file, {}).upstreams] == ["lab"]


def test_unreadable_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: cannot read the file: No such file"):
        load_config(tmp_path / "none.toml", {})
    (tmp_path / "bad.toml").write_bytes(b'[server]\nhost = "\xff"')
    with pytest.raises(ConfigError, match=r"bad\.toml: not valid UTF-8"):
        load_config(tmp_path / "bad.toml", {})


# How it is read


def test_full_configuration_is_read() -> None:
    config = parse_config(CONTRACT, "antiphon.toml", {"LAB_KEY": "sk-lab", "ALICE_KEY": "sk-alice"})
    (lab,) = config.upstreams
    assert (config.server.host, config.server.port, config.server.workers) == ("127.0.0.1", 8080, 1)
    assert (lab.name, lab.dialect, lab.base_url, lab.profile) == ("lab", "chat", "http://127.0.0.1:9001/v1", "chat")
    assert lab.models == ["mock-*", ModelRule(from_="fast", to="mock-1")]
    assert config.timeouts == Timeouts()
    assert config.trace.dir == "traces"
    assert [key.name for key in config.keys] == ["alice"]


def test_defaults_are_as_documented() -> None:
    config = parse_config(LAB, "antiphon.toml", {})
    assert config == Config(upstreams=config.upstreams)
    assert config.upstreams[0].models == ["*"]
    assert config.upstreams[0].timeouts is None


def test_trailing_slash_of_a_url_is_ignored() -> None:
    assert parse_config(LAB.replace('/v1"', '/v1/"'), "a.toml", {}) == parse_config(LAB, "a.toml", {})


def test_timeouts_of_an_upstream_override_the_common_ones() -> None:
    config = parse_config("[timeouts]\nidle = 7\n" + LAB + "[upstreams.timeouts]\ntotal = 30\n", "a.toml", {})
    assert config.timeouts == Timeouts(idle=7.0)
    assert config.upstreams[0].timeouts == Timeouts(idle=7.0, total=30.0)
    assert parse_config(LAB + "[upstreams.timeouts]\n", "a.toml", {}).upstreams[0].timeouts is None


def test_relative_paths_are_resolved_from_the_folder_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('about = "mine"\nextends = "chat"\n', encoding="utf-8")
    config = parse_config(LAB + 'profile = "./mine.toml"\n[trace]\ndir = "traces"\n', tmp_path / "antiphon.toml", {})
    assert config.upstreams[0].profile == str(tmp_path / "mine.toml")
    assert config.trace.dir == str(tmp_path / "traces")
    elsewhere = parse_config('[trace]\ndir = "/var/traces"\n', tmp_path / "antiphon.toml", {})
    assert elsewhere.trace.dir == "/var/traces"


def test_profile_name_prefers_a_file_beside_the_configuration(tmp_path: Path) -> None:
    """D-1: it has precedence over the shipped one of that name, which it may extend; its content is checked with line
    numbers."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    (folder / "chat.toml").write_text('about = "mine"\nextends = "chat"\n', encoding="utf-8")
    config = parse_config(LAB + 'profile = "chat"\n', tmp_path / "antiphon.toml", {})
    assert config.upstreams[0].profile == str(folder / "chat.toml")
    assert parse_config(LAB + 'profile = "groq"\n', tmp_path / "antiphon.toml", {}).upstreams[0].profile == "groq"
    (folder / "chat.toml").write_text(
        'about = "mine"\nextends = "chat"\nquirks = ["drop_reasonin"]\n', encoding="utf-8"
    )
    with pytest.raises(
        ConfigError, match=r"profiles/chat\.toml, line 3: quirks: unknown quirk 'drop_reasonin'; did you mean"
    ):
        parse_config(LAB + 'profile = "chat"\n', tmp_path / "antiphon.toml", {})


@pytest.mark.parametrize("url", ["sqlite:////var/a.db", "postgresql://anna:sesame@db/antiphon", "off"])
def test_store_url_is_read_unchanged(url: str, tmp_path: Path) -> None:
    assert parse_config(f'[store]\nurl = "{url}"\n', tmp_path / "antiphon.toml", {}).store.url == url


def test_relative_store_file_is_resolved_from_the_folder_of_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "100% mine"
    config = parse_config('[store]\nurl = "sqlite:///kept/a%3F.db"\n', folder / "antiphon.toml", {})
    assert config.store.url == f"sqlite:///{tmp_path}/100%25%20mine/kept/a%3F.db"
    assert parse_config("", folder / "antiphon.toml", {}).store.url is None


def test_default_config_serves_only_the_embedded_model() -> None:
    (local,) = default_config({}).upstreams
    assert local.embedded
    assert local.upstream_model("local") == "local"
    assert local.upstream_model("gpt-5") is None
    assert default_config({}) == Config(upstreams=[local])


def test_default_config_serves_providers_whose_variable_is_set() -> None:
    assert [
        upstream.name for upstream in default_config({"GROQ_API_KEY": "gsk-1", "OPENAI_API_KEY": ""}).upstreams
    ] == [
        "local",
        "groq",
    ]


def test_file_without_upstreams_has_the_default_upstreams() -> None:
    environ = {"GROQ_API_KEY": "gsk-1"}
    config = parse_config("[server]\nport = 9000\n", "antiphon.toml", environ)
    assert config.upstreams == default_config(environ).upstreams
    assert config.server.port == 9000


def test_invalid_key_in_a_default_variable_is_reported_but_not_shown() -> None:
    with pytest.raises(ConfigError, match="the environment variable GROQ_API_KEY contains spaces") as caught:
        default_config({"GROQ_API_KEY": "gsk 1"})
    assert "gsk 1" not in str(caught.value)
    assert refusal("[server]\n", {"GROQ_API_KEY": "gsk 1"}).startswith(
        "antiphon.toml: upstreams[1].api_key_env: the environment"
    )


# Errors


@pytest.mark.parametrize(
    ("text", "line", "expected"),
    [
        ("[server]\nprot = 80", 2, "server.prot: unknown setting; did you mean 'port'?"),
        ("[sever]\nport = 80", 1, "sever: unknown setting; did you mean 'server'?"),
        ("[server]\nport = 65536", 2, "server.port: expected an integer from 0 to 65535, got 65536"),
        ('[server]\nport = "80"', 2, 'server.port: expected an integer from 0 to 65535, got "80"'),
        (
            '[server]\nlog = "jsno"',
            2,
            'server.log: expected one of "auto", "json", "pretty", got "jsno"; did you mean \'json\'?',
        ),
        ("[server]\nallowed_hosts = [1]", 2, "server.allowed_hosts: expected an array of strings, got [1]"),
        ("[server]\ngrace = -1", 2, "server.grace: expected a number from 0 to 3600, got -1"),
        ("server = 3", 1, "server: expected a table, got 3"),
        ("[upstreams]\nname = 'x'", 1, 'upstreams: expected an array of tables, got {"name":"x"}'),
        (LAB + '\napi_key = "sk-1"', 6, "upstreams[0].api_key: unknown setting; did you mean 'api_key_env'?"),
        (
            LAB + LAB.replace('dialect = "chat"\n', ""),
            5,
            f"upstreams[1].dialect is missing: expected one of {DIALECT_NAMES}",
        ),
        (
            LAB.replace('"chat"', '"chatt"'),
            3,
            f'upstreams[0].dialect: expected one of {DIALECT_NAMES}, got "chatt"; did',
        ),
        (
            LAB + "models = [\n'a',\n{ form = 'b', to = 'c' },\n]",
            7,
            "upstreams[0].models[1].form: unknown setting; did you mean 'from'?",
        ),
        (LAB + "models = [\n'a',\n{ to = 'c' },\n]", 7, "upstreams[0].models[1].from is missing: expected a string"),
        (LAB + "models = [\n'a',\n3,\n]", 7, "upstreams[0].models[1]: expected a string or a table, got 3"),
        (LAB + "models = 'a'", 5, 'upstreams[0].models: expected an array of strings or tables, got "a"'),
        (
            LAB + "[upstreams.timeouts]\nfirst = 3",
            6,
            "upstreams[0].timeouts.first: unknown setting; did you mean 'first_byte'?",
        ),
        (
            LAB + "[upstreams.timeouts]\nidle = 0",
            6,
            "upstreams[0].timeouts.idle: expected a number above 0, at most 86400, got 0",
        ),
        ("[timeouts]\n\nconnect = inf", 3, "timeouts.connect: expected a number above 0, at most 86400, got inf"),
        ("[timeouts]\nconnect = nan", 2, "timeouts.connect: expected a number above 0, at most 86400, got nan"),
        ("[timeouts]\nconnect = true", 2, "timeouts.connect: expected a number above 0, at most 86400, got true"),
        ("[trace]\nmax_days = inf", 2, "trace.max_days: expected a number above 0, at most 36500, got inf"),
        # Rules between settings are reported with their line too.
        (LAB + 'api_key_env = "MISSING"', 5, "upstreams[0].api_key_env: the environment variable MISSING is not set"),
        (LAB + LAB, 6, "upstreams[1].name: duplicate name 'lab'"),
        (LAB + 'profile = "chatt"', 5, "upstreams[0].profile: unknown profile 'chatt'; did you mean 'chat'?"),
        (
            '[[upstreams]]\nname = "x"\ndialect = "chat"',
            1,
            "upstreams[0].base_url: missing: expected the URL of a server",
        ),
        (LAB + '[server]\nhost = "0.0.0.0"', 6, 'server.host: other machines can reach "0.0.0.0"'),
        (
            LAB + "[[models]]\nname = 'm'\ntargets = [\n{ upstream = 'lba', model = 'x' },\n]",
            8,
            "models[0].targets[0].upstream: no upstream has the name \"lba\"; did you mean 'lab'?",
        ),
        (
            LAB + "[[models]]\nname = 'm'\ntargets = [{ upstream = 'lab' }]",
            7,
            "models[0].targets[0].model is missing: expected a string",
        ),
        ("[retry]\nround = 3", 2, "retry.round: unknown setting; did you mean 'rounds'?"),
        (LAB + "[[keys]]\nname = 'alice'", 5, "keys[0]: the key 'alice' has neither sha256 nor env"),
    ],
)
def test_errors_have_file_line_path_and_remedy(text: str, line: int, expected: str) -> None:
    assert refusal(text).startswith(f"antiphon.toml, line {line}: {expected}")


def test_invalid_toml_is_an_error() -> None:
    assert refusal("[server").startswith("antiphon.toml: not valid TOML: ")


def test_own_retry_of_a_model_inherits_the_other_values() -> None:
    target = "targets = [{ upstream = 'lab', model = 'x' }]\n"
    text = f"{LAB}[retry]\nrounds = 4\n[[models]]\nname = 'a'\n{target}[models.retry]\ndeadline = 9.0\n"
    config = parse_config(f"{text}[[models]]\nname = 'b'\n{target}", "antiphon.toml", {})
    own, inherited = config.models
    assert own.retry == RetryConfig(rounds=4, deadline=9.0)
    assert inherited.retry is None
    assert config.retry == RetryConfig(rounds=4, deadline=120.0)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("upstreams = [5]\n[server]\nport = -1\n", ["upstreams[0]", "server.port"]),
        ('[[models]]\nname = "m"\n[server]\nroot_path = "x"\n', ["models[0].targets is missing", "server.root_path"]),
        ("[[models]]\n[[models.targets]]\n", ["targets[0].upstream", "targets[0].model", "models[0].name is missing"]),
        ("[[keys]]\n", ["keys[0].name is missing", "keys[0]: the key"]),
        ('[[upstreams]]\nbase_url = "x"\n', ["name is missing", "dialect is missing", "upstreams[0].base_url"]),
    ],
)
def test_faults_of_types_do_not_hide_other_faults(text: str, paths: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text, "antiphon.toml", {})
    lines = str(caught.value).splitlines()
    assert len(lines) == len(paths)
    for path, line in zip(paths, lines, strict=True):
        assert path in line


def test_all_faults_of_a_file_are_shown_at_once() -> None:
    text = (
        "[server]\nprot = 1\n"
        '[store]\nurl = "mysql://db"\n'
        '[[upstreams]]\nname = "lab"\ndialect = "chat"\nbase_url = "http://127.0.0.1:1"\nprofile = "vlm"\n'
        '[[models]]\nname = "fast"\ntargets = [{ upstream = "lba", model = "m" }]\n'
    )
    lines = refusal(text).splitlines()
    assert [line.split(": ", 2)[:2] for line in lines] == [
        ["antiphon.toml, line 2", "server.prot"],
        ["antiphon.toml, line 9", "upstreams[0].profile"],
        ["antiphon.toml, line 4", "store.url"],
        ["antiphon.toml, line 12", "models[0].targets[0].upstream"],
    ]
    assert "did you mean 'vllm'?" in lines[1]
    assert "begins with mysql://; expected sqlite:///relative.db" in lines[2]
    assert "did you mean 'lab'?" in lines[3]


def test_targets_are_not_judged_beside_upstreams_without_names() -> None:
    text = '[[upstreams]]\ndialect = "chat"\nbase_url = "http://127.0.0.1:1"\n[[models]]\nname = "fast"\n'
    text += 'targets = [{ upstream = "lab", model = "m" }]\n'
    assert len(refusal(text).splitlines()) == 1


def test_suggested_profile_is_of_the_same_dialect() -> None:
    message = refusal(LAB + 'profile = "gemni"\n')
    assert "unknown profile 'gemni'" in message
    assert "'gemini'" not in message
