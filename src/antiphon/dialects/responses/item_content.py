"""Writes the content of items: the deltas of a server, and what the final form of an item adds to them.

If a `done` event or the terminal event extends the streamed text, the rest is written as a last delta. If it
contradicts the streamed text, the text stays, because the client has it already, and the contradiction is reported as a
loss. `answer_in` decides which item an event belongs to, and when an item is announced and closed.

RSN-4: if the client asked for a summary, an item whose reasoning text comes before any summary gives this text as its
summary. If the server sends a summary of the item later, it is added at the end of the item, unless it repeats the
text. An item that starts with a summary keeps both as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, assert_never, cast

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.responses.item_tracker import (
    TEXT_KINDS_IN_MESSAGE,
    TEXT_KINDS_IN_REASONING,
    TEXT_KINDS_IN_SUMMARY,
    ItemKind,
    TextKind,
    UpstreamItem,
    UpstreamPart,
)
from antiphon.dialects.responses.response_wire import (
    ABSENT_JSON,
    ServerItem,
    ServerLogProb,
    ServerPart,
    annotation_to_hub,
    decode_parts,
    decode_struct,
    decode_value,
    item_to_hub,
    logprobs_to_hub,
    text_or_json,
)
from antiphon.protocol.base import Shape
from antiphon.protocol.content import OutputText, ReasoningText, Refusal, SummaryText
from antiphon.protocol.grammar_tables import IMMUTABLE_FIELDS
from antiphon.protocol.items import CustomToolCall, FunctionCall, Item, Message, Reasoning
from antiphon.protocol.losses import Losses
from antiphon.protocol.open_items import PartKind
from antiphon.protocol.writer import ResponseWriter


class ItemContent:
    """Writes the content of the items of one response. Each item was announced to the client before."""

    def __init__(
        self,
        writer: ResponseWriter,
        losses: Losses,
        maker: str,
        new_id: Callable[[str], str],
        *,
        wants_summary: bool,
    ) -> None:
        self._writer = writer
        self._losses = losses
        self._maker = maker
        self._new_id = new_id
        self._wants_summary = wants_summary

    # Events of the server

    def on_part_added(self, item: UpstreamItem, text_kind: TextKind, index: int | None) -> None:
        """STR-3: open a part, even if the server gives every part the index 0."""
        part = item.part_at(text_kind, index) if index is not None else None
        if part is None or part.is_closed:
            part = item.add_part(text_kind, index)
        self._write(item, part, "")

    def on_delta(
        self,
        item: UpstreamItem,
        text_kind: TextKind,
        index: int | None,
        text: str,
        logprobs: list[ServerLogProb] | None = None,
    ) -> None:
        part = item.part_at(text_kind, index)
        if part.is_closed:
            self.report_loss(item, _path_of(part), "output after the end of the part", "the part has ended (STR-3)")
            return
        self._write(item, part, text, logprobs)

    def on_text_done(self, item: UpstreamItem, text_kind: TextKind, index: int | None, server_part: ServerPart) -> None:
        """STR-6: compare the whole text of a part with the streamed text."""
        self._complete_part(item, item.part_at(text_kind, index), server_part)

    def on_part_done(self, item: UpstreamItem, text_kind: TextKind, index: int | None, server_part: ServerPart) -> None:
        part = item.part_at(text_kind, index)
        self._complete_part(item, part, server_part)
        self._end_part(item, part)

    def on_annotation(self, item: UpstreamItem, index: int | None, raw: Raw) -> None:
        """Add a citation (STR-11)."""
        part = item.part_at("text", index)
        if part.is_closed:
            self.report_loss(item, _path_of(part), "a citation after the end of the part", "the part has ended (STR-3)")
        else:
            self._add_annotation(item, part, raw)

    def on_arguments_delta(self, item: UpstreamItem, delta: str) -> None:
        if item.freeform_input is not None:
            item.pieces.append(delta)
            self._writer.count_bytes(len(delta))
            self._writer.add_custom_input(item.key, item.freeform_input.feed(delta))
        elif item.kind == "custom":
            self._writer.add_custom_input(item.key, delta)
        else:
            self._writer.add_arguments(item.key, delta)

    def on_arguments_done(self, item: UpstreamItem, whole: str | None) -> None:
        """STR-9, STR-6: write the rest of a call's arguments or input."""
        streamed = item.pieces.join()
        if not whole or whole == streamed:
            return
        if item.has_final_form or not whole.startswith(streamed):
            self.report_loss(
                item,
                ".arguments",
                f"a final text of {len(whole)} characters",
                "it differs from the streamed text (STR-6)",
            )
        else:
            self.on_arguments_delta(item, whole[len(streamed) :])

    # Summaries

    def gives_content_as_summary(self, item: UpstreamItem) -> bool:
        """RSN-4: whether the client gets the reasoning text of the item as its summary. The first call decides."""
        if self._wants_summary and not item.content_is_summary:
            item.content_is_summary = item.kind == "reasoning" and not _has_own_summary(item)
        return item.content_is_summary

    def end_summary(self, item: UpstreamItem) -> None:
        """RSN-4: add the server's own summary, which came after the text that is the summary."""
        if not item.content_is_summary or item.has_final_form:
            return
        text_parts, own_parts = item.parts_of_kind("reasoning"), item.parts_of_kind("summary")
        texts = [part.text for part in text_parts]
        for part in text_parts:
            self._end_part(item, part)
        for part in own_parts:
            if part.text and part.text not in (*texts, "".join(texts)):
                self._writer.add_summary(item.key, part.text, part_key=part.key)

    # Final forms

    def merge_final_form(self, item: UpstreamItem, server_item: ServerItem) -> None:
        """STR-6: compare the final form with the streamed output, and write what is missing."""
        if item.kind == "message":
            self._merge_final_parts(item, decode_parts(server_item.content), TEXT_KINDS_IN_MESSAGE)
        elif item.kind == "reasoning":
            self._merge_final_parts(item, decode_parts(server_item.summary), TEXT_KINDS_IN_SUMMARY)
            self._merge_final_parts(item, decode_parts(server_item.content), TEXT_KINDS_IN_REASONING)
            if server_item.encrypted_content:
                self.set_encrypted_content(item, server_item.encrypted_content)
        elif item.kind == "call":
            self.on_arguments_done(item, text_or_json(server_item.arguments))
        else:
            self.on_arguments_done(item, text_or_json(server_item.input))

    def keep_extra_fields(self, item: UpstreamItem, raw: Raw) -> None:
        """Copy the phase and the unknown fields of the final form (ITEM-5, ITEM-7)."""
        if item.kind == "message" and item.phase:
            self._writer.set_phase(item.key, item.phase)
        typed_fields = MEMBERS_OF_KIND[item.kind]
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        extra_fields = {name: member for name, member in members.items() if name not in typed_fields}
        if extra_fields:
            self._writer.set_extra_fields(item.key, extra_fields)

    def end_freeform_input(self, item: UpstreamItem) -> None:
        """End the input of a custom tool that is called as a function."""
        if item.freeform_input is not None and not item.has_final_form:
            self._writer.add_custom_input(item.key, item.freeform_input.finish())
            if item.freeform_input.left_over:
                self.report_loss(
                    item,
                    ".input",
                    f"{item.freeform_input.left_over!r}",
                    "a custom tool accepts one string",
                )

    def set_encrypted_content(self, item: UpstreamItem, content: str) -> None:
        """Set the encrypted content of a reasoning item (RSN-1)."""
        if not item.has_final_form:  # later, `ServerForm` takes what the terminal event says
            self._writer.set_encrypted_content(item.key, self.seal(content, item.id))

    def whole_item(self, item: UpstreamItem, raw: Raw) -> Item:
        whole = item_to_hub(raw, item.type, item.hub_id or item.id or self._new_id("item"))
        if isinstance(whole, Reasoning) and whole.encrypted_content:
            return replace(whole, encrypted_content=self.seal(whole.encrypted_content, item.id))
        return whole

    def as_announced(self, item: UpstreamItem, raw: Raw) -> Raw:
        """STR-4: an item that is carried whole keeps the immutable fields of its announcement."""
        members = msgspec.json.decode(raw, type=dict[str, Raw])
        changed: dict[str, Raw] = {}
        for name in IMMUTABLE_FIELDS:
            announced_value = getattr(item.announced_form, name, None)
            if not announced_value:
                continue
            announced = Raw(msgspec.json.encode(announced_value))
            final_value = decode_value(members.get(name, ABSENT_JSON))
            if final_value != decode_value(announced):
                changed[name] = announced
                self.report_loss(
                    item,
                    f".{name}",
                    f"the value {final_value!r}",
                    f"the item started with {decode_value(announced)!r} (STR-4)",
                )
        return Raw(msgspec.json.encode(members | changed)) if changed else raw

    def report_loss(self, item: UpstreamItem, where: str, what: str, why: str) -> None:
        path = f"output[{item.hub_index}]" if item.hub_index >= 0 else "output"
        self._losses.add(path + where, what, why)

    def _write(
        self, item: UpstreamItem, part: UpstreamPart, text: str, logprobs: list[ServerLogProb] | None = None
    ) -> None:
        if part.kind == "summary" and item.content_is_summary:
            self._writer.count_bytes(len(text))
            part.pieces.append(text)
            return  # `end_summary` writes it
        key = item.key
        match part.kind:
            case "text":
                part.has_logprobs = part.has_logprobs or bool(logprobs)
                self._writer.add_text(key, text, part_key=part.key, logprobs=logprobs_to_hub(logprobs) or None)
            case "refusal":
                self._writer.add_refusal(key, text, part_key=part.key)
            case "reasoning":
                if self.gives_content_as_summary(item):
                    self._writer.add_summary(key, text, part_key=part.key)
                else:
                    self._writer.add_reasoning(key, text, part_key=part.key)
            case "summary":
                self._writer.add_summary(key, text, part_key=part.key)
            case _ as never:
                assert_never(never)
        part.pieces = self._writer.part_pieces(key, _part_class(item, part), part.key)

    def _end_part(self, item: UpstreamItem, part: UpstreamPart) -> None:
        if part.is_closed:
            return
        part.is_closed = True
        if part.kind != "summary" or not item.content_is_summary:
            self._writer.end_part(item.key, _part_class(item, part), part.key)

    def _complete_part(self, item: UpstreamItem, part: UpstreamPart, server_part: ServerPart) -> None:
        whole = (server_part.refusal if part.kind == "refusal" else server_part.text) or ""
        streamed = part.text
        is_over = part.is_closed or item.has_final_form
        rest = whole[len(streamed) :] if whole.startswith(streamed) else ""
        if whole and whole != streamed and (is_over or not rest):
            self.report_loss(
                item,
                _path_of(part),
                f"a final text of {len(whole)} characters",
                "it differs from the streamed text (STR-6)",
            )
            rest = ""
        if is_over:
            return
        logprobs = server_part.logprobs if not part.has_logprobs else None
        if rest or logprobs or not streamed:
            self._write(item, part, rest, logprobs)
        if part.kind == "text":
            for raw in (server_part.annotations or [])[part.annotation_count :]:
                self._add_annotation(item, part, raw)

    def _add_annotation(self, item: UpstreamItem, part: UpstreamPart, raw: Raw) -> None:
        annotation = annotation_to_hub(raw)
        if annotation is not None:
            part.annotation_count += 1
            self._writer.add_annotation(item.key, annotation, part_key=part.key)

    def _merge_final_parts(
        self, item: UpstreamItem, server_parts: list[ServerPart], text_kinds: dict[str | None, TextKind]
    ) -> None:
        counts: dict[TextKind, int] = {}
        for index, part in enumerate(server_parts):
            text_kind = text_kinds.get(part.type)
            if text_kind is None:
                self.report_loss(
                    item, f".content[{index}]", f"a part of type {part.type!r}", "an item of this type cannot have it"
                )
                continue
            nth = counts.get(text_kind, 0)
            counts[text_kind] = nth + 1
            self._complete_part(item, item.part_for_final_form(text_kind, index, nth), part)

    def seal(self, content: str, id: str | None) -> str:
        """RSN-2: seal the content together with the item id, so that the same server can get both back."""
        return seal_reasoning(self._maker, {"encrypted_content": content} | ({"id": id} if id else {}))


def _has_own_summary(item: UpstreamItem) -> bool:
    """Whether the server sent a part of a summary, alone or in the item that it announced."""
    announced = decode_struct(item.added_raw, ServerItem).summary if item.added_raw is not None else ABSENT_JSON
    return any(part.kind == "summary" for part in item.parts) or bool(decode_parts(announced))


def _part_class(item: UpstreamItem, part: UpstreamPart) -> PartKind:
    """The kind of part that the client gets."""
    return SummaryText if item.content_is_summary else PART_CLASS_OF_TEXT[part.kind]


def _path_of(part: UpstreamPart) -> str:
    return f".{'summary' if part.kind == 'summary' else 'content'}[{part.index}]"


MEMBERS_OF_KIND: Final[dict[ItemKind, frozenset[str]]] = {
    kind: frozenset({"type", *shape.__struct_encode_fields__})
    for kind, shape in cast(
        dict[ItemKind, type[Shape]],
        {"message": Message, "reasoning": Reasoning, "call": FunctionCall, "custom": CustomToolCall},
    ).items()
}
PART_CLASS_OF_TEXT: Final[dict[TextKind, PartKind]] = {
    "text": OutputText,
    "refusal": Refusal,
    "reasoning": ReasoningText,
    "summary": SummaryText,
}
