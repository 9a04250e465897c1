"""Compute the support table of docs/dialects.md: translate every feature and compare the result with the expected one.

Usage: `PYTHONPATH=src:. python tools/dialects_page.py`. A test fails if the page is stale. A feature that disappears without a
loss is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec
from msgspec.structs import replace
from tools.answer_features import ANSWERS, BOOM, BROKEN_STREAMS
from tools.dialect_features import Feature, Json
from tools.request_features import REQUESTS

from antiphon import sse
from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.dialect import ServerDialectName
from antiphon.dialects.registry import CLIENT_DIALECTS, SERVER_DIALECTS
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
DIALECTS: Final[tuple[ServerDialectName, ...]] = get_args(ServerDialectName)
# The profile of the API's maker, if there is one.
MAKERS: Final[dict[ServerDialectName, str]] = {"responses": "openai", "messages": "anthropic", "gemini": "google"}
# If a server's features depend on the model: one of the newest models.
MODELS: Final = {"google": "gemini-3-pro-preview"}
Kind = Literal["carried", "approximated", "lost", "refused", "unsaid"]


WORDS: Final[dict[Kind, str]] = {
    "carried": "✓",
    "approximated": "≈",
    "lost": "lost",
    "refused": "refused",
    "unsaid": "–",
}


class Verdict(NamedTuple):
    kind: Kind
    words: str = ""


# The verdicts for one feature: towards the hub, and from the hub with the default profile and the profile of the API's maker.
Cells = Callable[[Feature, ServerDialectName], tuple[Verdict, list[Verdict]]]


class VanishedError(Exception):
    """A feature disappeared without a loss."""


def page(text: str) -> str:
    """Return the page with the current table."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{support()}\n\n{END}{after}"


def support() -> str:
    notes = _Notes()
    asked = _table(REQUESTS, "client", "server", _request_cells, notes)
    answered = _table(ANSWERS, "server", "client", _answer_cells, notes)
    errors = [notes.cell(verdict) for dialect in DIALECTS for verdict in _error_cells(dialect)]
    answered.append(f"| error in the middle of a stream | {' | '.join(errors)} |")
    tables = ["### Requests", "\n".join(asked), "### Answers", "\n".join(answered)]
    return "\n\n".join([*tables, "### Notes", notes.text()])


class _Notes:
    """The numbered notes of verdicts."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def cell(self, verdict: Verdict) -> str:
        word = WORDS[verdict.kind]
        return f"{word} {self._numbers.setdefault(verdict.words, len(self._numbers) + 1)}" if verdict.words else word

    def text(self) -> str:
        return "\n".join(f"{number}. {_in_markdown(words)}" for words, number in self._numbers.items())


def _in_markdown(words: str) -> str:
    return re.sub(r"'([^']*)'", r"`\1`", words).replace("|", "\\|")


def _table(groups: dict[str, list[Feature]], first: str, second: str, cells: Cells, notes: _Notes) -> list[str]:
    heads = [f"{dialect} {side}" for dialect in DIALECTS for side in (first, second)]
    rows = [f"| | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    for group, features in groups.items():
        rows.append(f"| **{group}** |" + " |" * len(heads))
        rows += [f"| {feature.name} | {' | '.join(_row(feature, cells, notes))} |" for feature in features]
    return rows


def _row(feature: Feature, cells: Cells, notes: _Notes) -> Iterable[str]:
    for dialect in DIALECTS:
        in_, (usual, *own) = cells(feature, dialect)
        yield notes.cell(in_)
        differs = own and own[0] != usual
        yield notes.cell(usual) + (f"; `{MAKERS[dialect]}`: {notes.cell(own[0])}" if differs else "")


# Judging


def judged(feature: Feature, made: bytes, wanted: Json | None, losses: Iterable[Loss], how: str = "") -> Verdict:
    """Return the verdict: carried if the output contains `wanted`; else the verdict follows from the losses."""
    found = "; ".join(dict.fromkeys(_words(loss) for loss in losses))
    text = made.decode()
    if wanted is not None and contains(msgspec.json.decode(made), wanted):
        return Verdict("approximated", found) if found else Verdict("carried")
    if wanted is None and not how and feature.mark and feature.mark in text and not found:
        return Verdict("carried")
    if " omitted: " in found:
        return Verdict("lost", "a note in the text replaces it")
    if any(mark in text for mark in (feature.mark, *feature.other_marks) if mark):
        return Verdict("approximated", feature.how or found or "passed on unchanged")
    if found:
        return Verdict("lost")
    raise VanishedError(f"{feature.name}: expected {wanted}, got no loss and this output: {text}")


def contains(made: Any, wanted: Any) -> bool:
    """Whether `made` contains `wanted`, in the same order. A string equals one text part."""
    match wanted:
        case dict():
            return isinstance(made, dict) and all(
                name in made and contains(made[name], value) for name, value in wanted.items()
            )
        case list():
            rest = iter(made if isinstance(made, list) else [])
            return all(any(contains(member, value) for member in rest) for value in wanted)
        case str() if wanted.startswith("{") and isinstance(made, str):
            return bool(msgspec.json.decode(wanted) == msgspec.json.decode(made))
        case str() if isinstance(made, list):
            return [part.get("text") for part in made if isinstance(part, dict)] == [wanted]
        case _:
            return bool(made == wanted)


def _words(loss: Loss) -> str:
    return f"{loss.what} ({loss.why})" if loss.why else loss.what


# Requests


def client_to_hub(feature: Feature, dialect: ServerDialectName) -> Verdict:
    if dialect not in feature.said:
        return Verdict("unsaid")
    try:
        request, losses = _asked(feature, dialect)
    except ApiError as error:
        return Verdict("refused", error.message)
    return judged(feature, codec.encode(request), feature.said.get("responses"), losses)


def hub_to_server(feature: Feature, dialect: ServerDialectName, profile: Profile) -> Verdict:
    """Translate the hub's form of a feature; if it has none, the form of each client dialect."""
    if feature.sealed is not None:
        envelope = seal_reasoning(profile.wire.maker if feature.is_own else "somebody_else", feature.sealed[dialect])
        request = _asked(feature, "responses")[0]
        items = [
            replace(item, encrypted_content=envelope) if type(item) is ReasoningParam else item
            for item in input_items(request)
        ]
        return _sent(feature, replace(request, input=items), profile, None, "")
    if "responses" in feature.said:
        return _sent(feature, _asked(feature, "responses")[0], profile, feature.said.get(dialect))
    verdicts: dict[ServerDialectName, Verdict] = {}
    for origin in feature.said:
        try:
            request = _asked(feature, origin)[0]
        except ApiError:
            continue  # this request is refused earlier
        verdicts[origin] = _sent(feature, request, profile, feature.said.get(dialect))
    return _summed(verdicts)


def _asked(feature: Feature, dialect: ServerDialectName) -> tuple[Request, Losses]:
    return CLIENT_DIALECTS[dialect].request_to_hub(
        codec.encode(BASES[dialect] | feature.said[dialect] | feature.sent.get(dialect, {}))
    )


def _sent(feature: Feature, request: Request, profile: Profile, wanted: Json | None, how: str = "otherwise") -> Verdict:
    try:
        prepared, losses = profile.apply_quirks(replace(request, model=MODELS.get(profile.name, "m")))
        body, found = SERVER_DIALECTS[profile.dialect].request_from_hub(prepared, profile.wire)
    except ApiError as error:
        return Verdict("refused", error.message)
    losses.extend(found)
    return judged(feature, body, wanted, losses, how)


def _summed(verdicts: dict[ServerDialectName, Verdict]) -> Verdict:
    """Combine the verdicts for clients of several dialects."""
    if not verdicts:
        return Verdict("unsaid")
    if len(set(verdicts.values())) == 1:
        return next(iter(verdicts.values()))
    [kind, *others] = dict.fromkeys(verdict.kind for verdict in verdicts.values())
    if not others:
        return Verdict(kind, "; ".join(dict.fromkeys(verdict.words for verdict in verdicts.values())))
    told = "; ".join(
        f"{origin} client: {verdict.kind}" + (f", {verdict.words}" if verdict.words else "")
        for origin, verdict in verdicts.items()
    )
    return Verdict("approximated", told)


def _request_cells(feature: Feature, dialect: ServerDialectName) -> tuple[Verdict, list[Verdict]]:
    usual = hub_to_server(feature, dialect, load_profile(SERVER_DIALECTS[dialect].default_profile))
    own = [hub_to_server(feature, dialect, load_profile(MAKERS[dialect]))] if dialect in MAKERS else []
    return client_to_hub(feature, dialect), [usual, *own]


BASES: Final[dict[ServerDialectName, Json]] = {
    "chat": {"model": "m", "messages": [{"role": "user", "content": "Hi"}]},
    "responses": {"model": "m", "input": [{"type": "message", "role": "user", "content": "Hi"}]},
    "messages": {
        "model": "m",
        "max_tokens": 30000,
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
    },
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
}


# Answers


def server_to_hub(feature: Feature, dialect: ServerDialectName) -> Verdict:
    if dialect not in feature.said:
        return Verdict("unsaid")
    response, losses = _answered(feature, dialect)
    wanted = feature.said.get("responses")
    if wanted and "output" in wanted and dialect != "responses":  # the gateway makes the ids of items
        items = [{name: value for name, value in item.items() if name != "id"} for item in wanted["output"]]
        wanted = {**wanted, "output": items}
    return judged(feature, codec.encode(response), wanted, losses)


def hub_to_client(feature: Feature, dialect: ServerDialectName) -> Verdict:
    """Translate the hub's form of a feature; if it has none, the form of each server dialect."""
    origins: list[ServerDialectName] = ["responses"] if "responses" in feature.said else list(feature.said)
    verdicts: dict[ServerDialectName, Verdict] = {}
    for origin in origins:
        # The response in the hub's form needs no translation to the hub.
        response = _hub_response(feature) if origin == "responses" else _answered(feature, origin)[0]
        body, losses = CLIENT_DIALECTS[dialect].response_from_hub(response, ASKED)
        verdicts[origin] = judged(feature, body, feature.said.get(dialect), losses, "otherwise")
    return _summed(verdicts)


def broken_stream(source: ServerDialectName, target: ServerDialectName) -> bool:
    """Whether the client of a failed stream receives the server's error message."""
    to_hub = SERVER_DIALECTS[source].events_to_hub(
        ASKED, _begun(), _stamps(), load_profile(SERVER_DIALECTS[source].default_profile).wire
    )
    from_hub = CLIENT_DIALECTS[target].events_from_hub(ASKED)
    frames = sse.Decoder().feed(BROKEN_STREAMS[source])
    events: list[StreamEvent] = [event for frame in frames for event in to_hub.feed(frame)] + to_hub.finish()
    return BOOM in b"".join(map(from_hub.feed, events)) + from_hub.finish()


def _hub_response(feature: Feature) -> Response:
    return codec.decode_response(codec.encode(_answer_bases()["responses"] | feature.said["responses"]))


def _answered(feature: Feature, dialect: ServerDialectName) -> tuple[Response, Losses]:
    body = codec.encode(_answer_bases()[dialect] | feature.said[dialect])
    wire = load_profile(SERVER_DIALECTS[dialect].default_profile).wire
    return SERVER_DIALECTS[dialect].response_to_hub(body, ASKED, _begun(), _stamps(), wire)


def _answer_cells(feature: Feature, dialect: ServerDialectName) -> tuple[Verdict, list[Verdict]]:
    return server_to_hub(feature, dialect), [hub_to_client(feature, dialect)]


def _error_cells(dialect: ServerDialectName) -> list[Verdict]:
    told = [broken_stream(dialect, "responses"), broken_stream("responses", dialect)]
    return [Verdict("carried" if each else "lost") for each in told]


def _begun() -> Response:
    return make_initial_response(ASKED, id="resp_1", created_at=1)


def _stamps() -> Stamps:
    numbers = count(1)
    return Stamps(lambda prefix: f"{prefix}_{next(numbers)}", lambda: 1)


def _answer_bases() -> dict[ServerDialectName, Json]:
    hub: Json = msgspec.json.decode(codec.encode(_begun()))
    text = {"type": "output_text", "text": "Hello.", "annotations": [], "logprobs": []}
    said = {"type": "message", "id": "msg_1", "status": "completed", "role": "assistant", "content": [text]}
    return {
        "chat": {
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]
        },
        "responses": hub | {"status": "completed", "output": [said], "completed_at": 1},
        "messages": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "text", "text": "Hello."}],
            "stop_reason": "end_turn",
        },
        "gemini": {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "Hello."}]}, "finishReason": "STOP"}]
        },
    }


ASKED: Final = Request(
    model="m",
    tools=[FunctionToolParam(name="one"), FunctionToolParam(name="two"), CustomTool(name="patch")],
    reasoning=ReasoningConfigParam(effort="high", summary="auto"),
    include=["reasoning.encrypted_content", "message.output_text.logprobs"],
    top_logprobs=1,
)

if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
