"""Writes the hub's conversation as gemini contents: user and model alternate, results directly after their calls.

`dialects/common/history` builds the turns; this module writes each one, in the order of its items. A signature that
this server made goes back on its part (RSN-2); the reasoning of other servers is left out (RSN-3). A plain conversation
takes a fast path, which writes the same contents; a test compares the two.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common import freeform_tools
from antiphon.dialects.common.call_arguments import arguments_as_object, arguments_or_wrapper
from antiphon.dialects.common.empty_conversation import CONTINUE
from antiphon.dialects.common.envelope import unseal_reasoning
from antiphon.dialects.common.history import (
    NO_RESULT,
    AnsweredCall,
    AssistantTurn,
    HistoryTurn,
    MessageLosses,
    PlacedItem,
    ToolCallParam,
    ToolOutputParam,
    build_history,
    report_other_items,
)
from antiphon.dialects.common.plain_history import PlainCalls, plain_history
from antiphon.dialects.common.tool_errors import is_failed, tool_error_text, without_error_mark
from antiphon.dialects.common.tool_names import ToolNames, key_of_call
from antiphon.dialects.common.unknown_fields import report_unknown_fields
from antiphon.dialects.gemini.content_out import AnyPartOut, ContentFromHub
from antiphon.dialects.gemini.wire import (
    GENERATED_ID_PREFIX,
    PREFIX,
    RESULT_PARTS_FIELD,
    THOUGHT_FIELD,
    TOOL_RESPONSE_FIELD,
    ContentOut,
    FunctionCallOut,
    FunctionResponseOut,
    GeminiWire,
    PartOut,
)
from antiphon.protocol.content import (
    InputAudio,
    InputFileParam,
    InputImageParam,
    InputVideo,
    UnknownContent,
)
from antiphon.protocol.items import (
    CustomToolCallParam,
    ItemParam,
    MessageParam,
    ReasoningParam,
    UnknownItem,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import Request, input_items


class SystemAndContents(NamedTuple):
    system: list[str]
    contents: list[ContentOut]


def history_from_hub(request: Request, names: ToolNames, wire: GeminiWire, losses: Losses) -> SystemAndContents:
    """The contents of the conversation, with the system texts at its start."""
    missing_signature = _missing_signature(request, wire)
    plain = plain_contents(input_items(request), names, wire) if not missing_signature else None
    return (
        SystemAndContents([], plain)
        if plain
        else general_history_from_hub(request, names, wire, losses, missing_signature)
    )


def general_history_from_hub(
    request: Request, names: ToolNames, wire: GeminiWire, losses: Losses, missing_signature: str = ""
) -> SystemAndContents:
    """Like `history_from_hub`, for any conversation: the items are put in order first."""
    history = build_history([_as_message_item(item) for item in input_items(request)], losses, wire.orphan_outputs)
    accepts_result_media = _model(request).startswith(wire.result_media_models)
    contents = _ContentWriter(names, wire, losses, missing_signature, accepts_result_media=accepts_result_media)
    start = _start_of_current_turn(history.turns)
    for index, turn in enumerate(history.turns):
        contents.add_turn(turn, is_current=index >= start)
    report_other_items(history.others, losses)
    return contents.finish()


def plain_contents(items: list[ItemParam], names: ToolNames, wire: GeminiWire) -> list[ContentOut] | None:
    """The contents of a plain conversation; None if it is not plain or cannot be sent unchanged."""
    turns = plain_history(items)
    if turns is None:
        return None
    contents: list[ContentOut] = []
    for turn in turns:
        if type(turn) is PlainCalls:
            model_parts: list[AnyPartOut] = [PartOut(text=turn.text)] if turn.text else []
            results: list[AnyPartOut] = []
            for call, output in zip(turn.calls, turn.outputs, strict=True):
                arguments = arguments_as_object(call.arguments)
                if arguments is None:
                    return None
                name, id = names.wire_name(("function", call.name, None)), _wire_id(call.call_id, wire)
                model_parts.append(PartOut(function_call=FunctionCallOut(name=name, args=arguments, id=id)))
                response = {"error" if output == NO_RESULT else "output": output}
                results.append(PartOut(function_response=FunctionResponseOut(name=name, response=response, id=id)))
            contents.append(ContentOut(role="model", parts=model_parts))
            contents.append(ContentOut(role="user", parts=results))
            continue
        text = turn.text
        if turn.role == "assistant":
            contents.append(ContentOut(role="model", parts=[PartOut(text=text)]))
        elif contents and contents[-1].role == "user":  # results, which the user's text follows
            contents[-1].parts.append(PartOut(text=text))
        else:
            contents.append(ContentOut(role="user", parts=[PartOut(text=text)]))
    return contents


def _wire_id(call_id: str, wire: GeminiWire) -> str | UnsetType:
    """The id of a call, if the server accepts ids and a client or a server has set it."""
    return call_id if wire.call_ids and not call_id.startswith(GENERATED_ID_PREFIX) else UNSET


def _missing_signature(request: Request, wire: GeminiWire) -> str:
    """The value that replaces a missing signature; empty for models that do not need one."""
    return wire.missing_signature if _model(request).startswith(wire.signed_models) else ""


def _model(request: Request) -> str:
    """The model name that profiles match."""
    return (request.model or "").rpartition("/")[2]


def _start_of_current_turn(turns: list[HistoryTurn]) -> int:
    """The index of the user message that the model is working on. A message after results is in one content with them,
    so it does not start a turn."""
    start, follows_results = 0, False
    for index, turn in enumerate(turns):
        if type(turn) is AssistantTurn:
            if turn.calls or any(_says_something(message.item) for message in turn.messages):
                follows_results = bool(turn.calls)
        elif not follows_results and _starts_model_turn(turn.item):
            start = index
    return start


def _says_something(message: MessageParam) -> bool:
    """Whether a message of the model is sent. An empty text is left out."""
    if isinstance(message.content, str):
        return bool(message.content)
    return any(getattr(part, "text", "other content") for part in message.content)


def _starts_model_turn(message: MessageParam) -> bool:
    """Whether a message starts a turn of the model. A message with only media does not."""
    if message.role != "user" or isinstance(message.content, str):
        return message.role == "user"
    return any(type(part) not in MEDIA_TYPES for part in message.content)


def _as_message_item(item: ItemParam) -> ItemParam:
    """An item of a kind that only this dialect has, as an assistant message."""
    if type(item) is UnknownItem and item.kind.startswith(PREFIX):
        return MessageParam(role="assistant", content=[UnknownContent(kind=item.kind, raw=item.raw)])
    return item


class _PendingSignatures:
    """Signatures that are pending until their part is written."""

    def __init__(self) -> None:
        self.text_signature = ""
        self.other_signature = ""

    def take_for_text(self) -> str:
        signature, self.text_signature = self.text_signature, ""
        return signature

    def take_for_other(self) -> str:
        signature, self.other_signature = self.other_signature, ""
        return signature


class _ContentWriter:
    """Collects contents, turn by turn."""

    def __init__(
        self,
        names: ToolNames,
        wire: GeminiWire,
        losses: Losses,
        missing_signature: str,
        *,
        accepts_result_media: bool,
    ) -> None:
        self._names = names
        self._accepts_result_media = accepts_result_media
        self._wire = wire
        self._losses = losses
        self._content = ContentFromHub(wire, losses)
        self._missing_signature = missing_signature
        self._system: list[str] = []
        self._contents: list[ContentOut] = []
        self._message_losses = MessageLosses(losses)

    def finish(self) -> SystemAndContents:
        first = self._contents[0] if self._contents else None
        if first is not None and any(type(part) is PartOut and part.function_call for part in first.parts):
            # The API refuses a call without a user message before it.
            self._losses.add(
                "input", "a call at the start of the input", "the API requires a user message before it; one is added"
            )
            self._contents.insert(0, ContentOut(role="user", parts=[PartOut(text=EARLIER_MESSAGES_OMITTED)]))
        if first is not None and self._contents[-1].role == "model" and not self._wire.ends_with_model:
            self._losses.add(
                "input",
                "a model message at the end of the input",
                "the API requires a user message after it; one is added",
            )
            self._add_parts("user", [PartOut(text=CONTINUE)])
        return SystemAndContents(self._system, self._contents)

    def add_turn(self, turn: HistoryTurn, *, is_current: bool) -> None:
        """Add a turn; `is_current` says that it comes after the last user message."""
        if type(turn) is AssistantTurn:
            self._add_model(turn, is_current)
        elif turn.item.role == "user":
            self._message_losses.report_fields(turn)
            self._add_parts("user", self._content.parts(turn.item.content, turn.path, "content", turn.first_part))
        else:
            self._add_system(turn)

    def _add_system(self, turn: PlacedItem[MessageParam]) -> None:
        self._message_losses.report_fields(turn)
        text = "\n".join(self._content.texts(turn.item.content, turn.path, "content", turn.first_part))
        if not text:
            return
        if not self._contents:
            self._system.append(text)
        elif self._wire.system == "first":
            self._losses.add(
                turn.path, "the position of a system message", "it is moved to the start, the only allowed position"
            )
            self._system.append(text)
        else:
            self._losses.add(turn.path, "the system role of a message", "it is sent as user text with a mark")
            self._add_parts("user", [PartOut(text=f"[{turn.item.role}] {text}")])

    def _add_model(self, turn: AssistantTurn, is_current: bool) -> None:
        """Add the model's reasoning, messages and calls in their order, then the results of the calls."""
        signatures = _PendingSignatures()
        for path, entry in _entries_in_input_order(turn):
            if isinstance(entry, ReasoningParam):
                self._add_reasoning(PlacedItem(path, entry), signatures)
            elif isinstance(entry, PlacedItem):
                self._add_message(entry, signatures)
            else:
                is_first = entry is turn.calls[0]
                self._add_parts("model", [self._call_part(entry, signatures, needs_signature=is_first and is_current)])
        self._add_signature_part(signatures)
        self._drop_signature(signatures)
        if turn.calls:
            self._add_results(turn.calls)

    def _add_signature_part(self, signatures: _PendingSignatures) -> None:
        """Add the pending signature of a text, which did not follow, on an empty part."""
        if signature := signatures.take_for_text():
            self._add_parts("model", [PartOut(text="", thought_signature=signature)])

    def _drop_signature(self, signatures: _PendingSignatures) -> None:
        """Drop the pending signature of a call, which did not follow."""
        if signatures.take_for_other():
            self._losses.add("input", "a signature whose call is missing", "it is valid only with that call")

    def _add_message(self, message: PlacedItem[MessageParam], signatures: _PendingSignatures) -> None:
        self._message_losses.report_fields(message)
        parts = self._content.parts(message.item.content, message.path, "content", message.first_part)
        for part in parts:
            self._add_parts("model", [_sign_part(part, signatures)])

    def _add_reasoning(self, reasoning: PlacedItem[ReasoningParam], signatures: _PendingSignatures) -> None:
        path, item = reasoning.path, reasoning.item
        report_unknown_fields(item, path, self._losses)
        envelope = unseal_reasoning(item.encrypted_content)
        if envelope is None and THOUGHT_FIELD in (item.extra or {}):
            thoughts = self._content.texts(item.content or [], path, "content")
            self._add_parts("model", [PartOut(text=text, thought=True) for text in thoughts])
            return
        if envelope is None or not envelope.is_for(self._wire.maker, "gemini"):
            if item.encrypted_content or item.content or item.summary:
                self._losses.add(path, "earlier reasoning", "the server accepts only reasoning that it sealed itself")
            return
        match envelope.content:
            case {"on": "thought", "signature": str() as signature, "text": str() as text}:
                self._add_parts("model", [PartOut(text=text, thought=True, thought_signature=signature)])
            case {"on": "text", "signature": str() as signature}:
                if not self._sign_last_text(signature):
                    self._add_signature_part(signatures)
                    signatures.text_signature = signature
            case {"on": "call" | "part", "signature": str() as signature}:
                self._drop_signature(signatures)
                signatures.other_signature = signature
            # Anything else is a summary of thoughts, which the server sends but does not accept: leaving it out is no
            # loss.

    def _sign_last_text(self, signature: str) -> bool:
        """Sign the last text of the model. Returns whether there was one."""
        if not self._contents or self._contents[-1].role != "model":
            return False
        parts = self._contents[-1].parts
        last = parts[-1]
        if type(last) is not PartOut or last.text is UNSET or last.thought or last.thought_signature:
            return False
        parts[-1] = replace(last, thought_signature=signature)
        return True

    def _call_part(self, answered: AnsweredCall, signatures: _PendingSignatures, *, needs_signature: bool) -> PartOut:
        path, call = answered.call.path, answered.call.item
        report_unknown_fields(call, path, self._losses)
        signature = signatures.take_for_other()
        if not signature and needs_signature and self._missing_signature:
            signature = self._missing_signature  # the client has none to send, so nothing is lost
        call_out = FunctionCallOut(
            name=self._names.wire_name(key_of_call(call)), args=self._arguments(call, path), id=self._id(call)
        )
        return PartOut(function_call=call_out, thought_signature=signature or UNSET)

    def _id(self, call: ToolCallParam) -> str | UnsetType:
        return _wire_id(call.call_id, self._wire)

    def _arguments(self, call: ToolCallParam, path: str) -> Raw:
        if isinstance(call, CustomToolCallParam):
            return Raw(freeform_tools.wrap_input(call.input).encode())
        return arguments_or_wrapper(call.arguments, path, self._losses)

    def _add_results(self, calls: list[AnsweredCall]) -> None:
        lifted_parts: list[AnyPartOut] = []
        self._add_parts(
            "user", [PartOut(function_response=self._function_response(answered, lifted_parts)) for answered in calls]
        )
        self._add_parts("user", lifted_parts)

    def _function_response(self, answered: AnsweredCall, lifted_parts: list[AnyPartOut]) -> FunctionResponseOut:
        call, output = answered.call.item, answered.output
        native_response = (output.item.extra or {}).get(TOOL_RESPONSE_FIELD)
        if native_response is None:
            report_unknown_fields(without_error_mark(output.item), output.path, self._losses)
        texts: list[str] = []
        result_media: list[dict[str, Any]] = []
        if isinstance(output.item.output, str):
            texts.append(output.item.output)
        else:
            media = _MediaOfResult(self._accepts_result_media, call.call_id, texts, lifted_parts)
            native_parts = dict(enumerate(_native_parts(output.item), 1)) if self._accepts_result_media else {}
            for index, part in enumerate(output.item.output):
                if index in native_parts and type(part) is InputFileParam:
                    part = replace(part, filename=UNSET)  # the original part has it
                for part_out in self._content.parts([part], output.path, "output", index):
                    media.add(part_out, native_parts.get(index))
            result_media = media.in_result
        text = "\n".join(texts)
        has_failed = is_failed(output.item)
        response = {"error": text or tool_error_text("")} if has_failed or text == NO_RESULT else {"output": text}
        return FunctionResponseOut(
            name=self._names.wire_name(key_of_call(call)),
            response=native_response if native_response is not None else response,
            id=self._id(call),
            parts=result_media or UNSET,
        )

    def _add_parts(self, role: Literal["user", "model"], parts: list[AnyPartOut]) -> None:
        """Add parts for a role. The API wants roles to alternate, so parts of the same role are joined."""
        if not parts:
            return
        if self._contents and self._contents[-1].role == role:
            self._contents[-1].parts.extend(parts)
        else:
            self._contents.append(ContentOut(role=role, parts=list(parts)))


class _MediaOfResult:
    """TOOL-6: media of a tool result stay in it, or move to `lifted_parts` with a label; a note replaces them."""

    def __init__(self, accepts_media: bool, call_id: str, texts: list[str], lifted_parts: list[AnyPartOut]) -> None:
        self.in_result: list[dict[str, Any]] = []
        self._accepts_media = accepts_media
        self._call_id = call_id
        self._texts = texts
        self._lifted_parts = lifted_parts
        self._count = 0

    def add(self, part_out: AnyPartOut, native_part: dict[str, Any] | None) -> None:
        """Add a part; `native_part` is its original form, if a client of this dialect sent it."""
        if isinstance(part_out, PartOut) and part_out.text:
            self._texts.append(part_out.text)
            return
        self._count += 1
        medium = _result_medium(part_out, native_part) if self._accepts_media else None
        if medium is not None:
            self.in_result.append(medium)
            return
        self._texts.append(f"[media {self._count} of this result follows below]")
        self._lifted_parts += [
            PartOut(text=f"Media {self._count} of the result of call {self._call_id}:"),
            part_out,
        ]


def _native_parts(output: ToolOutputParam) -> list[dict[str, Any]]:
    """The media parts of a client of this dialect, without their data."""
    raw = (output.extra or {}).get(RESULT_PARTS_FIELD)
    return msgspec.json.decode(raw, type=list[dict[str, Any]]) if raw is not None else []


def _result_medium(part_out: AnyPartOut, native_part: dict[str, Any] | None) -> dict[str, Any] | None:
    """A medium as a part of a result: in its original form, else as data of a documented type; None if neither."""
    members: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(part_out), type=dict[str, Any])
    blob = members.get("inlineData", {})
    if native_part is None:
        return members if blob.get("mimeType") in RESULT_MEDIA_TYPES else None
    return {**members, **native_part, **({"inlineData": {**native_part["inlineData"], **blob}} if blob else {})}


_Entry = tuple[str, ReasoningParam | PlacedItem[MessageParam] | AnsweredCall]


def _entries_in_input_order(turn: AssistantTurn) -> list[_Entry]:
    """The entries of a turn in their input order: a signature belongs to the entry next to it."""
    entries: list[tuple[list[int], _Entry]] = [
        *((_position(placed.path, placed.first_part), (placed.path, placed.item)) for placed in turn.reasoning),
        *((_position(placed.path, placed.first_part), (placed.path, placed)) for placed in turn.messages),
        *((_position(placed.call.path, 0), (placed.call.path, placed)) for placed in turn.calls),
    ]
    return [entry for _, entry in sorted(entries, key=lambda placed: placed[0])]


def _position(path: str, first: int) -> list[int]:
    return [*map(int, NUMBER.findall(path)), first]


def _sign_part(part: AnyPartOut, signatures: _PendingSignatures) -> AnyPartOut:
    if isinstance(part, dict):
        return (
            {**part, "thoughtSignature": Raw(msgspec.json.encode(signatures.take_for_other()))}
            if signatures.other_signature
            else part
        )
    return (
        replace(part, thought_signature=signatures.take_for_text()) if signatures.text_signature and part.text else part
    )


#: The types of media in results that the API documents.
RESULT_MEDIA_TYPES: Final = ("image/png", "image/jpeg", "image/webp", "application/pdf", "text/plain")
MEDIA_TYPES: Final = frozenset((InputAudio, InputFileParam, InputImageParam, InputVideo))
EARLIER_MESSAGES_OMITTED: Final = "[earlier messages omitted]"
NUMBER: Final = re.compile(r"\[(\d+)\]")
