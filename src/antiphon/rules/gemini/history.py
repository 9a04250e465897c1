"""The rules of gemini servers for conversations: roles, turns, parts, calls and results that must match.

The contents have been read by `shapes`: their names are in camelCase, and their values have the right types.
"""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any, Final

from msgspec import Struct

from antiphon.rules.content import describe_role
from antiphon.rules.gemini.refusing import refuse
from antiphon.rules.report import Report, as_json

Content = dict[str, Any]
#: A call or a result, with the path of its part.
Placed = tuple[str, dict[str, Any]]


class Turn(Struct):
    """Consecutive contents of the model, or one content of the user, as one turn. Each part has its path."""

    path: str
    is_user: bool
    parts: list[Placed]

    def values(self, field: str) -> list[Placed]:
        """Return the values of a field (`functionCall`, `functionResponse`) in the parts."""
        return [(path, part[field]) for path, part in self.parts if field in part]


def check_contents(
    contents: list[Content] | None,
    report: Report,
    *,
    must_alternate: bool,
    must_end_with_user: bool,
    needs_signatures: bool,
    hint: str = "",
) -> None:
    # It says "* GenerateContentRequest.contents: contents is not specified"
    if not contents:
        problem = f"`contents` is a list of at least one content{hint}"
        refuse(report, "missing_field", "contents", "contents is not specified", problem)
        return
    for index, content in enumerate(report.walk(contents)):
        _check_content(content, f"contents[{index}]", report, is_only_content=len(contents) == 1)
    turns = _join_turns(contents)
    unanswered_calls = _check_calls(turns, report)
    _check_order(contents, report, must_alternate=must_alternate, must_end_with_user=must_end_with_user)
    for path, call in unanswered_calls:
        _report_unanswered(path, call, report)
    if needs_signatures:
        _check_signatures(turns, report)


def is_user(content: Content) -> bool:
    """Return whether a content is the user's; one without a role is the user's."""
    return bool(content.get("role", "user") != "model")


def is_function_name(name: str) -> bool:
    return NAME.fullmatch(name) is not None


def _check_content(content: Content, path: str, report: Report, *, is_only_content: bool) -> None:
    role = content.get("role")
    # It says "Please use a valid role: user, model."; `function` is an older name for the user with results, and a
    # single content needs no role at all.
    if role not in ROLES and not (is_only_content and role is None):
        flaw, settings = describe_role(role, ROLES), SYSTEM if role == "system" else ()
        message = "Please use a valid role: user, model."
        report.add(flaw.rule, f"{path}.role", message, flaw.problem, settings=settings)
    # It says "contents.parts must not be empty."
    if not content.get("parts"):
        problem = "a content has at least one part"
        refuse(report, "missing_field", f"{path}.parts", "contents.parts must not be empty.", problem)
    for index, part in enumerate(report.walk(content.get("parts", ()))):
        _check_part(part, f"{path}.parts[{index}]", report, is_by_model=role == "model")


def _check_part(part: dict[str, Any], path: str, report: Report, *, is_by_model: bool) -> None:
    data = [name for name in part if name in DATA]
    # It says "Invalid value (oneof), oneof field 'data' is already set. Cannot set 'text'"
    if len(data) > 1:
        message = f"Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{data[1]}'"
        report.add("combination", path, message, f"a part has one content, and this has {' and '.join(data)}")
    # It says "data: required oneof field 'data' must have one initialized field", and other versions "must include at
    # least one parts field" for an empty text; but the model's output comes back as it was, and its stream ends in an
    # empty text.
    if not data or (part.get("text") == "" and not is_by_model):
        server_text = "required oneof field 'data' must have one initialized field"
        problem = "a part has one of text (not empty), inlineData, fileData, functionCall, functionResponse"
        refuse(report, "missing_field", f"{path}.data", server_text, problem, exact_path=path)
    match part:
        case {"inlineData": blob}:
            _check_blob(blob, f"{path}.inline_data", report)
        case {"fileData": file}:
            _check_file(file, f"{path}.file_data", report)
        case {"functionCall": call}:
            _check_name(call, f"{path}.function_call", report)
        case {"functionResponse": result}:
            _check_name(result, f"{path}.function_response", report)
            # It says "Required. The function response in JSON object format."
            if "response" not in result:
                problem = "a result has a `response`, an object"
                exact_path = f"{path}.function_response.response"
                refuse(report, "missing_field", exact_path, "required field is not set", problem)
            for index, inner in enumerate(report.walk(result.get("parts", ()))):
                _check_blob(inner.get("inlineData", {}), f"{path}.function_response.parts[{index}].inline_data", report)


def _check_blob(blob: dict[str, Any], path: str, report: Report) -> None:
    kind = blob.get("mimeType", "")
    # It says "Unsupported MIME type: png", and so for image/jpg, image/gif and whatever the models cannot read
    if not MIME_TYPE.fullmatch(kind):
        problem = f"{as_json(kind)} is no MIME type that every model reads"
        report.add("media", f"{path}.mime_type", f"Unsupported MIME type: {kind}", problem, is_certain=not kind)
    # It says "Unable to process input image": nothing is no image
    if not blob.get("data"):
        refuse(report, "media", f"{path}.data", "Unable to process input: it is empty")


def _check_file(file: dict[str, Any], path: str, report: Report) -> None:
    # It says "Invalid or unsupported file uri": a file of the server's own, a bucket or a web address; data URLs are
    # not taken
    if not FILE.match(file.get("fileUri", "")):
        server_text = f"Invalid or unsupported file uri: {file.get('fileUri', '')[:100]}"
        problem = f"{as_json(file.get('fileUri'))} is no web address and no bucket"
        refuse(report, "media", f"{path}.file_uri", server_text, problem)


def _check_name(named: dict[str, Any], path: str, report: Report) -> None:
    # It says "function_response.name: Name cannot be empty.", and the same pattern as in a declaration
    if not named.get("name"):
        refuse(report, "missing_field", f"{path}.name", "Name cannot be empty.", "the name of a function is required")
    elif not is_function_name(named["name"]):
        server_text = f"Invalid function name: {named['name']!r} does not match {NAME.pattern}"
        problem = f"{as_json(named['name'])} is not a valid name: expected {NAME.pattern}"
        refuse(report, "name", f"{path}.name", server_text, problem)


# Turns.


def _join_turns(contents: list[Content]) -> list[Turn]:
    """Join consecutive contents of the model, which the maker's own SDK sends back frame by frame."""
    turns: list[Turn] = []
    for index, content in enumerate(contents):
        parts = [(f"contents[{index}].parts[{number}]", part) for number, part in enumerate(content.get("parts", ()))]
        if turns and not turns[-1].is_user and not is_user(content):
            turns[-1].parts += parts
        else:
            turns.append(Turn(f"contents[{index}]", is_user(content), parts))
    return turns


def _check_calls(turns: list[Turn], report: Report) -> list[Placed]:
    """Match results with calls; return the calls of the last turn, which wait for results."""
    unanswered_calls: list[Placed] = []
    for index, turn in enumerate(turns):
        calls, results = turn.values("functionCall"), turn.values("functionResponse")
        # It says so: calls do not stand at the beginning, and it is the model who calls.
        if calls and (turn.is_user or index == 0):
            message = (
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
            report.add("order", turn.path, message, "calls are the model's, and the first content is the user's")
        if results and (not unanswered_calls or not turn.is_user):
            # It says so for results without calls, and for those that come too late.
            for path, result in results:
                message = "Please ensure that function response turn comes immediately after a function call turn."
                _report_orphan(path, result, message, report)
        else:
            _check_pairs(unanswered_calls, results, report)
        unanswered_calls = calls
    return unanswered_calls


def _check_pairs(calls: list[Placed], results: list[Placed], report: Report) -> None:
    """Check that each result belongs to one call: by its id if all have one, else by its position."""
    # It says so for results that are missing, too many, or after something else.
    if len(calls) != len(results):
        for path, call in calls[len(results) :]:
            _report_unanswered(path, call, report)
        for path, result in results[len(calls) :]:
            _report_orphan(path, result, NUMBER, report)
        return
    if all("id" in named for _, named in (*calls, *results)):
        calls, results = sorted(calls, key=_id), sorted(results, key=_id)
        # It says "The id of the function call this response is for", documented to match it
        message = "Please ensure that function response ids match those of the function call turn."
        for (_, call), (path, result) in zip(calls, results, strict=True):
            if call["id"] != result["id"]:
                _report_orphan(path, result, message, report)
                return
    # It says "Matches FunctionDeclaration.name and FunctionCall.name", documented
    for (_, call), (path, result) in zip(calls, results, strict=True):
        if call.get("name") != result.get("name"):
            message = (
                "Please ensure that function response names match those of the function call turn, in their order."
            )
            expected, actual = as_json(call.get("name")), as_json(result.get("name"))
            problem = f"this is the result of {actual}, and the call in its place is of {expected}"
            report.add("orphan_result", path, message, problem, settings=ORPHAN_SETTINGS)


def _report_orphan(path: str, result: dict[str, Any], message: str, report: Report) -> None:
    problem = f"this result has no call in the content before it: {as_json(result.get('name'))}"
    report.add("orphan_result", path, message, problem, settings=ORPHAN_SETTINGS)


def _report_unanswered(path: str, call: dict[str, Any], report: Report) -> None:
    problem = f"the content right after it has no `functionResponse` for the call of {as_json(call.get('name'))}"
    report.add("unanswered_call", path, NUMBER, problem)


def _check_order(contents: list[Content], report: Report, *, must_alternate: bool, must_end_with_user: bool) -> None:
    for index, (before, content) in enumerate(pairwise(contents), 1):
        # It says "Please ensure that multiturn requests alternate between user and model.": the first generation
        if must_alternate and is_user(before) == is_user(content):
            message = "Please ensure that multiturn requests alternate between user and model."
            report.add("order", f"contents[{index}]", message, is_certain=False)
    # It says "Please ensure that single turn requests end with a user role or the role field is empty.", and of
    # multiturn requests that they must end "with a user role or a function response".
    if must_end_with_user and not is_user(contents[-1]):
        message = "Please ensure that requests end with a user role or a function response."
        problem = "the last content is the model's; many servers require one of the user, or the result of a call"
        settings = ("wire.ends_with_model = false",)
        report.add("order", f"contents[{len(contents) - 1}]", message, problem, is_certain=False, settings=settings)


def _check_signatures(turns: list[Turn], report: Report) -> None:
    """The turn in progress begins with the user's last text; in each of its steps the first call has a signature.

    A text beside the results of calls does not begin a turn.
    """
    starts = [index for index, turn in enumerate(turns) if turn.is_user and _has_text(turn) and not _has_result(turn)]
    start = starts[-1] if starts else 0
    for index, turn in enumerate(turns[start:], start):
        path, first = next(((path, part) for path, part in turn.parts if "functionCall" in part), ("", {}))
        if first and not first.get("thoughtSignature"):
            # It says so, with the name of the function and the place of the turn, counted from one.
            message = (
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work "
                f"correctly. Additional data, function call `default_api:{first['functionCall'].get('name')}` , "
                f"position {index + 1}."
            )
            problem = "a call of this model comes back with its `thoughtSignature`"
            report.add("reasoning", f"{path}.thought_signature", message, problem)


def _has_result(turn: Turn) -> bool:
    return any("functionResponse" in part for _, part in turn.parts)


def _has_text(turn: Turn) -> bool:
    return any("text" in part and not part.get("thought") for _, part in turn.parts)


def _id(placed: Placed) -> str:
    return str(placed[1]["id"])


DATA: Final = (
    "text",
    "inlineData",
    "fileData",
    "functionCall",
    "functionResponse",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
)
ROLES: Final = ("user", "model", "function")
SYSTEM: Final = ('wire.system = "as_user"', 'wire.system = "first"')
ORPHAN_SETTINGS: Final = ('wire.orphan_outputs = "text"',)
NUMBER: Final = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
FILE: Final = re.compile(r"https?://[^/]|gs://[^/]")
MIME_TYPE: Final = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|application/pdf|text/[a-z0-9.+-]+"
    r"|audio/(wav|x-wav|mp3|mpeg|mp4|m4a|aiff|aac|ogg|opus|flac|webm|pcm|l16)"
    r"|video/(mp4|mpeg|mov|quicktime|avi|x-flv|mpg|mpegps|webm|wmv|3gpp)",
    re.IGNORECASE,
)
