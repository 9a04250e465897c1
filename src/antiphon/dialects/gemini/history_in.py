"""Translates a gemini client's contents to hub items. Each part becomes an item or a content part; the order stays.

Consecutive text parts of the model become one message, because clients send back the pieces of a stream. A signature is
sealed reasoning (RSN-2). An envelope of this gateway is a member of the open thought, or an item before its part. The
signature of a gemini server is put into an envelope where `answer_in` puts it: in its thought, after a text, or before
any other part. Clients may omit the ids of calls. Calls without ids are numbered through the whole conversation, so one
conversation always gets the same ids. A result without an id belongs to the first unanswered call of that name in the
preceding turn.
"""

from __future__ import annotations

import base64
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.envelope import client_maker, seal_reasoning, unseal_reasoning
from antiphon.dialects.common.placeholders import placeholder_for
from antiphon.dialects.common.tool_errors import ERROR_MARK
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.gemini.content_in import media_to_hub, standard_base64
from antiphon.dialects.gemini.wire import (
    GENERATED_ID_PREFIX,
    PREFIX,
    RESULT_PARTS_FIELD,
    THOUGHT_FIELD,
    TOOL_RESPONSE_FIELD,
    ContentIn,
    FunctionCallIn,
    FunctionResponseIn,
    PartIn,
    RequestIn,
    ResultMediaIn,
    native_fields_of,
)
from antiphon.protocol import codec
from antiphon.protocol.content import Content as HubContent
from antiphon.protocol.content import (
    ContentParam,
    InputAudio,
    InputText,
    OutputTextParam,
    ReasoningText,
    ToolOutputContentParam,
    UnknownContent,
)
from antiphon.protocol.items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    ItemParam,
    MessageParam,
    MessageRole,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.losses import Losses


def history_to_hub(contents: list[ContentIn], losses: Losses) -> list[ItemParam]:
    """The conversation as hub items."""
    items = _ItemCollector(contents, losses)
    for index, content in enumerate(contents):
        items.add_content(content, f"contents[{index}]")
    return items.finish()


def instructions_to_hub(request: RequestIn, losses: Losses) -> str | UnsetType:
    """The text of `systemInstruction`, in any of its forms. Parts other than text are losses."""
    match request.system_instruction:
        case str() as text:
            return text
        case ContentIn(parts=content_parts):
            parts, path = content_parts or [], "systemInstruction.parts"
        case list() as parts:
            path = "systemInstruction"
        case _:
            return UNSET
    for index, part in enumerate(parts):
        report_unknown_fields(part, f"{path}[{index}]", losses)
        if not isinstance(part.text, str):
            losses.add(f"{path}[{index}]", "a part that is not text", "only text is allowed here")
    return "\n".join(part.text for part in parts if part.text) or UNSET


class Signature(NamedTuple):
    """The signature of a part: an envelope of this gateway, or the signature of a gemini server. One is empty."""

    envelope: str = ""
    raw: str = ""


def read_signature(signature: str) -> Signature:
    """The signature of a part. A placeholder for a missing signature is no signature."""
    try:
        text = base64.b64decode(standard_base64(signature), validate=True).decode()
    except ValueError:  # not base64, or not UTF-8 inside
        text = signature
    if unseal_reasoning(text) is not None:
        return Signature(envelope=text)
    return Signature(raw="" if text in PLACEHOLDER_SIGNATURES else signature)


class CallIds:
    """Assigns ids to the calls and results of one conversation, in its order."""

    def __init__(self, contents: list[ContentIn]) -> None:
        calls = [part.function_call for content in contents for part in content.parts or () if part.function_call]
        self._client_ids = {call.id for call in calls if call.id}
        self._count = 0
        self._unanswered: list[tuple[str, str]] = []  # name and id of each call without a result
        self._is_answering = False

    def id_of_call(self, call: FunctionCallIn) -> str:
        """The id of a call. The first call after results starts a new turn; unanswered calls of the last turn are
        dropped.
        """
        if self._is_answering:
            self._unanswered, self._is_answering = [], False
        id = call.id or self._next_free_id()
        self._unanswered.append((call.name, id))
        return id

    def id_of_result(self, result: FunctionResponseIn) -> str:
        """The id of the call that a result answers; a new id if there is no such call."""
        self._is_answering = True
        matches = [(name, id) for name, id in self._unanswered if id == result.id]
        if not matches and result.id not in self._client_ids:
            matches = [(name, id) for name, id in self._unanswered if name == result.name]
        if not matches:
            return result.id or self._next_free_id()
        self._unanswered.remove(matches[0])
        return matches[0][1]

    def _next_free_id(self) -> str:
        while True:
            self._count += 1
            id = f"{GENERATED_ID_PREFIX}{self._count}"
            if id not in self._client_ids:
                return id


class _ItemCollector:
    """Collects hub items from contents, one content at a time."""

    def __init__(self, contents: list[ContentIn], losses: Losses) -> None:
        self._losses = losses
        self._items: list[ItemParam] = []
        self._call_ids = CallIds(contents)
        self._text_pieces: list[str] = []  # text pieces of the open assistant message
        self._thought_pieces: list[str] | None = None  # text pieces of the open thought

    def finish(self) -> list[ItemParam]:
        self._end_open_items()
        return self._items

    def add_content(self, content: ContentIn, path: str) -> None:
        report_unknown_fields(content, path, self._losses)
        parts = [(f"{path}.parts[{index}]", part) for index, part in enumerate(content.parts or ())]
        if content.role == "model":
            for part_path, part in parts:
                self._add_model_part(part, part_path)
        else:
            self._add_user_parts(parts, "system" if content.role == "system" else "user")

    # Parts of the model

    def _add_model_part(self, part: PartIn, path: str) -> None:
        signature = read_signature(part.thought_signature) if part.thought_signature else NO_SIGNATURE
        if part.thought and (isinstance(part.text, str) or _has_only_a_signature(part)):
            report_unknown_fields(part, path, self._losses)
            self._add_thought(part.text or "")
            self._sign_thought(signature)
            return
        self._add_envelope(signature.envelope)
        if isinstance(part.text, str):
            report_unknown_fields(part, path, self._losses)
            self._add_text(part.text)
            self._add_raw_signature(signature.raw, "text")
        elif (item := self._call_or_output(part, path)) is not None:
            self._add_raw_signature(signature.raw, "call")
            self._add_item(item)
        elif native := _native_part(part):
            self._add_raw_signature(signature.raw, "part")
            self._add_item(UnknownItem(kind=native.kind, raw=native.raw))
        elif part.thought_signature:
            self._add_raw_signature(signature.raw, "text")
        else:
            self._losses.add(path, "a part without content")

    def _add_thought(self, text: str) -> None:
        if self._thought_pieces is None:
            self._end_open_items()
            self._thought_pieces = []
        self._thought_pieces.append(text)

    def _add_text(self, text: str) -> None:
        if text:  # empty text is the end of a stream, or carries a signature
            self._end_thought()
            self._text_pieces.append(text)

    def _sign_thought(self, signature: Signature) -> None:
        """Add the signature of the open thought, which ends with it."""
        if signature.envelope:
            self._end_thought(signature.envelope)
        elif signature.raw:
            text = "".join(self._thought_pieces or ())
            self._end_thought(_seal({"on": "thought", "signature": signature.raw, "text": text}))

    def _add_envelope(self, envelope: str) -> None:
        """Add an envelope to the open thought, or as a reasoning item of its own."""
        if envelope:
            if self._thought_pieces is None:
                self._add_thought("")
            self._end_thought(envelope)

    def _add_raw_signature(self, signature: str, on: Literal["text", "call", "part"]) -> None:
        """Add a server's own signature as a reasoning item of its own."""
        if signature:
            self._add_item(ReasoningParam(summary=[], encrypted_content=_seal({"on": on, "signature": signature})))

    def _end_thought(self, sealed: str | UnsetType = UNSET) -> None:
        if self._thought_pieces is not None:
            text = "".join(self._thought_pieces)
            content: list[HubContent] | UnsetType = [ReasoningText(text=text)] if text else UNSET
            if text or sealed:
                extra = UNSET if sealed else {THOUGHT_FIELD: Raw(b"true")}
                self._items.append(ReasoningParam(summary=[], content=content, encrypted_content=sealed, extra=extra))
            self._thought_pieces = None

    def _end_text(self) -> None:
        if self._text_pieces:
            self._items.append(
                MessageParam(role="assistant", content=[OutputTextParam(text="".join(self._text_pieces))])
            )
            self._text_pieces = []

    def _end_open_items(self) -> None:
        self._end_text()
        self._end_thought()

    def _add_item(self, item: ItemParam) -> None:
        self._end_open_items()
        self._items.append(item)

    # Parts of the user

    def _add_user_parts(self, parts: list[tuple[str, PartIn]], role: MessageRole) -> None:
        content: list[ContentParam] = []
        for path, part in parts:
            item = self._call_or_output(part, path)
            if item is None:
                content += self._content_of_part(part, path)
                continue
            self._add_message(role, content)
            content = []
            self._add_item(item)
        self._add_message(role, content)

    def _add_message(self, role: MessageRole, content: list[ContentParam]) -> None:
        if content:
            self._add_item(MessageParam(role=role, content=content))

    def _content_of_part(self, part: PartIn, path: str) -> list[ContentParam]:
        if part.thought_signature:
            self._losses.add(f"{path}.thoughtSignature", "a signature", "only model messages have signatures")
        if isinstance(part.text, str):
            report_unknown_fields(part, path, self._losses)
            return [InputText(text=part.text)]
        media = media_to_hub(part, path, self._losses)
        if media is not None:
            return [replace(media, extra=native_fields_of(part))]
        native = _native_part(part)
        if native is None:
            self._losses.add(path, "a part without content")
            return []
        return [native]

    # Calls and results

    def _call_or_output(self, part: PartIn, path: str) -> FunctionCallParam | FunctionCallOutputParam | None:
        if not part.function_call and not part.function_response:
            return None
        report_unknown_fields(part, path, self._losses)
        if part.function_call:
            return self._call_to_hub(part.function_call, f"{path}.functionCall")
        assert part.function_response
        return self._output_to_hub(part.function_response, f"{path}.functionResponse")

    def _call_to_hub(self, call: FunctionCallIn, path: str) -> FunctionCallParam:
        report_unknown_fields(call, path, self._losses)
        arguments = codec.encode(call.args or {}).decode()
        return FunctionCallParam(call_id=self._call_ids.id_of_call(call), name=call.name, arguments=arguments)

    def _output_to_hub(self, result: FunctionResponseIn, path: str) -> FunctionCallOutputParam:
        """A tool result as text. Its original object is kept for servers of this dialect if the text does not contain
        all of it.
        """
        report_unknown_fields(result, path, self._losses)
        result_text = _result_text(result)
        native = {} if result_text.is_complete else {TOOL_RESPONSE_FIELD: Raw(codec.encode(result.response))}
        media = [self._result_part(part, f"{path}.parts[{index}]") for index, part in enumerate(result.parts or ())]
        if media:
            native[RESULT_PARTS_FIELD] = Raw(codec.encode([_without_data(part) for part in result.parts or ()]))
        return FunctionCallOutputParam(
            call_id=self._call_ids.id_of_result(result),
            output=[InputText(text=result_text.text), *media] if media else result_text.text,
            extra={**native, **(ERROR_MARK if result_text.has_failed else {})} or UNSET,
        )

    def _result_part(self, part: ResultMediaIn, path: str) -> ToolOutputContentParam:
        media = media_to_hub(part, path, self._losses)
        if media is None or isinstance(media, InputAudio):
            note = placeholder_for(media) if media else "[part omitted: no source]"
            self._losses.add(path, note.strip("[]"), "a tool output cannot have it")
            return InputText(text=note)
        return replace(media, extra=native_fields_of(part))


def _without_data(part: ResultMediaIn) -> ResultMediaIn:
    """A part without its data, which the hub's part has, and without its unknown fields."""
    blob = replace(part.inline_data, data="") if part.inline_data else UNSET
    return replace(part, inline_data=blob, extra=UNSET)


def _has_only_a_signature(part: PartIn) -> bool:
    return not (part.function_call or part.function_response) and _native_part(part) is None


def _seal(content: dict[str, str]) -> str:
    """An envelope for the signature of an unknown server of this dialect."""
    return seal_reasoning(client_maker("gemini"), content)


def _native_part(part: PartIn) -> UnknownContent | None:
    """ITEM-5: a part that only servers of this dialect know, with all its members; None if it has no content."""
    members = msgspec.json.decode(codec.encode(part), type=dict[str, Raw])
    members_of_kind = {
        name: raw for name, raw in members.items() if name not in COMMON_MEMBERS and bytes(raw) != b"null"
    }
    name = next((name for name in members_of_kind if name not in METADATA_MEMBERS), None)
    if name is None:
        return None
    kind = PREFIX + name
    return UnknownContent(kind=kind, raw=Raw(codec.encode({"type": kind, **members_of_kind})))


class _ResultText(NamedTuple):
    """A tool result as one text. `is_complete` says that the text holds everything in the result object."""

    text: str
    is_complete: bool
    has_failed: bool = False


def _result_text(result: FunctionResponseIn) -> _ResultText:
    match result.response:
        case None | UnsetType():
            return _ResultText("", True)
        case {"output": str() as text} if len(result.response) == 1:
            return _ResultText(text, True)
        case {"result": str() as text} if len(result.response) == 1:
            return _ResultText(text, False)
        case {"error": error} if error and len(result.response) == 1:  # the API's member for a failed tool
            is_text = isinstance(error, str)
            return _ResultText(error if is_text else codec.encode(error).decode(), is_text, has_failed=True)
        case response:
            return _ResultText(codec.encode(response).decode(), False)


NO_SIGNATURE: Final = Signature()
#: Values that clients send when they have no signature. `history_from_hub` adds the value that a server expects.
PLACEHOLDER_SIGNATURES: Final = frozenset({"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"})
#: Members that any part may have, and members that qualify another member of the part.
COMMON_MEMBERS: Final = frozenset({"text", "thought", "thoughtSignature"})
METADATA_MEMBERS: Final = frozenset(
    {"videoMetadata", "mediaResolution", "partMetadata", "mediaProcessing", "speechMetadata"}
)
