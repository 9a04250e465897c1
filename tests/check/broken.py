"""Servers that are broken in one way each: for every case one that it must find, and the row it must name."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from tests.check.servers import Break, ServerAnswer

from antiphon.protocol.codec import encode
from antiphon.protocol.request import Request
from antiphon.protocol.response import make_initial_response
from antiphon.testing.script import End

Json = dict[str, Any]
REFUSAL = {"error": {"type": "invalid_request", "code": "invalid_value", "message": "no", "param": None}}


# Ways to break


def whole(change: Callable[[Json], object]) -> Break:
    """Changes every response that is sent in one piece."""

    def breaks(answer: ServerAnswer) -> None:
        if answer.is_turn and not answer.is_stream:
            body = answer.json
            change(body)
            answer.json = body

    return breaks


def events(change: Callable[[list[Json]], list[Json]]) -> Break:
    """Changes the events of every stream."""

    def breaks(answer: ServerAnswer) -> None:
        if answer.is_turn and answer.is_stream:
            answer.frames = change(answer.frames)

    return breaks


def each_event(change: Callable[[Json], object], kind: str = "") -> Break:
    """Changes every event of a type, or every event."""

    def change_all(frames: list[Json]) -> list[Json]:
        for frame in frames:
            if frame["type"].startswith(kind):
                change(frame)
        return frames

    return events(change_all)


def without(*kinds: str) -> Break:
    """Leaves out events of these types; the numbers close the gap."""

    def leave_out(frames: list[Json]) -> list[Json]:
        kept = [frame for frame in frames if not frame["type"].startswith(kinds)]
        for number, frame in enumerate(kept):
            frame["sequence_number"] = number
        return kept

    return events(leave_out)


def stream_bytes(change: Callable[[bytes], bytes]) -> Break:
    def breaks(answer: ServerAnswer) -> None:
        if answer.is_turn and answer.is_stream:
            answer.body = change(answer.body)

    return breaks


def errors(change: Callable[[Json], object]) -> Break:
    """Changes the body of every error."""

    def breaks(answer: ServerAnswer) -> None:
        if answer.status >= 400:
            body = answer.json
            change(body)
            answer.json = body

    return breaks


def error_field(**fields: Any) -> Break:
    return errors(lambda body: body["error"].update(fields))


def status(instead: int, of: int) -> Break:
    def breaks(answer: ServerAnswer) -> None:
        answer.status = instead if answer.status == of else answer.status

    return breaks


def refuses(matches: Callable[[Json], bool]) -> Break:
    """Answers requests of one kind with an error that says too little to be taken for an honest refusal."""

    def breaks(answer: ServerAnswer) -> None:
        request = answer.request.json
        if answer.is_turn and isinstance(request, dict) and matches(request):
            answer.status, answer.headers["content-type"] = 422, "application/json"
            answer.json = {"detail": "unprocessable"}

    return breaks


def serves(answer: ServerAnswer) -> None:
    """Answers everything, also what cannot be served."""
    if answer.request.method == "POST" and answer.status >= 400:
        answer.status = 200
        answer.body = encode(make_initial_response(Request(model="mock-1"), id="resp_1", created_at=1))


def both(first: Break, second: Break) -> Break:
    def breaks(answer: ServerAnswer) -> None:
        first(answer)
        second(answer)

    return breaks


def header(**headers: str) -> Break:
    return lambda answer: answer.headers.update({name.replace("_", "-"): value for name, value in headers.items()})


def drops(answer: ServerAnswer) -> None:
    """Hangs up in the middle of every stream."""
    if answer.is_turn and answer.is_stream:
        answer.ending = End("fin")


def item(**fields: Any) -> Break:
    """Changes every item of a whole answer."""
    return whole(lambda body: [item.update(fields) for item in body["output"]])


def calls(*names: str) -> Break:
    """Answers every turn with calls of these tools."""
    made = [
        {
            "type": "function_call",
            "id": f"fc_{name}",
            "call_id": f"call_{name}",
            "name": name,
            "arguments": "{}",
            "status": "completed",
        }
        for name in names
    ]
    return whole(lambda body: body.update(output=made))


def says(text: str) -> Break:
    def change(body: Json) -> None:
        for item in body["output"]:
            for part in item.get("content") or ():
                part["text"] = text

    return whole(change)


# What single mutations need


def _models_without_ids(answer: ServerAnswer) -> None:
    if answer.request.path.endswith("/models"):
        answer.json = {"object": "list", "data": [{"id": "mock-1"}]}


def _nameless(answer: ServerAnswer) -> None:
    del answer.headers["x-request-id"]


def _data_on_two_lines(body: bytes) -> bytes:
    return body.replace(b'data: {"type"', b'data: {\ndata: "type"')


def _two_ends(frames: list[Json]) -> list[Json]:
    return [*frames, {**frames[-1], "sequence_number": frames[-1]["sequence_number"] + 1}]


def _flat_error(frames: list[Json]) -> list[Json]:
    number = frames[-1]["sequence_number"]
    flat = {"type": "error", "code": "server_error", "message": "no", "param": None, "sequence_number": number}
    failed = {**frames[-1], "type": "response.failed", "sequence_number": number + 1}
    failed["response"] = {**failed["response"], "status": "failed", "error": {"code": "server_error", "message": "no"}}
    return [*frames[:-1], flat, failed]


def _bare_refusal(frames: list[Json]) -> list[Json]:
    delta = {
        "type": "response.refusal.delta",
        "sequence_number": 2,
        "item_id": "m",
        "output_index": 0,
        "content_index": 0,
    }
    return [*frames[:2], delta, *frames[2:]]


def _same_call_ids(frames: list[Json]) -> list[Json]:
    for frame in frames:
        for item in [frame.get("item") or {}, *(frame.get("response") or {}).get("output", ())]:
            if "call_id" in item:
                item["call_id"] = "call_1"
    return frames


def _one_call_for_both(frames: list[Json]) -> list[Json]:
    """Pieces of the second call under the first one's index."""
    for frame in frames:
        if frame["type"] == "response.function_call_arguments.delta":
            frame["output_index"] = 0
    return frames


def _complete_though_cut(frames: list[Json]) -> list[Json]:
    frame = frames[-1]
    if frame["type"] == "response.incomplete":
        frame["type"] = "response.completed"
        frame["response"].update(status="completed", incomplete_details=None)
    return frames


def _complete_whole_though_cut(body: Json) -> None:
    if body["status"] == "incomplete":
        body.update(status="completed", incomplete_details=None)


def _other_reason(body: Json) -> None:
    if body["status"] == "incomplete":
        body["incomplete_details"] = {"reason": "length"}


def _no_reasoning_text(body: Json) -> None:
    for item in body["output"]:
        if item["type"] == "reasoning":
            item.update(content=[], summary=[], encrypted_content=None)


def _sealed(body: Json) -> None:
    for item in body["output"]:
        if item["type"] == "reasoning":
            item["encrypted_content"] = "c2VhbGVk"


def _nested_tools(body: Json) -> None:
    body["tools"] = [{"type": "function", "function": tool} for tool in body["tools"]]


def _inputs(*types: str) -> Callable[[Json], bool]:
    """Requests with an item of one of these types."""
    return lambda request: any(
        item.get("type") in types for item in request["input"] if isinstance(request["input"], list)
    )


def _has_phase(request: Json) -> bool:
    return any("phase" in item for item in request["input"] if isinstance(item, dict))


def _has_ids(request: Json) -> bool:
    return any("id" in item for item in request["input"] if isinstance(item, dict))


def _has_role(role: str) -> Callable[[Json], bool]:
    return lambda request: any(item.get("role") == role for item in request["input"] if isinstance(item, dict))


def _has_image(request: Json) -> bool:
    return "input_image" in str(request)


def _has_output_parts(request: Json) -> bool:
    return any(isinstance(item.get("output"), list) for item in request["input"] if isinstance(item, dict))


def _is_untyped(request: Json) -> bool:
    return isinstance(request["input"], list) and any("type" not in item for item in request["input"])


def _forgets_the_chain(answer: ServerAnswer) -> None:
    serves(answer)
    if answer.is_turn and not answer.is_stream:
        answer.json = {**answer.json, "previous_response_id": None}


def _no_logprobs_at_the_end(frame: Json) -> None:
    frame["logprobs"] = []


def _traceback(answer: ServerAnswer) -> None:
    if answer.status >= 400:
        body = copy.deepcopy(answer.json)
        body["error"]["message"] = 'Traceback (most recent call last):\n  File "/srv/app.py", line 3'
        answer.json = body


#: Case → a server that it must not pass, and the row that it must name.
BROKEN: dict[str, tuple[Break, str]] = {
    "models.list": (_models_without_ids, "API-5"),
    "http.content-type": (status(400, of=415), "HTTP-1"),
    "http.broken-json": (error_field(code=None), "HTTP-1"),
    "http.no-object": (serves, "HTTP-1"),
    "http.whole-answer": (whole(lambda body: body.pop("truncation")), "HTTP-2"),
    "http.stream": (stream_bytes(lambda body: body.replace(b"event: response.output_text.delta\n", b"")), "HTTP-3"),
    "http.done": (stream_bytes(lambda body: body.replace(b"data: [DONE]\n\n", b"")), "HTTP-4"),
    "http.no-event-ids": (stream_bytes(lambda body: body.replace(b"event: ", b"id: 7\nevent: ")), "HTTP-5"),
    "http.wrong-key": (status(403, of=401), "HTTP-6"),
    "http.no-key": (errors(lambda body: body.update(error="no key")), "HTTP-6"),
    "http.request-id": (_nameless, "HTTP-8"),
    "stream.opening": (without("response.in_progress"), "STR-1"),
    "stream.items-begin": (without("response.output_item.added"), "STR-2"),
    "stream.parts": (without("response.content_part.added"), "STR-3"),
    "stream.items-end": (without("response.output_item.done"), "STR-4"),
    "stream.numbers": (each_event(lambda frame: frame.update(sequence_number=frame["sequence_number"] * 2)), "STR-5"),
    "stream.deltas": (each_event(lambda frame: frame.update(text="else"), "response.output_text.done"), "STR-6"),
    "stream.one-end": (events(_two_ends), "STR-7"),
    "stream.errors": (events(_flat_error), "STR-8"),
    "stream.items": (each_event(lambda frame: frame.update(item_id="other"), "response.output_text.delta"), "ITEM-6"),
    "stream.tool-call": (without("response.function_call_arguments.delta"), "STR-9"),
    "stream.two-calls": (events(_same_call_ids), "STR-9"),
    "stream.reasoning": (each_event(lambda frame: frame.pop("content_index", None), "response.reasoning"), "STR-10"),
    "stream.annotations": (events(_bare_refusal), "STR-11"),
    "stream.logprobs": (each_event(_no_logprobs_at_the_end, "response.output_text.done"), "STR-12"),
    "stream.obfuscation": (each_event(lambda frame: frame.pop("obfuscation", None)), "STR-13"),
    "stream.same-response": (whole(lambda body: body.update(metadata={})), "STR-14"),
    "stream.incomplete": (events(_complete_though_cut), "ITEM-3"),
    "input.string": (refuses(lambda request: isinstance(request["input"], str)), "ITEM-8"),
    "input.untyped": (refuses(_is_untyped), "ITEM-8"),
    "input.roles": (refuses(_has_role("developer")), "ITEM-1"),
    "input.phase": (refuses(_has_phase), "ITEM-7"),
    "input.image": (refuses(_has_image), "ITEM-1"),
    "input.tool-output": (refuses(_inputs("function_call_output")), "ITEM-1"),
    "input.tool-output-parts": (refuses(_has_output_parts), "TOOL-6"),
    "input.reasoning": (refuses(_inputs("reasoning")), "ITEM-1"),
    "input.output-back": (refuses(_has_ids), "ITEM-6"),
    "input.calls-back": (refuses(_has_ids), "ITEM-6"),
    "output.items": (item(id="msg_1", status="done"), "ITEM-2"),
    "output.incomplete": (whole(_complete_whole_though_cut), "REQ-3"),
    "reasoning.kept": (whole(_no_reasoning_text), "RSN-1"),
    "reasoning.encrypted": (whole(_sealed), "RSN-2"),
    "tools.nested": (error_field(message="no"), "TOOL-1"),
    "tools.echo": (whole(_nested_tools), "TOOL-1"),
    "tools.required": (item(arguments="Paris"), "TOOL-2"),
    "tools.named": (calls("get_weather"), "TOOL-2"),
    "tools.none": (calls("get_weather"), "TOOL-2"),
    "tools.allowed": (calls("get_weather"), "TOOL-3"),
    "tools.one-at-a-time": (calls("get_weather", "get_time"), "TOOL-4"),
    "settings.echo": (whole(lambda body: body.update(temperature=1.0)), "HTTP-2"),
    "settings.labels": (whole(lambda body: body.update(metadata={})), "REQ-5"),
    "settings.unknown": (refuses(lambda request: "acme:hint" in request), "REQ-7"),
    "settings.json-schema": (says("Alice is 30."), "REQ-1"),
    "settings.json-object": (says("Hello!"), "REQ-1"),
    "usage.whole": (whole(lambda body: body["usage"].pop("input_tokens_details")), "REQ-4"),
    "usage.stream": (each_event(lambda frame: frame["response"].update(usage=None), "response.completed"), "REQ-4"),
    "previous.unknown": (error_field(code="not_found"), "PREV-3"),
    "previous.not-stored": (serves, "PREV-4"),
    "previous.chain": (_forgets_the_chain, "PREV-1"),
    "limits.max-output-tokens": (serves, "REQ-8"),
    "limits.max-tool-calls": (serves, "REQ-8"),
    "limits.top-logprobs": (serves, "REQ-8"),
    "limits.metadata-pairs": (serves, "REQ-8"),
    "limits.metadata-value": (serves, "REQ-8"),
    "limits.cache-key": (serves, "REQ-8"),
    "limits.call-id": (error_field(param=None), "REQ-8"),
    "limits.function-name": (error_field(param="tools"), "REQ-8"),
    "limits.allowed-tools": (serves, "REQ-8"),
    "error.shape": (errors(lambda body: body["error"].pop("param")), "ERR-1"),
    "error.type": (error_field(type="invalid_request_error"), "ERR-2"),
    "error.param": (error_field(param="input"), "ERR-3"),
    "error.wrong-type": (error_field(param=None), "ERR-3"),
    "error.unknown-model": (status(500, of=404), "ERR-2"),
    "error.inside": (_traceback, "ERR-5"),
}

#: More ways to break what a case looks at from several sides: case, server, row, words of the finding.
MORE: list[tuple[str, Break, str, str]] = [
    ("limits.call-id", status(500, of=400), "REQ-8", "the answer has the status 500"),
    ("limits.function-name", status(500, of=400), "REQ-8", "the answer has the status 500"),
    ("limits.function-name", both(serves, calls("get_weather")), "REQ-8", "the call names 'get_weather'"),
    (
        "models.list",
        lambda answer: setattr(answer, "status", 404) if answer.request.method == "GET" else None,
        "API-5",
        "status 404",
    ),
    (
        "models.list",
        lambda answer: setattr(answer, "body", b"[]") if answer.request.method == "GET" else None,
        "API-5",
        "is not a list of models",
    ),
    ("http.broken-json", error_field(message=""), "HTTP-1", "error.message is empty"),
    ("http.whole-answer", header(content_type="text/plain"), "HTTP-2", "expected application/json"),
    ("http.whole-answer", whole(lambda body: body.update(store="yes")), "HTTP-2", "store: expected"),
    ("http.stream", stream_bytes(_data_on_two_lines), "HTTP-3", "is on 2 lines"),
    ("http.stream", header(content_type="application/json"), "HTTP-3", "expected 200 text/event-stream"),
    (
        "http.stream",
        stream_bytes(lambda body: body.replace(b"event: response.created", b"event: created")),
        "HTTP-3",
        "`event: created`",
    ),
    ("http.stream", stream_bytes(lambda body: body + b"event: ping\n\n"), "HTTP-3", "has no data: line"),
    (
        "http.stream",
        stream_bytes(lambda body: b"event: ping\ndata: pong\n\n" + body),
        "HTTP-3",
        "expected a JSON object with a type",
    ),
    ("http.done", stream_bytes(lambda body: body + b"event: late\ndata: {}\n\n"), "HTTP-4", "has data after"),
    ("stream.opening", stream_bytes(lambda body: body[:0]), "STR-1", "without any event"),
    (
        "stream.opening",
        each_event(lambda frame: frame["response"].pop("id"), "response.created"),
        "STR-1",
        "response.id is missing",
    ),
    ("stream.parts", without("response.output_text.delta"), "STR-3", "expected the text in several deltas"),
    ("stream.numbers", each_event(lambda frame: frame.pop("sequence_number")), "STR-5", "sequence_number is missing"),
    ("stream.one-end", drops, "STR-7", "closed the connection"),
    ("stream.one-end", without("response.completed", "response.incomplete"), "STR-7", "without a terminal event"),
    ("stream.two-calls", events(_one_call_for_both), "STR-6", "differs"),
    (
        "stream.obfuscation",
        each_event(lambda frame: frame.update(obfuscation="x"), "response.output_text.delta"),
        "STR-13",
        "was disabled",
    ),
    ("stream.same-response", without("response."), "STR-14", "the last event of the stream has no response"),
    (
        "stream.incomplete",
        each_event(
            lambda frame: frame["response"].update(incomplete_details={"reason": "length"}), "response.incomplete"
        ),
        "REQ-3",
        "'length'",
    ),
    ("input.string", item(content=[]), "ITEM-8", "has no text"),
    ("input.string", whole(lambda body: body.update(status="failed")), "ITEM-8", "status is 'failed'"),
    (
        "input.string",
        lambda answer: setattr(answer, "body", b"[]") if answer.is_turn else None,
        "ITEM-8",
        "cannot be read",
    ),
    ("output.items", whole(lambda body: body.update(output=body["output"] * 2)), "ITEM-6", "have the same id"),
    (
        "output.items",
        whole(lambda body: [item.pop("id") for item in body["output"]]),
        "ITEM-2",
        "output[0].id is missing",
    ),
    ("output.incomplete", whole(_other_reason), "REQ-3", "'length'"),
    (
        "output.incomplete",
        whole(lambda body: body.update(output=body["output"] * 2)),
        "ITEM-3",
        "for the last item only",
    ),
    ("tools.required", item(name="get_news"), "TOOL-2", "'get_news'"),
    ("tools.required", item(call_id=""), "TOOL-2", "empty call_id"),
    ("tools.required", item(arguments="[]"), "TOOL-2", "expected a JSON object"),
    ("settings.labels", whole(lambda body: body.update(text={"format": {"type": "text"}})), "REQ-5", "verbosity"),
    (
        "settings.json-schema",
        whole(lambda body: body.update(text={"format": {"type": "text"}})),
        "REQ-1",
        "is echoed as",
    ),
    ("usage.whole", whole(lambda body: body["usage"].update(total_tokens=1)), "REQ-4", "usage.total_tokens is 1"),
    ("usage.stream", without("response."), "REQ-4", "no response in any event"),
    ("previous.not-stored", whole(lambda body: body.update(store=True)), "PREV-4", "store is echoed as true"),
    ("error.shape", header(content_type="text/html"), "ERR-1", "'text/html'"),
    (
        "error.type",
        lambda answer: setattr(answer, "body", b"Bad Request") if answer.status == 400 else None,
        "ERR-2",
        "not a structured error",
    ),
    ("error.shape", serves, "ERR-1", "accepted every invalid request"),
    ("error.wrong-type", error_field(message=""), "ERR-3", "error.message is empty"),
    ("error.unknown-model", error_field(type="invalid_request"), "ERR-2", "expected 'not_found'"),
]
