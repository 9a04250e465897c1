"""Cache marks: each names the end of a prompt prefix that the server should cache (E-4).

In the hub a mark is the field `prompt_cache_breakpoint` in the `extra` of a content part, an item or a tool: a field
that the Responses API has on parts. The Messages API and some chat servers have `cache_control` instead. The hub's mark
then has it as a member. The writer of a request translates a mark of the other form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.protocol.base import Shape
from antiphon.protocol.content import InputText
from antiphon.protocol.items import (
    CustomToolCallOutputParam,
    FunctionCallOutputParam,
    ItemParam,
    MessageParam,
)
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import PromptCacheOptions, Request, input_items

T = TypeVar("T")
OutputT = TypeVar("OutputT", bound=FunctionCallOutputParam | CustomToolCallOutputParam)

CACHE_MARK: Final = "prompt_cache_breakpoint"
CACHE_CONTROL: Final = "cache_control"
NO_CACHE_MARKS: Final = "the server manages its cache itself"


def mark_from_cache_control(cache_control: dict[str, Any]) -> Raw:
    """The hub's mark for a `cache_control`."""
    return Raw(msgspec.json.encode({"mode": "explicit", CACHE_CONTROL: cache_control}))


def options_from_cache_control(cache_control: dict[str, Any]) -> PromptCacheOptions:
    """The hub's options for a `cache_control` of a whole request: the server chooses the position of the mark."""
    return PromptCacheOptions(mode="implicit", extra={CACHE_CONTROL: Raw(msgspec.json.encode(cache_control))})


def mark_of(shape: Shape) -> dict[str, Any] | None:
    """The mark of a part, an item or a tool; None without a valid one."""
    raw = (shape.extra or {}).get(CACHE_MARK)
    mark = msgspec.json.decode(raw) if raw is not None else None
    return mark if isinstance(mark, dict) else None


def take_mark(shape: Any) -> tuple[Any, dict[str, Any] | None]:
    """The shape without its mark, and the mark. Without a valid one, the shape stays unchanged."""
    mark = mark_of(shape)
    return (shape, None) if mark is None else (_without_field(shape, CACHE_MARK), mark)


def without_mark(shape: T, path: str, losses: Losses) -> T:
    """The shape without its mark, for a place that cannot have one. The mark is a loss."""
    if CACHE_MARK not in (getattr(shape, "extra", None) or ()):
        return shape
    losses.add(f"{path}.{CACHE_MARK}", "a cache mark", NO_CACHE_MARKS)
    unmarked: T = _without_field(shape, CACHE_MARK)
    return unmarked


def take_any_mark(shape: Any) -> tuple[Any, Raw | None]:
    """Like `take_mark`, for clients that send either form. The mark is the hub's."""
    shape, mark = take_mark(shape)
    if mark is not None:
        return shape, Raw(msgspec.json.encode(mark))
    raw = (shape.extra or {}).get(CACHE_CONTROL)
    cache_control = msgspec.json.decode(raw) if raw is not None else None
    if not isinstance(cache_control, dict):
        return shape, None
    return _without_field(shape, CACHE_CONTROL), mark_from_cache_control(cache_control)


def with_mark(shape: Any, mark: Raw | None) -> Any:
    """The shape with a mark, or the same shape if there is none."""
    return shape if mark is None else replace(shape, extra={**(shape.extra or {}), CACHE_MARK: mark})


def has_cache_marks(items: Iterable[ItemParam], name: str = CACHE_MARK) -> bool:
    """Whether an item or a part of it has a mark; with `CACHE_CONTROL`, one that was a `cache_control`.

    A server that takes marks only on parts gets every text of such a request as a part. A message then has the same
    form in the next turn, in which the client marks another one, and the cached prefix still matches.
    """
    return any(name.encode() in bytes(mark) or name == CACHE_MARK for item in items for mark in _marks_of(item))


def requested_lifetimes(request: Request) -> Iterator[str]:
    """The lifetimes that a client gives its cache marks, and the one of the whole request."""
    options = request.prompt_cache_options
    if options:
        yield from _lifetimes_of({"ttl": options.ttl, **(options.extra or {})})
    for mark in (mark for item in input_items(request) for mark in _marks_of(item)):
        yield from _lifetimes_of(msgspec.json.decode(mark))
    for tool in request.tools or ():
        yield from _lifetimes_of(mark_of(tool) if isinstance(tool, Shape) else None)


def _lifetimes_of(mark: Any) -> Iterator[str]:
    if isinstance(mark, dict):
        cache_control = mark.get(CACHE_CONTROL)
        if isinstance(cache_control, Raw):
            cache_control = msgspec.json.decode(cache_control)
        for holder in (mark, cache_control):
            lifetime = holder.get("ttl") if isinstance(holder, dict) else None
            if isinstance(lifetime, str):
                yield lifetime


def _marks_of(item: ItemParam) -> Iterator[Raw]:
    """The marks of an item and of its parts."""
    content: Any = ()
    if isinstance(item, MessageParam):
        content = item.content
    elif isinstance(item, FunctionCallOutputParam | CustomToolCallOutputParam):
        content = item.output
    for shape in (item, *(content if isinstance(content, list) else ())):
        extra = getattr(shape, "extra", None)
        if extra and CACHE_MARK in extra:
            yield extra[CACHE_MARK]


def output_as_parts(output: OutputT) -> OutputT:
    """The tool output as parts; the last part has the mark of the item. An empty output stays unchanged."""
    if not output.output:
        return output
    parts = [InputText(text=output.output)] if isinstance(output.output, str) else [*output.output]
    if mark_of(output) is not None and isinstance(parts[-1], Shape):
        parts[-1] = with_mark(parts[-1], (output.extra or {})[CACHE_MARK])
        output, _ = take_mark(output)
    return replace(output, output=parts)


def cache_control_from_mark(
    mark: dict[str, Any], path: str, losses: Losses, default_ttl: str | None | UnsetType = UNSET
) -> dict[str, Any]:
    """The `cache_control` for a mark. A breakpoint without a lifetime has that of the whole request (`default_ttl`)."""
    if not is_breakpoint(mark):
        cache_control: dict[str, Any] = mark[CACHE_CONTROL]
        return cache_control
    for name in mark.keys() - BREAKPOINT_MEMBERS:
        losses.add(f"{path}.{CACHE_MARK}.{name}", f"the field {name!r} of a cache mark", NO_EQUIVALENT)
    ttl = mark.get("ttl") or default_ttl
    if ttl == LONGEST_BREAKPOINT_LIFETIME:
        losses.add(f"{path}.{CACHE_MARK}.ttl", f"the lifetime {ttl!r} of a cache mark", "an hour is the longest one")
    ttl = LIFETIMES_IN_CACHE_CONTROL.get(ttl) if isinstance(ttl, str) else None
    return {"type": "ephemeral", "ttl": ttl} if ttl else {"type": "ephemeral"}


def is_breakpoint(mark: dict[str, Any]) -> bool:
    """Whether the mark was a breakpoint, not a `cache_control`."""
    return not isinstance(mark.get(CACHE_CONTROL), dict)


def cache_control_from_options(options: PromptCacheOptions, losses: Losses) -> dict[str, Any] | UnsetType:
    """The `cache_control` for a whole request. It is absent if the client allows only its own marks."""
    if options.mode == "explicit":
        return UNSET
    mark = {name: msgspec.json.decode(raw) for name, raw in (options.extra or {}).items()}
    return cache_control_from_mark({**mark, "ttl": options.ttl}, "prompt_cache_options", losses)


def breakpoint_from_mark(mark: dict[str, Any], path: str, losses: Losses) -> Raw:
    """The `prompt_cache_breakpoint` for a mark."""
    if is_breakpoint(mark):
        return Raw(msgspec.json.encode(mark))
    return Raw(msgspec.json.encode({"mode": "explicit", **_lifetime(mark[CACHE_CONTROL], path, losses)}))


def breakpoint_options(options: PromptCacheOptions, losses: Losses) -> dict[str, Any]:
    """The `prompt_cache_options` for the hub's options."""
    members: dict[str, Any] = {name: getattr(options, name) for name in ("mode", "ttl") if getattr(options, name)}
    members |= {name: msgspec.json.decode(raw) for name, raw in (options.extra or {}).items()}
    cache_control = members.pop(CACHE_CONTROL, None)
    if isinstance(cache_control, dict):
        members |= _lifetime(cache_control, "prompt_cache_options", losses)
    return members


def _without_field(shape: Any, name: str) -> Any:
    return replace(shape, extra={other: raw for other, raw in shape.extra.items() if other != name} or UNSET)


def _lifetime(cache_control: dict[str, Any], path: str, losses: Losses) -> dict[str, str]:
    """The lifetime of a breakpoint that is not shorter; absent for the default, which is longer than five minutes."""
    for name in cache_control.keys() - {"type", "ttl"}:
        losses.add(f"{path}.{CACHE_CONTROL}.{name}", f"the field {name!r} of a cache mark", NO_EQUIVALENT)
    return {"ttl": LONGEST_BREAKPOINT_LIFETIME} if cache_control.get("ttl") == LONGEST_CACHE_CONTROL_LIFETIME else {}


NO_EQUIVALENT: Final = "the API has no equivalent"
BREAKPOINT_MEMBERS: Final = frozenset({"mode", "ttl"})
LONGEST_BREAKPOINT_LIFETIME: Final = "12h"
LONGEST_CACHE_CONTROL_LIFETIME: Final = "1h"
#: The lifetimes of breakpoints, which are minimums, with the nearest lifetime of `cache_control`.
LIFETIMES_IN_CACHE_CONTROL: Final = {
    "30m": LONGEST_CACHE_CONTROL_LIFETIME,
    LONGEST_BREAKPOINT_LIFETIME: LONGEST_CACHE_CONTROL_LIFETIME,
}
