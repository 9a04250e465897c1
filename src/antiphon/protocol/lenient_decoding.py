"""Decodes values that the typed decoder refused, level by level, and keeps what can be kept.

Unknown fields and objects of unknown type are kept as raw bytes (ITEM-5, REQ-7); an item without `type` that has a role
is a message (ITEM-8). An invalid value raises an error with its path, the received value and the expected type (ERR-3).
Each `LenientDecoder` tries one typed decode first, so that only the refused branch is decoded member by member.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache, cached_property
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Raw, Struct, UnsetType
from msgspec import inspect as shapes

from antiphon.errors import ClientFault, InvalidValue, MissingField
from antiphon.protocol.base import Shape, Unknown
from antiphon.protocol.content import UnknownContent
from antiphon.protocol.error_messages import (
    describe_choices,
    describe_examples,
    describe_type,
    excerpt,
    json_kind,
    member_path,
    type_mismatch_error,
)
from antiphon.protocol.tools import FunctionToolParam, SpecificFunction


def lenient_decoder(hint: Any) -> LenientDecoder:
    """The decoder for a type, given as an annotation."""
    options = tuple(option for option in _union_options(hint) if option is not UnsetType)
    if len(options) > 1:
        return UnionDecoder(hint, options)
    (single_option,) = options
    bare_type = get_args(single_option)[0] if get_origin(single_option) is Annotated else single_option
    if get_origin(bare_type) is list:
        return ListDecoder(single_option, *get_args(bare_type))
    if get_origin(bare_type) is dict:
        return DictDecoder(single_option, *get_args(bare_type))
    if isinstance(bare_type, type) and issubclass(bare_type, Struct):
        return _struct_decoder(bare_type)
    return LenientDecoder(single_option)


class LenientDecoder:
    """Decodes the values of one type. This base class serves plain values: an invalid one raises an error."""

    def __init__(self, hint: Any) -> None:
        self._hint = hint
        self._decode = msgspec.json.Decoder(hint).decode

    @cached_property
    def info(self) -> shapes.Type:
        """The type as msgspec describes it. Cached: computing it takes a thousand times as long as decoding a value."""
        return shapes.type_info(self._hint)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The JSON kinds that this decoder accepts."""
        return JSON_KINDS_OF_TYPE.get(type(self.info), ())

    def decode(self, raw: Raw, path: str) -> Any:
        """Decodes `raw` in one typed pass if possible, else leniently."""
        try:
            return self._decode(raw)
        except msgspec.ValidationError:
            pass
        return self.decode_leniently(raw, path)

    def decode_leniently(self, raw: Raw, path: str) -> Any:
        raise self.make_error(raw, path)

    def make_error(self, raw: Raw, path: str) -> ClientFault:
        """The error for a value that this decoder does not accept."""
        msgspec.json.decode(raw)  # raises for invalid JSON such as 1e400 in user JSON; `codec` reports its path
        return type_mismatch_error(raw, self.info, path)


class ListDecoder(LenientDecoder):
    def __init__(self, hint: Any, item: Any) -> None:
        super().__init__(hint)
        self._item_hint = item

    @cached_property
    def _item_decoder(self) -> LenientDecoder:
        return lenient_decoder(self._item_hint)

    def decode_leniently(self, raw: Raw, path: str) -> list[Any]:
        if json_kind(raw) != "array":
            raise self.make_error(raw, path)
        members = _decode_raw_list(raw)
        if not _has_allowed_length(self.info, len(members)):
            raise InvalidValue(
                f"{path}: expected {describe_type(self.info)}, got {len(members)} entries", param=path or None
            )
        # In a long list most members are valid. The only member of a list is the refused one, so the typed pass is
        # skipped.
        decode_member = self._item_decoder.decode if len(members) > 1 else self._item_decoder.decode_leniently
        return [decode_member(member, f"{path}[{index}]") for index, member in enumerate(members)]


class DictDecoder(LenientDecoder):
    def __init__(self, hint: Any, key: Any, value: Any) -> None:
        super().__init__(hint)
        self._key_info = shapes.type_info(key)
        self._decode_key = msgspec.json.Decoder(key).decode
        self._value_decoder = lenient_decoder(value)

    def decode_leniently(self, raw: Raw, path: str) -> dict[str, Any]:
        if json_kind(raw) != "object":
            raise self.make_error(raw, path)
        members = _decode_raw_dict(raw)
        if not _has_allowed_length(self.info, len(members)):
            raise InvalidValue(
                f"{path}: expected {describe_type(self.info)}, got {len(members)} entries", param=path or None
            )
        for key in members:
            self._check_key(key, path)
        return {key: self._value_decoder.decode(member, member_path(path, key)) for key, member in members.items()}

    def _check_key(self, key: str, path: str) -> None:
        encoded = msgspec.json.encode(key)
        try:
            self._decode_key(encoded)
        except msgspec.ValidationError:
            raise InvalidValue(
                f"{path}: expected {describe_type(self._key_info)} as a key, got {excerpt(encoded)}", param=path
            ) from None


class _Field(NamedTuple):
    name: str
    decoder: LenientDecoder
    decode: Callable[[Raw, str], Any]


class StructDecoder(LenientDecoder):
    def __init__(self, cls: type[Struct]) -> None:
        super().__init__(cls)
        self._cls = cls
        config = cls.__struct_config__
        self.tag, self._tag_field = config.tag, config.tag_field
        self.keeps_unknown = issubclass(cls, Unknown)
        self._keeps_extra = issubclass(cls, Shape)

    @cached_property
    def _fields(self) -> dict[str, _Field]:
        """The fields by their names on the wire, without the fields that are never on the wire."""
        hints = get_type_hints(self._cls, include_extras=True)
        internal_names = ("kind", "raw") if self.keeps_unknown else ("extra",) if self._keeps_extra else ()
        names = zip(self._cls.__struct_fields__, self._cls.__struct_encode_fields__, strict=True)
        decoders = {
            wire_name: (name, lenient_decoder(hints[name])) for name, wire_name in names if name not in internal_names
        }
        return {wire_name: _Field(name, decoder, decoder.decode) for wire_name, (name, decoder) in decoders.items()}

    @cached_property
    def _required_names(self) -> list[str]:
        return [
            field.encode_name
            for field in msgspec.structs.fields(self._cls)
            if field.required and field.encode_name in self._fields
        ]

    def decode_leniently(self, raw: Raw, path: str) -> Any:
        if json_kind(raw) != "object":
            raise self.make_error(raw, path)
        members = _decode_raw_dict(raw)
        if self._tag_field:
            tag = msgspec.json.decode(members.get(self._tag_field, b"null"))
            if tag not in (None, self.tag):
                tag_path = member_path(path, self._tag_field)
                raise InvalidValue(
                    f"{tag_path}: expected {describe_choices([str(self.tag)])}, "
                    f"got {excerpt(members[self._tag_field])}",
                    param=tag_path,
                )
        return self.build_struct(members, path)

    def build_struct(self, members: dict[str, Raw], path: str) -> Any:
        """Builds the struct from these members. The tag was checked before."""
        return self._cls(**self._decode_members(members, path))

    def build_unknown(self, kind: str, raw: Raw, members: dict[str, Raw], path: str) -> Any:
        """Builds an object of unknown type (ITEM-5). An unknown event has a sequence number too."""
        return self._cls(kind=kind, raw=_canonical_bytes(raw), **self._decode_members(members, path))

    def _decode_members(self, members: dict[str, Raw], path: str) -> dict[str, Any]:
        fields, prefix = self._fields, f"{path}." if path else ""
        values: dict[str, Any] = {}
        extra: dict[str, Raw] = {}
        for wire_name, raw in members.items():
            field = fields.get(wire_name)
            if field is not None:
                values[field.name] = field.decode(raw, prefix + wire_name)
            elif self._keeps_extra and wire_name != self._tag_field:
                extra[wire_name] = _canonical_bytes(raw)
        for wire_name in self._required_names:
            if wire_name not in members:
                raise self._missing_field_error(path, wire_name, members)
        if extra:
            values["extra"] = extra
        return values

    def _missing_field_error(self, path: str, wire_name: str, members: dict[str, Raw]) -> ClientFault:
        field_path = member_path(path, wire_name)
        hint = HINT_OF_TYPE[self._cls](members) if self._cls in HINT_OF_TYPE else None
        problem = hint or "expected " + describe_type(self._fields[wire_name].decoder.info)
        return MissingField(f"{field_path} is missing: {problem}", param=field_path)


@cache
def _struct_decoder(cls: type[Struct]) -> StructDecoder:
    return StructDecoder(cls)


class UnionDecoder(LenientDecoder):
    """Chooses an option by the tag of an object, or by the JSON kind of any other value."""

    def __init__(self, hint: Any, options: tuple[Any, ...]) -> None:
        super().__init__(hint)
        self._option_hints = options

    @cached_property
    def _option_decoders(self) -> list[LenientDecoder]:
        return [lenient_decoder(hint) for hint in self._option_hints]

    @cached_property
    def _decoder_by_kind(self) -> dict[str, LenientDecoder]:
        return {kind: decoder for decoder in reversed(self._option_decoders) for kind in decoder.kinds}

    @cached_property
    def _decoder_by_tag(self) -> dict[str, StructDecoder]:
        tagged_decoders = [
            decoder for decoder in self._option_decoders if isinstance(decoder, StructDecoder) and decoder.tag
        ]
        return {str(decoder.tag): decoder for decoder in tagged_decoders if decoder is not self._unknown_decoder}

    @cached_property
    def _unknown_decoder(self) -> StructDecoder | None:
        return next(
            (
                decoder
                for decoder in self._option_decoders
                if isinstance(decoder, StructDecoder) and decoder.keeps_unknown
            ),
            None,
        )

    @cached_property
    def _holds_content(self) -> bool:
        """Whether the options are content parts. Their type may be unknown, but not empty: no server knows such a
        part."""
        return UnknownContent in self._option_hints

    def decode_leniently(self, raw: Raw, path: str) -> Any:
        kind = json_kind(raw)
        if kind == "object" and self._decoder_by_tag:
            return self._decode_tagged(raw, path)
        option = self._decoder_by_kind.get(kind)
        if option is None:
            raise self.make_error(raw, path)
        return option.decode_leniently(raw, path)

    def _decode_tagged(self, raw: Raw, path: str) -> Any:
        members = _decode_raw_dict(raw)
        tag = self._find_tag(raw, members, path)
        decoder = self._decoder_by_tag.get(tag)
        if decoder is not None:
            return decoder.build_struct(members, path)
        if self._unknown_decoder is not None:
            return self._unknown_decoder.build_unknown(tag, raw, members, path)
        tag_path = member_path(path, TAG_FIELD)
        expected = describe_choices(list(self._decoder_by_tag))
        raise InvalidValue(f"{tag_path}: expected {expected}, got {excerpt(members[TAG_FIELD])}", param=tag_path)

    def _find_tag(self, raw: Raw, members: dict[str, Raw], path: str) -> str:
        tag = msgspec.json.decode(members.get(TAG_FIELD, b"null"))
        if tag is None and (implied_tag := _implied_tag(members)) in self._decoder_by_tag:
            return implied_tag
        if isinstance(tag, str) and (tag or not self._holds_content):
            return tag
        tag_path = member_path(path, TAG_FIELD)
        describe_tags = describe_examples if self._unknown_decoder else describe_choices
        expected = describe_tags(list(self._decoder_by_tag))
        if TAG_FIELD in members:
            raise InvalidValue(f"{tag_path}: expected {expected}, got {excerpt(members[TAG_FIELD])}", param=tag_path)
        raise MissingField(f"{tag_path} is missing: expected {expected}, got {excerpt(raw)}", param=tag_path)


def _union_options(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _implied_tag(members: dict[str, Raw]) -> str:
    """The type of an object without `type`: a message (ITEM-8), a format or reference that the specification allows
    without type, or a function nested as in Chat Completions, which some clients send without type."""
    if "role" in members:
        return "message"
    if "function" in members:
        return "function"
    if "name" in members or "schema" in members:
        return "json_schema"
    return "item_reference" if members.keys() - {TAG_FIELD} == {"id"} else ""


def _has_allowed_length(info: Any, count: int) -> bool:
    """Whether an array or a map may have `count` entries."""
    return (info.min_length or 0) <= count and (info.max_length is None or count <= info.max_length)


def _canonical_bytes(raw: Raw) -> Raw:
    """Raw bytes to carry unchanged. Bytes with a duplicate key are re-encoded, so that all readers see the same
    value."""
    value = msgspec.json.decode(raw)
    if not isinstance(value, dict | list):
        return raw
    reencoded = msgspec.json.encode(value)
    return raw if reencoded == bytes(raw) or not _has_duplicate_key(raw) else Raw(reencoded)


def _has_duplicate_key(raw: Raw) -> bool:
    has_duplicate = False

    def check_pairs(pairs: list[tuple[str, Any]]) -> None:
        nonlocal has_duplicate
        has_duplicate = has_duplicate or len(dict(pairs)) < len(pairs)

    json.loads(bytes(raw), object_pairs_hook=check_pairs)
    return has_duplicate


def _nested_tool_hint(members: dict[str, Raw]) -> str | None:
    """TOOL-1, C-3: a hint for a tool in Chat Completions form."""
    name = _nested_name(members)
    return name and (
        "this tool is nested as in Chat Completions, expected the flat form: "
        f'{{"type":"function","name":{name},"description":…,"parameters":…,"strict":…}}'
    )


def _nested_choice_hint(members: dict[str, Raw]) -> str | None:
    """TOOL-2: a hint for a tool choice in Chat Completions form."""
    name = _nested_name(members)
    return (
        name
        and f'this choice is nested as in Chat Completions, expected the flat form: {{"type":"function","name":{name}}}'
    )


def _nested_name(members: dict[str, Raw]) -> str | None:
    """The name in a nested `function`, as JSON; None if there is no nested function."""
    if "function" not in members:
        return None
    function = msgspec.json.decode(members["function"])
    name = function.get("name") if isinstance(function, dict) else None
    return excerpt(msgspec.json.encode(name)) if isinstance(name, str) else "…"


TAG_FIELD: Final = "type"
HINT_OF_TYPE: Final[dict[type, Callable[[dict[str, Raw]], str | None]]] = {
    FunctionToolParam: _nested_tool_hint,
    SpecificFunction: _nested_choice_hint,
}
JSON_KINDS_OF_TYPE: Final[dict[type, tuple[str, ...]]] = {
    shapes.StrType: ("string",),
    shapes.LiteralType: ("string",),
    shapes.EnumType: ("string",),
    shapes.IntType: ("integer",),
    shapes.FloatType: ("integer", "number"),
    shapes.BoolType: ("boolean",),
    shapes.NoneType: ("null",),
    shapes.ListType: ("array",),
    shapes.DictType: ("object",),
    shapes.StructType: ("object",),
}
_decode_raw_dict: Final = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_raw_list: Final = msgspec.json.Decoder(list[Raw]).decode
