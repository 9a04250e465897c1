"""Computes the support table of docs/dialects.md: translates every feature and compares the actual and expected output.

Usage: `PYTHONPATH=src:. python tools/dialects_page.py`. A test fails if the page is stale. A feature that disappears
without a loss is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec.structs import replace
from tools.answer_features import ANSWERS, BROKEN_STREAMS, ERROR_MESSAGE
from tools.dialect_features import Feature, Json
from tools.request_features import REQUESTS

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.dialect import FRAME_DECODERS, ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECT_NAMES, SERVER_DIALECTS
from antiphon.errors import ApiError
from antiphon.profiles import Profile, load_profile
from antiphon.protocol import codec
from antiphon.protocol.events import StreamEvent
from antiphon.protocol.items import ReasoningParam
from antiphon.protocol.losses import Loss, Losses
from antiphon.protocol.request import ReasoningConfigParam, Request, input_items
from antiphon.protocol.response import Response, make_initial_response
from antiphon.protocol.stamps import Stamps
from antiphon.protocol.tools import CustomTool, FunctionToolParam

PAGE = Path(__file__).resolve().parent.parent / "docs" / "dialects.md"
BEGIN, END = "<!-- support: made by tools/dialects_page.py -->", "<!-- end of support -->"
# The profile of the API's vendor, if there is one.
VENDOR_PROFILES: Final[dict[ServerDialectName, str]] = {
    "responses": "openai",
    "messages": "anthropic",
    "gemini": "google",
}
# If a server's features depend on the model: one of the newest models.
MODELS: Final = {"google": "gemini-3-pro-preview"}
Kind = Literal["carried", "approximated", "lost", "refused", "absent"]


SYMBOLS: Final[dict[Kind, str]] = {
    "carried": "✓",
    "approximated": "≈",
    "lost": "lost",
    "refused": "refused",
    "absent": "–",
}


class Verdict(NamedTuple):
    """The result of translating a feature in one direction, with a note for the table."""

    kind: Kind
    note: str = ""


# Returns the verdicts for one feature: to the hub, and from the hub with the default profile and the vendor's profile.
VerdictFunction = Callable[[Feature, ServerDialectName], tuple[Verdict, list[Verdict]]]


class VanishedError(Exception):
    """A feature disappeared without a loss."""


def page(text: str) -> str:
    """Returns the page with the current table."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{render_support()}\n\n{END}{tail}"


def render_support() -> str:
    notes = _Notes()
    request_rows = _render_table(REQUESTS, "client", "server", _request_verdicts, notes)
    answer_rows = _render_table(ANSWERS, "server", "client", _answer_verdicts, notes)
    errors = [notes.render_cell(verdict) for dialect in SERVER_DIALECT_NAMES for verdict in _error_verdicts(dialect)]
    answer_rows.append(f"| error in the middle of a stream | {' | '.join(errors)} |")
    tables = ["### Requests", "\n".join(request_rows), "### Answers", "\n".join(answer_rows)]
    return "\n\n".join([*tables, "### Notes", notes.render()])


class _Notes:
    """The numbered notes of verdicts."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def render_cell(self, verdict: Verdict) -> str:
        symbol = SYMBOLS[verdict.kind]
        return f"{symbol} {self._numbers.setdefault(verdict.note, len(self._numbers) + 1)}" if verdict.note else symbol

    def render(self) -> str:
        return "\n".join(f"{number}. {_to_markdown(note)}" for note, number in self._numbers.items())


def _to_markdown(note: str) -> str:
    return re.sub(r"'([^']*)'", r"`\1`", note).replace("|", "\\|")


def _render_table(
    groups: dict[str, list[Feature]], first: str, second: str, get_verdicts: VerdictFunction, notes: _Notes
) -> list[str]:
    heads = [f"{dialect} {side}" for dialect in SERVER_DIALECT_NAMES for side in (first, second)]
    rows = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for group, features in groups.items():
        rows.append(f"| **{group}** |" + " |" * len(heads))
        rows += [f"| {feature.name} | {' | '.join(_cells(feature, get_verdicts, notes))} |" for feature in features]
    return rows


def _cells(feature: Feature, get_verdicts: VerdictFunction, notes: _Notes) -> Iterable[str]:
    for dialect in SERVER_DIALECT_NAMES:
        to_hub, (default, *vendor) = get_verdicts(feature, dialect)
        yield notes.render_cell(to_hub)
        differs = vendor and vendor[0] != default
        vendor_text = f"; `{VENDOR_PROFILES[dialect]}`: {notes.render_cell(vendor[0])}" if differs else ""
        yield notes.render_cell(default) + vendor_text


# Verdicts


def judge(
    feature: Feature,
    output: bytes,
    expected: Json | None,
    losses: Iterable[Loss],
    *,
    mark_is_another_form: bool = False,
) -> Verdict:
    """Returns the verdict: carried if the output contains `expected`; else it follows from the mark and the losses.

    `mark_is_another_form` is true if the mark in the output does not show the feature in its own form.
    """
    loss_note = "; ".join(dict.fromkeys(_describe_loss(loss) for loss in losses))
    text = output.decode()
    if expected is not None and contains(msgspec.json.decode(output), expected):
        return Verdict("approximated", loss_note) if loss_note else Verdict("carried")
    has_mark = bool(feature.mark) and feature.mark in text
    if expected is None and not mark_is_another_form and has_mark and not loss_note:
        return Verdict("carried")
    if " omitted: " in loss_note:
        return Verdict("lost", "a note in the text replaces it")
    if any(mark in text for mark in (feature.mark, *feature.other_marks) if mark):
        return Verdict("approximated", feature.note or loss_note or "passed on unchanged")
    if loss_note:
        return Verdict("lost")
    if feature.absent_mark and feature.absent_mark not in text:
        return Verdict("approximated", feature.note)
    raise VanishedError(f"{feature.name}: expected {expected}, got no loss and this output: {text}")


def contains(output: Any, expected: Any) -> bool:
    """Tells whether the output contains the expected values, in the same order. A string equals one text part."""
    match expected:
        case dict():
            return isinstance(output, dict) and all(
                name in output and contains(output[name], value) for name, value in expected.items()
            )
        case list():
            rest = iter(output if isinstance(output, list) else [])
            return all(any(contains(member, value) for member in rest) for value in expected)
        case str() if expected.startswith("{") and isinstance(output, str):
            return bool(msgspec.json.decode(expected) == msgspec.json.decode(output))
        case str() if isinstance(output, list):
            return [part.get("text") for part in output if isinstance(part, dict)] == [expected]
        case _:
            return bool(output == expected)


def _describe_loss(loss: Loss) -> str:
    return f"{loss.what} ({loss.why})" if loss.why else loss.what


# Requests


def client_to_hub(feature: Feature, dialect: ServerDialectName) -> Verdict:
    if dialect not in feature.fields:
        return Verdict("absent")
    try:
        request, losses = _client_request(feature, dialect)
    except ApiError as error:
        return Verdict("refused", error.message)
    return judge(feature, codec.encode(request), feature.fields.get("responses"), losses)


def hub_to_server(feature: Feature, dialect: ServerDialectName, profile: Profile) -> Verdict:
    """Translates the hub's form of a feature; if it has none, the form of each client dialect."""
    if feature.sealed_reasoning is not None:
        maker = profile.wire.maker if feature.is_own_reasoning else "somebody_else"
        envelope = seal_reasoning(maker, feature.sealed_reasoning[dialect])
        request = _client_request(feature, "responses")[0]
        items = [
            replace(item, encrypted_content=envelope) if type(item) is ReasoningParam else item
            for item in input_items(request)
        ]
        return _judge_request(feature, replace(request, input=items), profile, None, mark_is_another_form=False)
    expected = feature.fields.get(dialect)
    if "responses" in feature.fields:
        return _judge_request(feature, _client_request(feature, "responses")[0], profile, expected)
    verdicts: dict[ServerDialectName, Verdict] = {}
    for origin in feature.fields:
        try:
            request = _client_request(feature, origin)[0]
        except ApiError:
            continue  # this request is refused earlier
        verdicts[origin] = _judge_request(feature, request, profile, expected)
    return _combine_verdicts(verdicts)


def _client_request(feature: Feature, dialect: ServerDialectName) -> tuple[Request, Losses]:
    return CLIENT_DIALECTS[dialect].request_to_hub(
        codec.encode(REQUEST_BASES[dialect] | feature.fields[dialect] | feature.extra_fields.get(dialect, {}))
    )


def _judge_request(
    feature: Feature, request: Request, profile: Profile, expected: Json | None, *, mark_is_another_form: bool = True
) -> Verdict:
    try:
        prepared, losses = profile.apply_quirks(replace(request, model=MODELS.get(profile.name, "m")))
        body, translation_losses = SERVER_DIALECTS[profile.dialect].request_from_hub(prepared, profile.wire)
    except ApiError as error:
        return Verdict("refused", error.message)
    losses.extend(translation_losses)
    return judge(feature, body, expected, losses, mark_is_another_form=mark_is_another_form)


def _combine_verdicts(verdicts: dict[ServerDialectName, Verdict]) -> Verdict:
    """Combines the verdicts for clients of several dialects."""
    if not verdicts:
        return Verdict("absent")
    if len(set(verdicts.values())) == 1:
        return next(iter(verdicts.values()))
    [kind, *others] = dict.fromkeys(verdict.kind for verdict in verdicts.values())
    if not others:
        return Verdict(kind, "; ".join(dict.fromkeys(verdict.note for verdict in verdicts.values())))
    note = "; ".join(
        f"{origin} client: {verdict.kind}" + (f", {verdict.note}" if verdict.note else "")
        for origin, verdict in verdicts.items()
    )
    return Verdict("approximated", note)


def _request_verdicts(feature: Feature, dialect: ServerDialectName) -> tuple[Verdict, list[Verdict]]:
    profile_names = [SERVER_DIALECTS[dialect].default_profile]
    if dialect in VENDOR_PROFILES:
        profile_names.append(VENDOR_PROFILES[dialect])
    return client_to_hub(feature, dialect), [
        hub_to_server(feature, dialect, load_profile(name)) for name in profile_names
    ]


REQUEST_BASES: Final[dict[ServerDialectName, Json]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"model": "m", "input": [{"type": "message", "role": "user", "content": "Hi"}]},
    "messages": {
        "model": "m",
        "max_tokens": 30000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "ollama": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
}


# Answers


def server_to_hub(feature: Feature, dialect: ServerDialectName) -> Verdict:
    if dialect not in feature.fields:
        return Verdict("absent")
    response, losses = _server_response(feature, dialect)
    expected = feature.fields.get("responses")
    if expected and "output" in expected and dialect != "responses":  # the gateway creates the ids of items
        items = [{name: value for name, value in item.items() if name != "id"} for item in expected["output"]]
        expected = {**expected, "output": items}
    return judge(feature, codec.encode(response), expected, losses)


def hub_to_client(feature: Feature, dialect: ServerDialectName) -> Verdict:
    """Translates the hub's form of a feature; if it has none, the form of each server dialect."""
    origins: list[ServerDialectName] = ["responses"] if "responses" in feature.fields else list(feature.fields)
    verdicts: dict[ServerDialectName, Verdict] = {}
    for origin in origins:
        # The response in the hub's form needs no translation to the hub.
        response = _hub_response(feature) if origin == "responses" else _server_response(feature, origin)[0]
        if len(origins) > 1 and server_to_hub(feature, origin).kind == "lost":
            continue  # this feature of the server does not reach the hub
        body, losses = CLIENT_DIALECTS[dialect].response_from_hub(response, SAMPLE_REQUEST)
        expected = feature.fields.get(dialect)
        verdicts[origin] = judge(feature, body, expected, losses, mark_is_another_form=True)
    return _combine_verdicts(verdicts)


def carries_stream_error(source: ServerDialectName, target: ServerDialectName) -> bool:
    """Tells whether the client of a failed stream receives the server's error message."""
    to_hub = SERVER_DIALECTS[source].events_to_hub(
        SAMPLE_REQUEST, _initial_response(), _stamps(), load_profile(SERVER_DIALECTS[source].default_profile).wire
    )
    from_hub = CLIENT_DIALECTS[target].events_from_hub(SAMPLE_REQUEST)
    frames = FRAME_DECODERS[SERVER_DIALECTS[source].framing]().feed(BROKEN_STREAMS[source])
    events: list[StreamEvent] = [event for frame in frames for event in to_hub.feed(frame)] + to_hub.finish()
    return ERROR_MESSAGE in b"".join(map(from_hub.feed, events)) + from_hub.finish()


def _hub_response(feature: Feature) -> Response:
    return codec.decode_response(codec.encode(_answer_bases()["responses"] | feature.fields["responses"]))


def _server_response(feature: Feature, dialect: ServerDialectName) -> tuple[Response, Losses]:
    body = codec.encode(_answer_bases()[dialect] | feature.fields[dialect])
    wire = load_profile(SERVER_DIALECTS[dialect].default_profile).wire
    return SERVER_DIALECTS[dialect].response_to_hub(body, SAMPLE_REQUEST, _initial_response(), _stamps(), wire)


def _answer_verdicts(feature: Feature, dialect: ServerDialectName) -> tuple[Verdict, list[Verdict]]:
    return server_to_hub(feature, dialect), [hub_to_client(feature, dialect)]


def _error_verdicts(dialect: ServerDialectName) -> list[Verdict]:
    directions: list[tuple[ServerDialectName, ServerDialectName]] = [(dialect, "responses"), ("responses", dialect)]
    return [Verdict("carried" if carries_stream_error(*direction) else "lost") for direction in directions]


def _initial_response() -> Response:
    # Without a summary: a client that asked for one gets the text of the reasoning as its summary.
    request = replace(SAMPLE_REQUEST, reasoning=ReasoningConfigParam(effort="high"))
    return make_initial_response(request, id="resp_1", created_at=1)


def _stamps() -> Stamps:
    numbers = count(1)
    return Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1)


def _answer_bases() -> dict[ServerDialectName, Json]:
    hub: Json = msgspec.json.decode(codec.encode(_initial_response()))
    text = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    message = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]}
    return {
        "chat": {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]
        },
        "responses": hub | {"status": "completed", "output": [message], "completed_at": 1},
        "messages": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Hello."}],
            "stop_reason": "end_turn",
        },
        "gemini": {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]
        },
        "ollama": {"message": {"role": "assistant", "content": "Hello."}, "done": True, "done_reason": "stop"},
    }


SAMPLE_REQUEST: Final = Request(
    model="m",
    tools=[FunctionToolParam(name="one"), FunctionToolParam(name="two"), CustomTool(name="patch")],
    reasoning=ReasoningConfigParam(effort="high", summary="auto"),
    include=["reasoning.encrypted_content", "message.output_text.logprobs"],
    top_logprobs=1,
)

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
