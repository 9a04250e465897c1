"""The setting that each experiment decides: a server accepts it, refuses it alone, or answers it without an effect."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Collection
from functools import cache
from typing import Any, Final, NamedTuple, get_args

import pytest
from tests.probe.agreeable_server import URL, AgreeableServer, expected_requests, experiment_ids
from tests.probe.probe_runs import make_target, run_probe

from antiphon.dialects.dialect import ServerDialectName
from antiphon.probe import ollama_steps
from antiphon.probe.samples import EFFORTS
from antiphon.testing import ChatServer, GeminiServer, MessagesServer, OllamaServer, ResponsesServer
from antiphon.testing.harness import FakeServer

#: The quirks of a profile under `quirks`, and its wire options under their names. None in a change: not in the profile.
Settings = dict[str, Any]
NOTHING: Final[Settings] = {}
DIALECTS: Final[tuple[ServerDialectName, ...]] = get_args(ServerDialectName)

#: The settings of a server that accepts every experiment.
ACCEPTING: Final[dict[ServerDialectName, Settings]] = {
    "responses": {"counts_tokens": True},
    "chat": {
        "developer": "developer",
        "counts_tokens": True,
        "fields": [
            "temperature",
            "top_p",
            "presence_penalty",
            "frequency_penalty",
            "logprobs",
            "top_logprobs",
            "stop",
            "seed",
            "user",
            "metadata",
            "service_tier",
            "safety_identifier",
            "prompt_cache_key",
            "verbosity",
            "parallel_tool_calls",
            "reasoning_effort",
        ],
    },
    "messages": {
        "system": "inline",
        "strict_tools": True,
        "counts_tokens": True,
        "unsigned_thinking": True,
        "auto_cache": True,
        "json_output": "output_config",
        "thinking": "adaptive",
        "efforts": ["low", "medium", "high", "xhigh", "max"],
        "thinking_display": True,
        "fields": ["temperature", "top_p", "top_k", "stop_sequences", "metadata", "service_tier"],
    },
    "gemini": {
        "call_ids": True,
        "ends_with_model": True,
        "thinking": "level",
        "fields": [
            "temperature",
            "topP",
            "topK",
            "stopSequences",
            "seed",
            "presencePenalty",
            "frequencyPenalty",
            "responseLogprobs",
            "logprobs",
            "maxOutputTokens",
        ],
    },
    "ollama": {},
}


class Row(NamedTuple):
    """What one experiment decides, beside other experiments that the server refuses in any case. Each change is against
    a server that accepts every experiment."""

    id: str
    #: The change if the server refuses this experiment.
    refused: Settings
    #: The change if the server accepts this experiment.
    accepted: Settings = NOTHING
    beside: tuple[str, ...] = ()
    #: The change if the server answers this experiment without an effect; None if it is the change of a refusal.
    ignored: Settings | None = None


def without(dialect: ServerDialectName, *fields: str) -> Settings:
    return {"fields": [name for name in ACCEPTING[dialect]["fields"] if name not in fields]}


def efforts_without(words: Collection[str], word: str) -> Settings:
    return {"efforts": [other for other in words if other != word]}


#: Experiments that are reported and decide no setting.
REPORTED: Final[dict[ServerDialectName, tuple[str, ...]]] = {
    "responses": (
        "tools",
        "result.alone",
        "result.after-text",
        "calls.as-text",
        "developer.middle",
        "user.parts",
        "output.parts",
        "calls.text-before",
        "calls.parallel",
        "calls.unanswered",
        "tools.none",
        "tools.parallel",
        "format.json",
        "stream",
    ),
    "chat": (
        "assistant.string",
        "assistant.parts",
        "result.alone",
        "result.after-text",
        "calls.as-text",
        "system",
        "user.string",
        "user.parts",
        "result.parts",
        "calls.text-before",
        "calls.parallel",
        "calls.unanswered",
        "file",
        "result.image",
        "tools.none",
        "tools.parallel",
        "tools.custom",
        "stream",
    ),
    "messages": (
        "minimal",
        "limit.max_tokens",
        "tools.required",
        "tools.named",
        "assistant.string",
        "assistant.parts",
        "result.alone",
        "result.after-text",
        "calls.as-text",
        "system.blocks",
        "user.twice",
        "calls.parallel",
        "calls.unanswered",
        "tools.none",
        "tools.parallel",
        "stream",
    ),
    "gemini": (
        "system",
        "assistant.parts",
        "result.alone",
        "result.after-text",
        "calls.as-text",
        "tools.required",
        "tools.none",
        "tools.parallel",
        "stream",
        "field.unknown",
    ),
    "ollama": (
        "field.unknown",
        "system",
        "system.middle",
        "tools",
        "calls.bare",
        "calls.as-text",
        "assistant.last",
        "result.alone",
        "thinking.history",
        "format.schema",
        "format.json",
        "think.off",
        "logprobs",
        "keep_alive",
        "stream",
        "limit.num_predict",
        *(f"field.{name}" for name in ollama_steps.FIELDS),
    ),
}
ALL_TO_INSTRUCTIONS: Final = {"name": "system_to_instructions", "move": "all"}
INSTRUCTIONS_TO_DEVELOPER: Final = {"name": "instructions_to_system", "role": "developer"}
NOT_THE_ASSISTANT: Final = {"name": "strings_as_parts", "roles": ["user", "system", "developer"]}
OPEN_CALLS: Final = ("calls.null", "calls.paired", "calls.absent")
WITH_REASONING: Final[Settings] = {"reasoning_field": "reasoning_content", "reasoning_history": "all"}
DECIDING: Final[dict[ServerDialectName, list[Row]]] = {
    "responses": [
        Row("field.unknown", {"extra_fields": []}),
        Row("cache.breakpoint", {"breakpoint_models": []}),
        Row("minimal", {"quirks": ["media_as_notes", "parts_as_strings"]}),
        Row("limit.max_output_tokens", {"lacks": ["max_output_tokens"]}),
        # Roles.
        Row("developer", {"quirks": ["developer_as_system"]}),
        Row("system", {"quirks": ["system_as_developer"]}),
        Row(
            "system",
            {"quirks": ["developer_as_system", ALL_TO_INSTRUCTIONS]},
            accepted={"quirks": ["developer_as_system"]},
            beside=("developer",),
        ),
        Row("system.middle", {"quirks": [ALL_TO_INSTRUCTIONS]}),
        Row("instructions", {"quirks": ["instructions_to_system"]}),
        Row(
            "instructions",
            {"quirks": [INSTRUCTIONS_TO_DEVELOPER, "system_as_developer"]},
            accepted={"quirks": ["system_as_developer"]},
            beside=("system",),
        ),
        Row(
            "instructions",
            {"quirks": ["instructions_to_system", "developer_as_system"]},
            accepted={"quirks": ["developer_as_system"]},
            beside=("developer",),
        ),
        Row(
            "instructions",
            {"quirks": ["developer_as_system", ALL_TO_INSTRUCTIONS]},
            accepted={"quirks": ["developer_as_system", ALL_TO_INSTRUCTIONS]},
            beside=("developer", "system"),
        ),
        Row(
            "instructions",
            {"quirks": ["instructions_to_system"]},
            accepted={"quirks": [ALL_TO_INSTRUCTIONS]},
            beside=("system.middle",),
        ),
        # Turns of the assistant.
        Row("assistant.output_text", {"quirks": ["assistant_as_string"]}),
        Row("assistant.refusal", {"quirks": ["assistant_as_string"]}),
        Row("assistant.string", NOTHING),
        Row(
            "assistant.string",
            {"assistant_content": "input_text"},
            accepted={"quirks": ["assistant_as_string"]},
            beside=("assistant.output_text",),
        ),
        Row("assistant.string", NOTHING, accepted={"quirks": ["assistant_as_string"]}, beside=("assistant.refusal",)),
        Row("assistant.input_text", NOTHING),
        Row(
            "assistant.input_text",
            NOTHING,
            accepted={"assistant_content": "input_text"},
            beside=("assistant.output_text", "assistant.string"),
        ),
        # Strings and parts.
        Row("input.string", {"quirks": ["strings_as_parts"]}),
        Row("user.string", {"quirks": ["strings_as_parts"]}),
        Row(
            "user.string",
            {"quirks": ["assistant_as_string", NOT_THE_ASSISTANT]},
            accepted={"quirks": ["assistant_as_string"]},
            beside=("assistant.output_text",),
        ),
        # Calls, reasoning and other items.
        Row("calls.paired", {"quirks": ["tool_results_in_user_messages"]}),
        Row("calls.blocks", NOTHING),
        Row(
            "calls.blocks",
            {"quirks": ["tool_history_as_text"]},
            accepted={"quirks": ["tool_results_in_user_messages"]},
            beside=("calls.paired",),
        ),
        Row("reasoning.content", {"quirks": ["drop_reasoning"]}),
        Row("reasoning.summary", {"quirks": ["open_reasoning"]}),
        Row(
            "reasoning.content",
            {"quirks": ["drop_reasoning"]},
            accepted={"quirks": ["open_reasoning"]},
            beside=("reasoning.summary",),
        ),
        Row("item.custom-call", {"extension_tools": "flatten"}),
        Row("tools.custom", {"extension_tools": "flatten"}),
        Row("item.unknown", {"unknown_items": "drop"}),
        Row("item.ids", {"quirks": ["drop_item_ids"]}),
        Row("item.status", {"status_fields": "drop"}),
        Row("item.phase", {"phase": "drop"}),
        Row("item.cache_control", {"quirks": ["strip_cache_control"]}),
        Row("image", {"quirks": ["images_as_notes"]}),
        Row("file", {"quirks": ["files_as_notes"]}),
        Row(
            "image",
            {"quirks": ["media_as_notes"]},
            accepted={"quirks": ["files_as_notes"]},
            beside=("file",),
        ),
        # Tools, formats and settings.
        Row("tools.required", NOTHING),
        Row("tools.named", NOTHING),
        Row("tools.required", {"lacks": ["tool_choice"]}, beside=("tools.named",), ignored=NOTHING),
        Row("tools.named", {"lacks": ["tool_choice"]}, beside=("tools.required",), ignored=NOTHING),
        Row("format.schema", {"lacks": ["text.format"]}),
        *(
            Row(f"field.{name}", {"lacks": [name]})
            for name in (
                "temperature",
                "top_p",
                "presence_penalty",
                "frequency_penalty",
                "top_logprobs",
                "metadata",
                "include",
                "truncation",
                "service_tier",
                "safety_identifier",
                "prompt_cache_key",
                "user",
                "store",
                "max_tool_calls",
                "text.verbosity",
                "parallel_tool_calls",
            )
        ),
        Row(
            "field.user",
            {"lacks": ["temperature", "user"]},
            accepted={"lacks": ["temperature"]},
            beside=("field.temperature",),
        ),
        Row("effort.low", {"lacks": ["reasoning"]}),
        *(Row(f"effort.{word}", efforts_without(EFFORTS, word)) for word in EFFORTS if word != "low"),
        # The answer.
        Row("cut", {"cut": "by_usage"}),
        Row("counts", {"counts_tokens": None}),
    ],
    "chat": [
        Row("field.unknown", {"extra_fields": []}),
        Row("part.unknown", {"cache_marks": "cache_control"}),
        Row(
            "cache.control",
            {"cache_marks": "prompt_cache_breakpoint"},
            {"cache_marks": "cache_control"},
            beside=("part.unknown",),
        ),
        Row(
            "cache.breakpoint",
            NOTHING,
            {"cache_marks": "prompt_cache_breakpoint"},
            beside=("part.unknown", "cache.control"),
        ),
        Row("minimal", {"text_content": "parts"}),
        Row("limit.max_tokens", {"max_tokens": "max_completion_tokens"}),
        Row("limit.max_completion_tokens", NOTHING),
        Row(
            "limit.max_completion_tokens",
            NOTHING,
            accepted={"max_tokens": "max_completion_tokens"},
            beside=("limit.max_tokens",),
        ),
        Row("developer", {"developer": None}),
        Row("system.middle", {"system": "first"}),
        # Calls in the history.
        Row("calls.null", {"empty_content": "empty"}),
        Row("calls.paired", NOTHING),
        Row(
            "calls.paired",
            {"empty_content": "absent"},
            accepted={"empty_content": "empty"},
            beside=("calls.null",),
        ),
        Row("calls.absent", NOTHING),
        Row(
            "calls.absent",
            WITH_REASONING,
            accepted={"empty_content": "absent"},
            beside=("calls.null", "calls.paired"),
        ),
        Row("calls.reasoning", NOTHING),
        Row(
            "calls.reasoning",
            {"reasoning_field": "reasoning", "reasoning_history": "all"},
            accepted=WITH_REASONING,
            beside=OPEN_CALLS,
        ),
        Row("calls.thought", NOTHING),
        Row(
            "calls.thought",
            {"quirks": ["tool_history_as_text"]},
            accepted={"reasoning_field": "reasoning", "reasoning_history": "all"},
            beside=(*OPEN_CALLS, "calls.reasoning"),
        ),
        Row("image", {"images": False}),
        # Tools, formats and settings.
        Row("tools", {"free_tools": False}),
        Row("tools.strict", {"strict_tools": False}),
        Row("tools.required", {"forced_tools": "schema"}),
        Row("tools.named", {"forced_tools": "schema"}),
        Row("format.schema", {"json_output": "json_object"}),
        Row(
            "format.schema",
            {"json_output": "json_object", "forced_tools": "none"},
            accepted={"forced_tools": "schema"},
            beside=("tools.required",),
        ),
        Row("format.json", NOTHING),
        Row(
            "format.json",
            {"json_output": "none"},
            accepted={"json_output": "json_object"},
            beside=("format.schema",),
        ),
        *(
            Row(f"field.{name}", without("chat", name))
            for name in ACCEPTING["chat"]["fields"]
            if name != "reasoning_effort"
        ),
        Row("effort.low", without("chat", "reasoning_effort")),
        *(Row(f"effort.{word}", efforts_without(EFFORTS, word)) for word in EFFORTS if word != "low"),
        # The answer.
        Row("stream.usage", {"stream_usage": False}),
        Row("counts", {"counts_tokens": None}),
    ],
    "messages": [
        Row("field.unknown", {"extra_fields": []}),
        Row("cache.control", {"quirks": ["strip_cache_control"]}),
        Row("system", {"system": None}),
        Row("system.middle", {"system": None}),
        Row("calls.paired", {"quirks": ["tool_history_as_text"]}),
        Row("image", {"images": False}),
        Row("document", {"documents": False}),
        # Tools and formats.
        Row("tools", {"strict_tools": None}),
        Row("tools.strict", {"strict_tools": None}),
        Row("format.output_config", {"json_output": "output_format"}),
        Row("format.output_format", NOTHING),
        Row(
            "format.output_format",
            {"json_output": None},
            accepted={"json_output": "output_format"},
            beside=("format.output_config",),
        ),
        # Thinking.
        Row("thinking.unsigned", {"unsigned_thinking": None}),
        Row("thinking.adaptive", {"thinking": None, "efforts": None, "thinking_display": None}),
        Row("thinking.display", {"thinking_display": None}),
        Row("thinking.budget", NOTHING),
        Row(
            "thinking.budget",
            {"thinking": "none", "efforts": None, "thinking_display": None},
            accepted={"thinking": None, "efforts": None, "thinking_display": None},
            beside=("thinking.adaptive",),
        ),
        Row("effort.low", {"thinking": None, "efforts": None, "thinking_display": None}),
        *(
            Row(f"effort.{word}", efforts_without(ACCEPTING["messages"]["efforts"], word))
            for word in ("medium", "high", "xhigh", "max")
        ),
        # Settings and the answer.
        *(Row(f"field.{name}", without("messages", name)) for name in ACCEPTING["messages"]["fields"]),
        Row("samplings", {"both_samplings": False}),
        Row("cache.auto", {"auto_cache": None}),
        Row("counts", {"counts_tokens": None}),
    ],
    "gemini": [
        Row("limit.maxOutputTokens", without("gemini", "maxOutputTokens")),
        Row("model.last", {"ends_with_model": None}),
        Row("calls.ids", {"call_ids": None}),
        Row("calls.paired", NOTHING),
        Row(
            "calls.paired",
            {"call_ids": None, "quirks": ["tool_history_as_text"]},
            accepted={"call_ids": None},
            beside=("calls.ids",),
        ),
        Row("image", {"quirks": ["images_as_notes"]}),
        Row("file", {"quirks": ["files_as_notes"]}),
        Row("image", {"quirks": ["media_as_notes"]}, accepted={"quirks": ["files_as_notes"]}, beside=("file",)),
        # Tools and formats.
        Row("tools", {"schemas": "openapi"}),
        Row("tools.openapi", NOTHING),
        Row("tools.openapi", NOTHING, accepted={"schemas": "openapi"}, beside=("tools",)),
        Row("format.schema", {"schemas": "openapi"}),
        Row("format.openapi", NOTHING),
        Row(
            "format.openapi",
            {"json_output": "json_object"},
            accepted={"schemas": "openapi"},
            beside=("format.schema",),
        ),
        Row("format.json", NOTHING),
        Row(
            "format.json",
            {"json_output": "none"},
            accepted={"json_output": "json_object"},
            beside=("format.schema", "format.openapi"),
        ),
        # Thinking and settings.
        Row("thinking.level", {"thinking": None}),
        Row("thinking.budget", NOTHING),
        Row("thinking.budget", {"thinking": "none"}, accepted={"thinking": None}, beside=("thinking.level",)),
        *(
            Row(f"field.{name}", without("gemini", name))
            for name in ACCEPTING["gemini"]["fields"]
            if name not in ("responseLogprobs", "logprobs", "maxOutputTokens")
        ),
        Row("field.responseLogprobs", without("gemini", "responseLogprobs", "logprobs")),
        Row("counts", {"counts_tokens": False}),
    ],
    "ollama": [
        Row("calls.paired", {"quirks": ["tool_history_as_text"]}),
        Row("image", {"images": False}),
        Row("think", {"thinking": False}),
        Row("think.level", {"levels": []}),
    ],
}


def rows(dialect: ServerDialectName) -> list[Row]:
    return [*DECIDING[dialect], *(Row(id, NOTHING) for id in REPORTED[dialect])]


def cases(*, inspected: bool = False) -> list[Any]:
    """Every row of every dialect; or only the rows of experiments whose answers are inspected."""
    chosen: list[tuple[ServerDialectName, Row]] = []
    for dialect in DIALECTS:
        ids = {request.id for request in expected_requests(dialect) if request.inspection or not inspected}
        chosen += [(dialect, row) for row in rows(dialect) if row.id in ids]
    return [pytest.param(*case, id=" ".join((case[0], case[1].id, *case[1].beside))) for case in chosen]


def changed(dialect: ServerDialectName, change: Settings) -> Settings:
    return {name: value for name, value in {**ACCEPTING[dialect], **change}.items() if value is not None}


@cache
def probed_settings(
    dialect: ServerDialectName, *, refused: tuple[str, ...] = (), ignored: tuple[str, ...] = ()
) -> Settings:
    report, _ = run_probe(make_target(URL, dialect), AgreeableServer(dialect, refused=refused, ignored=ignored))
    assert report.stopped == ""
    profile = tomllib.loads(report.profile)
    quirks = {"quirks": profile["quirks"]} if "quirks" in profile else {}
    return {**profile["wire"], **quirks} if "wire" in profile else quirks


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_experiment_has_a_row(dialect: ServerDialectName) -> None:
    """Gemini and Ollama have one form of text, so the minimal request has no other form."""
    one_form = {"minimal"} if dialect in ("gemini", "ollama") else set()
    assert {row.id for row in rows(dialect)} == experiment_ids(dialect) - one_form
    deciding = {row.id for row in DECIDING[dialect] if changed(dialect, row.refused) != changed(dialect, row.accepted)}
    assert deciding.isdisjoint(REPORTED[dialect])
    assert deciding == {row.id for row in DECIDING[dialect]}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_requests_of_experiments_differ(dialect: ServerDialectName) -> None:
    """A server can refuse each experiment alone. The members of a choice also share the request with all of them, and
    the baseline is the request for the name of the limit."""
    ids: dict[tuple[str, bytes], set[str]] = {}
    for request in expected_requests(dialect):
        if not request.id.startswith(("field.", "limit.max")) and request.id != "minimal":
            ids.setdefault((request.url, request.body), set()).add(request.id)
    assert [found for found in ids.values() if len(found) > 1] == []


@pytest.mark.parametrize("dialect", DIALECTS)
def test_settings_of_a_server_that_accepts_every_experiment(dialect: ServerDialectName) -> None:
    assert probed_settings(dialect) == ACCEPTING[dialect]


@pytest.mark.slow
@pytest.mark.parametrize(("dialect", "row"), cases())
def test_refused_experiment_decides_its_setting(dialect: ServerDialectName, row: Row) -> None:
    """D-4: no other setting changes."""
    assert probed_settings(dialect, refused=row.beside) == changed(dialect, row.accepted)
    assert probed_settings(dialect, refused=(*row.beside, row.id)) == changed(dialect, row.refused)


@pytest.mark.slow
@pytest.mark.parametrize(("dialect", "row"), cases(inspected=True))
def test_experiment_without_effect_decides_its_setting(dialect: ServerDialectName, row: Row) -> None:
    """D-4: no other setting changes."""
    expected = row.refused if row.ignored is None else row.ignored
    assert probed_settings(dialect, refused=row.beside, ignored=(row.id,)) == changed(dialect, expected)


#: Experiments that a strict server of each dialect does not accept, and a word of its error.
STRICT: Final[dict[ServerDialectName, tuple[Callable[[], FakeServer], dict[str, str]]]] = {
    "responses": (
        ResponsesServer,
        {
            "result.alone": "'call_probe_1'",
            "result.after-text": "'call_probe_1'",
            "assistant.input_text": "'input_text'",
            "calls.unanswered": "call_probe_1",
            "calls.blocks": "'tool_result'",
            "item.unknown": "'antiphon:note'",
            "item.cache_control": "cache_control",
            "counts": "404",
        },
    ),
    "chat": (
        ChatServer,
        {
            "result.alone": "'call_probe_1'",
            "result.after-text": "'call_probe_1'",
            "calls.unanswered": "call_probe_1",
            "result.image": "'image_url'",
            "counts": "404",
        },
    ),
    "messages": (
        MessagesServer,
        {
            "field.unknown": "probe_unknown_field",
            "result.alone": "toolu_probe_1",
            "result.after-text": "toolu_probe_1",
            "system.middle": '"system"',
            "user.twice": '"user"',
            "calls.unanswered": "toolu_probe_1",
            "thinking.unsigned": "`signature`",
            "format.output_format": "output_format",
            "samplings": "`top_p`",
        },
    ),
    "gemini": (
        GeminiServer,
        {
            "field.unknown": "probeUnknownField",
            "result.alone": "function response",
            "result.after-text": "function response",
            "model.last": "user role",
        },
    ),
    "ollama": (OllamaServer, {}),
}


@pytest.mark.io
@pytest.mark.parametrize("dialect", DIALECTS)
def test_strict_server_accepts_the_experiments(dialect: ServerDialectName) -> None:
    """D-4: the requests have the form of the API, so a strict server refuses only what an experiment does wrong."""
    make, words = STRICT[dialect]
    with make() as server:
        report, findings = run_probe(make_target(server.base_url, dialect))
    assert report.stopped == ""
    ids = experiment_ids(dialect)
    problems = {id: finding for id, finding in findings.items() if id in ids and finding.verdict != "accepted"}
    assert problems.keys() == words.keys()
    assert [id for id, word in words.items() if word not in problems[id].detail] == []
