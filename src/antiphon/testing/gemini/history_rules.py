"""The rules of gemini servers for conversations: roles, turns, parts, calls and results that must match."""

from __future__ import annotations

import itertools
import re
from typing import Any, Final, NoReturn

from msgspec import Struct

from antiphon.testing.gemini.errors import GeminiRequestRefused
from antiphon.testing.gemini.signatures import Signatures

Content = dict[str, Any]


class HistoryRules(Struct, frozen=True, kw_only=True):
    """The rules for conversations that not all servers have."""

    alternation: bool
    last_word: bool
    signed: bool


def check_contents(contents: list[Content] | None, signatures: Signatures, manner: HistoryRules) -> None:
    # It says "* GenerateContentRequest.contents: contents is not specified"
    if not contents:
        _refuse("contents", "contents is not specified")
    for at, content in enumerate(contents):
        _check_content(content, f"contents[{at}]", alone=len(contents) == 1)
        for part in content["parts"]:
            signatures.check(part)
    turns = _joined(contents)
    _check_calls(turns)
    _check_order(contents, manner)
    if manner.signed:
        _check_signed(turns)


def texts_of(content: Any) -> list[str]:
    """Return the texts of a content without thoughts; empty for any other value."""
    parts = content.get("parts") if isinstance(content, dict) else None
    visible = (
        [part for part in parts if isinstance(part, dict) and not part.get("thought")]
        if isinstance(parts, list)
        else []
    )
    return [part["text"] for part in visible if isinstance(part.get("text"), str)]


def in_parts(content: Content, field: str) -> list[dict[str, Any]]:
    """Return the values of this field (`functionCall`, `functionResponse`) in the parts of a content."""
    return [part[field] for part in content.get("parts", ()) if field in part]


def is_user(content: Content) -> bool:
    """Whether it is the user's side that speaks; who does not say so is the user."""
    return bool(content.get("role", "user") != "model")


def _check_content(content: Content, path: str, *, alone: bool) -> None:
    role = content.get("role")
    # It says "Please use a valid role: user, model."; `function` is an older name for the user with results, and a
    # single content needs no role at all.
    if role not in ("user", "model", "function") and not (alone and role is None):
        raise GeminiRequestRefused("Please use a valid role: user, model.")
    # It says "contents.parts must not be empty."
    if not content.get("parts"):
        _refuse(f"{path}.parts", "contents.parts must not be empty.")
    for at, part in enumerate(content["parts"]):
        _check_part(part, f"{path}.parts[{at}]", by_model=role == "model")


def _check_part(part: dict[str, Any], path: str, *, by_model: bool) -> None:
    data = [name for name in part if name in DATA]
    # It says "Invalid value (oneof), oneof field 'data' is already set. Cannot set 'text'"
    if len(data) > 1:
        raise GeminiRequestRefused(
            f"Invalid value at '{path}' (oneof), oneof field 'data' is already set. Cannot set '{data[1]}'"
        )
    # It says "data: required oneof field 'data' must have one initialized field", and other versions "must include at
    # least one parts field" for an empty text; but what the model said comes back as it was, and its stream ends in an
    # empty text.
    if not data or (part.get("text") == "" and not by_model):
        _refuse(f"{path}.data", "required oneof field 'data' must have one initialized field")
    match part:
        case {"inlineData": blob}:
            _check_blob(blob, f"{path}.inline_data")
        case {"fileData": file}:
            _check_file(file, f"{path}.file_data")
        case {"functionCall": call}:
            _check_name(call, f"{path}.function_call")
        case {"functionResponse": result}:
            _check_name(result, f"{path}.function_response")
            # It says "Required. The function response in JSON object format."
            if "response" not in result:
                _refuse(f"{path}.function_response.response", "required field is not set")
            for at, inner in enumerate(result.get("parts", ())):
                _check_blob(inner.get("inlineData", {}), f"{path}.function_response.parts[{at}].inline_data")


def _check_blob(blob: dict[str, Any], path: str) -> None:
    kind = blob.get("mimeType", "")
    # It says "Unsupported MIME type: png", and so for image/jpg, image/gif and whatever the models cannot read
    if not MIME_TYPE.fullmatch(kind):
        raise GeminiRequestRefused(f"Unsupported MIME type: {kind}")
    # It says "Unable to process input image": nothing is no image
    if not blob.get("data"):
        _refuse(f"{path}.data", "Unable to process input: it is empty")


def _check_file(file: dict[str, Any], path: str) -> None:
    # It says "Invalid or unsupported file uri": a file of the server's own, a bucket or a web address; data URLs are
    # not taken
    if not FILE.match(file.get("fileUri", "")):
        _refuse(f"{path}.file_uri", f"Invalid or unsupported file uri: {file.get('fileUri', '')[:100]}")


def _check_name(named: dict[str, Any], path: str) -> None:
    # It says "function_response.name: Name cannot be empty.", and the same pattern as in a declaration
    if not named.get("name"):
        _refuse(f"{path}.name", "Name cannot be empty.")
    if not NAME.fullmatch(named["name"]):
        _refuse(f"{path}.name", f"Invalid function name: {named['name']!r} does not match {NAME.pattern}")


def _joined(contents: list[Content]) -> list[Content]:
    """What the model said in one go, which the maker's own SDK sends back frame by frame, as one content."""
    turns: list[Content] = []
    for content in contents:
        if turns and not is_user(turns[-1]) and not is_user(content):
            turns[-1] = {**content, "parts": [*turns[-1]["parts"], *content["parts"]]}
        else:
            turns.append(content)
    return turns


def _check_calls(turns: list[Content]) -> None:
    before: Content = {}
    for content in turns:
        calls, waiting = in_parts(content, "functionCall"), in_parts(before, "functionCall")
        results = in_parts(content, "functionResponse")
        # It says so: calls do not stand at the beginning, and it is the model who calls.
        if calls and (is_user(content) or not before):
            raise GeminiRequestRefused(
                "Please ensure that function call turn comes immediately after a user turn or after a function "
                "response turn."
            )
        # It says so for results without calls, and for those that come too late.
        if results and (not waiting or not is_user(content)):
            raise GeminiRequestRefused(
                "Please ensure that function response turn comes immediately after a function call turn."
            )
        # It says so for results that are missing, too many, or after something else.
        if len(results) != len(waiting):
            raise GeminiRequestRefused(
                "Please ensure that the number of function response parts is equal to the number of function call "
                "parts of the "
                "function call turn."
            )
        _check_pairs(waiting, results)
        before = content


def _check_pairs(calls: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
    """Each result belongs to one call: by its id if all have one, else by its place."""
    if all("id" in named for named in (*calls, *results)):
        calls, results = sorted(calls, key=_id), sorted(results, key=_id)
        # It says "The id of the function call this response is for", documented to match it
        if [_id(call) for call in calls] != [_id(result) for result in results]:
            raise GeminiRequestRefused(
                "Please ensure that function response ids match those of the function call turn."
            )
    # It says "Matches FunctionDeclaration.name and FunctionCall.name", documented
    if [call["name"] for call in calls] != [result["name"] for result in results]:
        raise GeminiRequestRefused(
            "Please ensure that function response names match those of the function call turn, in their order."
        )


def _check_order(contents: list[Content], manner: HistoryRules) -> None:
    for before, content in itertools.pairwise(contents):
        # It says "Please ensure that multiturn requests alternate between user and model.": the first generation
        if manner.alternation and is_user(before) == is_user(content):
            raise GeminiRequestRefused("Please ensure that multiturn requests alternate between user and model.")
    # It says "Please ensure that single turn requests end with a user role or the role field is empty.", and of
    # multiturn requests that they must end "with a user role or a function response".
    if manner.last_word and not is_user(contents[-1]):
        raise GeminiRequestRefused("Please ensure that requests end with a user role or a function response.")


def _check_signed(turns: list[Content]) -> None:
    """The turn under way begins where the user spoke last; in each of its steps the first call has a signature."""
    start = max((at for at, turn in enumerate(turns) if is_user(turn) and texts_of(turn)), default=0)
    for at, turn in enumerate(turns[start:], start):
        first = next((part for part in turn["parts"] if "functionCall" in part), None)
        if first is not None and not first.get("thoughtSignature"):
            # It says so, with the name of the function and the place of the turn, counted from one.
            raise GeminiRequestRefused(
                "Function call is missing a thought_signature in functionCall parts. This is required for tools to "
                "work "
                f"correctly. Additional data, function call `default_api:{first['functionCall']['name']}` , position "
                f"{at + 1}."
            )


def _id(named: dict[str, Any]) -> str:
    return str(named["id"])


def _refuse(path: str, wrong: str) -> NoReturn:
    raise GeminiRequestRefused(f"* GenerateContentRequest.{path}: {wrong}\n")


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
NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
FILE: Final = re.compile(r"https?://[^/]|gs://[^/]")
MIME_TYPE: Final = re.compile(
    r"image/(png|jpeg|webp|heic|heif)|application/pdf|text/[a-z0-9.+-]+"
    r"|audio/(wav|x-wav|mp3|mpeg|mp4|m4a|aiff|aac|ogg|opus|flac|webm|pcm|l16)"
    r"|video/(mp4|mpeg|mov|quicktime|avi|x-flv|mpg|mpegps|webm|wmv|3gpp)",
    re.IGNORECASE,
)
