"""Reads what an answer says, in no dialect: text, reasoning, seals, calls, finish and usage.

A stream is folded into the whole answer that it describes, so that each dialect has one reader. The readers accept what
recorded servers send.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import json
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from msgspec import Struct, field

from antiphon import sse
from antiphon.dialects.dialect import ServerDialectName


class Usage(NamedTuple):
    """Token counts: `cached` is part of `input`, `reasoning` is part of `output`."""

    input: int
    cached: int
    output: int
    reasoning: int


class Call(NamedTuple):
    """A call of one of the client's tools. Arguments that are no JSON stay text."""

    id: str
    name: str
    arguments: Any


class Answer(Struct, kw_only=True):
    """The content of one answer."""

    text: str = ""
    refusal: str = ""
    reasoning: str = ""
    seals: list[str] = field(default_factory=list)  # signatures and encrypted reasoning
    calls: list[Call] = field(default_factory=list)
    others: list[str] = field(default_factory=list)  # types of everything else
    finish: str = ""
    usage: Usage | None = None
    error: str = ""


def read_answer(dialect: ServerDialectName, body: bytes) -> Answer:
    """The content of a whole answer or of a stream."""
    return WHOLE_READERS[dialect](whole_answer(dialect, body))


def whole_answer(dialect: ServerDialectName, body: bytes) -> dict[str, Any]:
    """The answer as one JSON object, in the form of its dialect."""
    events = answer_events(body)
    if events is None:
        value = json.loads(body)
        if not isinstance(value, list):
            return dict(value)
        events = value
    return FOLDS[dialect](events)


def answer_events(body: bytes) -> list[dict[str, Any]] | None:
    """The data of all events; None if the body is no stream of events."""
    if body.startswith(b"{") and b"}\n{" in body:
        return [json.loads(line) for line in body.split(b"\n") if line.strip()]
    if not body.lstrip().startswith((b"data:", b"event:", b":", b"id:")):
        return None
    decoder = sse.Decoder()
    frames = [*decoder.feed(body), *decoder.finish()]
    return [json.loads(frame.data) for frame in frames if frame.data.strip() not in (sse.DONE, b"")]


def opened_seals(seals: list[str]) -> set[str]:
    """The seals, and the values inside those that are envelopes of the gateway."""
    values: set[str] = set(seals)
    for seal in seals:
        for text in (seal, _decode_base64(seal)):
            if match := ENVELOPE.fullmatch(text):
                values.update(_strings(json.loads(base64.urlsafe_b64decode(match[1]))))
    return values


def _decode_base64(text: str) -> str:
    try:
        return base64.b64decode(text, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""


def _strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case dict():
            return [text for each in value.values() for text in _strings(each)]
        case list():
            return [text for each in value for text in _strings(each)]
        case _:
            return []


def _arguments(text: Any) -> Any:
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text or "{}")
    except ValueError:
        return text


def _error_text(error: Any) -> str:
    return str(error.get("message", error)) if isinstance(error, dict) else str(error or "")


# Chat Completions


def _fold_chat(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {}
    calls: dict[int, dict[str, Any]] = {}
    finish: Any = None
    for chunk in chunks:
        whole |= {name: value for name, value in chunk.items() if name != "choices" and value is not None}
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue
            finish = choice.get("finish_reason") or finish
            whole["usage"] = choice.get("usage") or whole.get("usage")
            delta = choice.get("delta") or {}
            for number, call in enumerate(delta.pop("tool_calls", None) or ()):
                _add_chat_call(calls, call, number)
            _merge(message, delta)
    if calls:
        message["tool_calls"] = list(calls.values())
    return {**whole, "choices": [{"index": 0, "message": message, "finish_reason": finish}]}


def _add_chat_call(calls: dict[int, dict[str, Any]], piece: dict[str, Any], number: int) -> None:
    index = piece.get("index")
    if index is None:
        index = len(calls) if piece.get("id") else number
    call = calls.setdefault(index, {})
    if piece.get("id") and call.get("id") not in (None, piece["id"]):  # another call with the same index
        call = calls[index + 1000 * len(calls)] = {}
    call.setdefault("id", piece.get("id"))
    for form, text in (("function", "arguments"), ("custom", "input")):
        if piece.get(form):
            inner = call.setdefault(form, {"name": "", text: ""})
            inner["name"] = inner["name"] or piece[form].get("name") or ""
            value = piece[form].get(text)
            inner[text] = inner[text] + value if isinstance(value, str) else value or inner[text]


def _merge(target: dict[str, Any], delta: dict[str, Any]) -> None:
    for name, value in delta.items():
        if isinstance(value, list) or isinstance(target.get(name), list):
            target[name] = [*_as_parts(target.get(name)), *_as_parts(value)]
        elif isinstance(value, str) and name != "role":
            target[name] = (target.get(name) or "") + value
        elif value is not None:
            target[name] = value


def _as_parts(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [{"type": "text", "text": value}] if value else []
    return list(value or ())


def _read_chat(whole: dict[str, Any]) -> Answer:
    answer = Answer(error=_error_text(whole.get("error")))
    choices = whole.get("choices") or [{}]
    message = choices[0].get("message") or {}
    _read_chat_content(answer, message.get("content"))
    answer.refusal = message.get("refusal") or ""
    _read_chat_reasoning(answer, message)
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        arguments = _arguments(function.get("arguments", function.get("input")))
        answer.calls.append(Call(call.get("id") or "", function.get("name") or "", arguments))
    if call := message.get("function_call"):
        answer.calls.append(Call("", call.get("name") or "", _arguments(call.get("arguments"))))
    answer.others += ["citation"] * bool(message.get("annotations"))
    answer.others += [name for name in ("audio", "images") if message.get(name)]
    answer.others += ["choice"] * (len(choices) - 1)
    answer.finish = _finish(FINISH_WORDS.get(choices[0].get("finish_reason"), choices[0].get("finish_reason")), answer)
    if usage := whole.get("usage"):
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
        prompt, completion = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        reasoning = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
        if reasoning and usage.get("total_tokens") == prompt + completion + reasoning:
            completion += reasoning  # some servers count them beside the others
        answer.usage = Usage(
            prompt,
            cached or usage.get("prompt_cache_hit_tokens") or usage.get("cached_tokens") or 0,
            completion,
            reasoning,
        )
    return answer


def _read_chat_content(answer: Answer, content: Any) -> None:
    for part in _as_parts(content):
        match part:
            case {"type": "thinking", "thinking": thinking}:
                answer.reasoning += "".join(each.get("text", "") for each in _as_parts(thinking))
            case {"text": str() as text}:
                answer.text += text
            case _:
                answer.others.append(part.get("type", "part"))


def _read_chat_reasoning(answer: Answer, message: dict[str, Any]) -> None:
    details = message.get("reasoning_details") or ()
    plain = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(plain, str):
        answer.reasoning += plain
    else:
        answer.reasoning += "".join(each.get("text") or each.get("summary") or "" for each in details)
    for detail in details:
        answer.seals += [detail[name] for name in ("signature", "data") if detail.get(name)]


# Responses


def _fold_responses(events: list[dict[str, Any]]) -> dict[str, Any]:
    """The items are those of the events that end them: some servers seal reasoning anew in the last event."""
    whole: dict[str, Any] = {}
    items: dict[int, dict[str, Any]] = {}
    for event in events:
        match event:
            case {"type": "response.output_item.added", "output_index": index, "item": {"type": "message"} as item}:
                items[index] = {**item, "content": [{"type": "output_text", "text": ""}]}
            case {"type": "response.output_text.delta", "output_index": index, "delta": delta} if index in items:
                items[index]["content"][0]["text"] += delta
            case {"type": "response.output_item.done", "item": item}:
                index = event.get("output_index", len(items))
                items[index] = _ended_item(item, items.get(index))
            case {"type": "error"}:
                whole = {**whole, "error": event.get("error") or event}
            case {"response": dict() as response}:
                whole = response
    return {**whole, "output": [items[index] for index in sorted(items)] or whole.get("output")}


def _ended_item(item: dict[str, Any], streamed: dict[str, Any] | None) -> dict[str, Any]:
    """An item at its end. If another text was streamed, the streamed text is what clients have."""
    text = streamed["content"][0]["text"] if streamed else ""
    if "".join(part.get("text", "") for part in item.get("content") or ()).startswith(text):
        return item
    others = [{**part, "text": ""} if part["type"] == "output_text" else part for part in item["content"]]
    return {**item, "content": [{"type": "output_text", "text": text}, *others]}


def _read_responses(whole: dict[str, Any]) -> Answer:
    answer = Answer(error=_error_text(whole.get("error")))
    for item in whole.get("output") or ():
        match item.get("type"):
            case "message":
                _read_output_message(answer, item)
            case "reasoning":
                texts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                answer.reasoning += "".join(part.get("text", "") for part in texts)
                answer.seals += [item["encrypted_content"]] if item.get("encrypted_content") else []
            case "function_call":
                name = f"{item['namespace']}__{item['name']}" if item.get("namespace") else item["name"]
                answer.calls.append(Call(item["call_id"], name, _arguments(item["arguments"])))
            case "custom_tool_call":
                answer.calls.append(Call(item["call_id"], item["name"], item["input"]))
            case kind:
                answer.others.append(str(kind))
    reason = (whole.get("incomplete_details") or {}).get("reason")
    status = whole.get("status")
    answer.finish = _finish(FINISH_WORDS.get(reason, reason) if reason else FINISH_WORDS.get(status, status), answer)
    if usage := whole.get("usage"):
        answer.usage = Usage(
            usage.get("input_tokens") or 0,
            (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0,
            usage.get("output_tokens") or 0,
            (usage.get("output_tokens_details") or {}).get("reasoning_tokens") or 0,
        )
    return answer


def _read_output_message(answer: Answer, item: dict[str, Any]) -> None:
    for part in item.get("content") or ():
        match part.get("type"):
            case "output_text":
                answer.text += part["text"]
                answer.others += ["citation"] * bool(part.get("annotations"))
            case "refusal":
                answer.refusal += part["refusal"]
            case kind:
                answer.others.append(str(kind))


# Messages


def _fold_messages(events: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {"content": []}
    blocks: list[dict[str, Any]] = []
    open_blocks: dict[int, dict[str, Any]] = {}  # some recordings use an index again
    for event in events:
        match event:
            case {"type": "message_start", "message": message}:
                whole = {**message}
            case {"type": "content_block_start", "index": index, "content_block": block}:
                open_blocks[index] = {**block}
                blocks.append(open_blocks[index])
            case {"type": "content_block_delta", "index": index, "delta": delta}:
                _add_block_delta(open_blocks[index], delta)
            case {"type": "message_delta", "delta": delta}:
                whole |= {name: value for name, value in delta.items() if value is not None}
                counts = {name: value for name, value in (event.get("usage") or {}).items() if value is not None}
                whole["usage"] = {**(whole.get("usage") or {}), **counts}
            case {"type": "error"}:
                whole["error"] = event["error"]
    return {**whole, "content": blocks or whole.get("content") or []}


def _add_block_delta(block: dict[str, Any], delta: dict[str, Any]) -> None:
    match delta:
        case {"type": "text_delta", "text": text}:
            block["text"] = block.get("text", "") + text
        case {"type": "thinking_delta", "thinking": text}:
            block["thinking"] = block.get("thinking", "") + text
        case {"type": "signature_delta", "signature": text}:
            block["signature"] = block.get("signature", "") + text
        case {"type": "input_json_delta", "partial_json": text}:
            block["partial_json"] = block.get("partial_json", "") + text
        case {"type": "citations_delta"}:
            block["citations"] = [*(block.get("citations") or ()), delta.get("citation")]


def _read_messages(whole: dict[str, Any]) -> Answer:
    answer = Answer(error=_error_text(whole.get("error")))
    for block in whole.get("content") or ():
        match block:
            case {"type": "text"}:
                answer.text += block["text"]
                answer.others += ["citation"] * bool(block.get("citations"))
            case {"type": "thinking"}:
                answer.reasoning += block["thinking"]
                answer.seals += [block["signature"]] if block.get("signature") else []
            case {"type": "redacted_thinking"}:
                answer.seals.append(block["data"])
            case {"type": "tool_use"}:
                arguments = _arguments(block["partial_json"]) if block.get("partial_json") else block.get("input")
                answer.calls.append(Call(block["id"], block["name"], arguments))
            case _:
                answer.others.append(block["type"])
    answer.refusal = (whole.get("stop_details") or {}).get("explanation") or ""
    reason = whole.get("stop_reason")
    answer.finish = _finish(FINISH_WORDS.get(reason, reason), answer)
    if usage := whole.get("usage"):
        cached = usage.get("cache_read_input_tokens") or 0
        written = usage.get("cache_creation_input_tokens") or 0
        answer.usage = Usage(
            (usage.get("input_tokens") or 0) + cached + written,
            cached,
            usage.get("output_tokens") or 0,
            (usage.get("output_tokens_details") or {}).get("thinking_tokens") or 0,
        )
    return answer


# Gemini


def _fold_gemini(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    candidate: dict[str, Any] = {}
    parts: list[Any] = []
    for chunk in chunks:
        whole |= {name: value for name, value in chunk.items() if name != "candidates"}
        for each in chunk.get("candidates") or ():
            parts += (each.get("content") or {}).get("parts") or ()
            candidate |= {name: value for name, value in each.items() if name != "content"}
    return {**whole, "candidates": [{**candidate, "content": {"role": "model", "parts": parts}}]}


def _read_gemini(whole: dict[str, Any]) -> Answer:
    answer = Answer(error=_error_text(whole.get("error")))
    candidates = whole.get("candidates") or [{}]
    for part in _join_partial_calls((candidates[0].get("content") or {}).get("parts") or []):
        answer.seals += [part["thoughtSignature"]] if part.get("thoughtSignature") else []
        match part:
            case {"functionCall": call}:
                answer.calls.append(Call(call.get("id") or "", call.get("name") or "", call.get("args") or {}))
            case {"thought": True}:
                answer.reasoning += part.get("text") or ""
            case {"text": text}:
                answer.text += text or ""
            case _:
                answer.others += [name for name in part if name != "thoughtSignature"]
    has_chunks = bool((candidates[0].get("groundingMetadata") or {}).get("groundingChunks"))
    has_sources = bool((candidates[0].get("citationMetadata") or {}).get("citationSources"))
    answer.others += ["citation"] * (has_chunks or has_sources)
    blocked = (whole.get("promptFeedback") or {}).get("blockReason")
    reason = candidates[0].get("finishReason") or blocked
    reason = FINISH_NUMBERS.get(reason, reason)
    answer.finish = _finish(FINISH_WORDS.get(reason, reason), answer)
    if usage := whole.get("usageMetadata"):
        thoughts = usage.get("thoughtsTokenCount") or 0
        answer.usage = Usage(
            (usage.get("promptTokenCount") or 0) + (usage.get("toolUsePromptTokenCount") or 0),
            usage.get("cachedContentTokenCount") or 0,
            (usage.get("candidatesTokenCount") or 0) + thoughts,
            thoughts,
        )
    return answer


# Ollama


def _fold_ollama(lines: list[dict[str, Any]]) -> dict[str, Any]:
    whole: dict[str, Any] = {}
    message: dict[str, Any] = {}
    for line in lines:
        whole |= {name: value for name, value in line.items() if name != "message"}
        _merge(message, line.get("message") or {})
    return {**whole, "message": message}


def _read_ollama(whole: dict[str, Any]) -> Answer:
    answer = Answer(error=_error_text(whole.get("error")))
    message = whole.get("message") or {}
    answer.text = message.get("content") or ""
    answer.reasoning = message.get("thinking") or ""
    for call in message.get("tool_calls") or ():
        function = call["function"]
        answer.calls.append(Call(call.get("id") or "", function["name"], _arguments(function.get("arguments"))))
    answer.finish = _finish(FINISH_WORDS.get(whole.get("done_reason"), whole.get("done_reason")), answer)
    if "eval_count" in whole or "prompt_eval_count" in whole:
        answer.usage = Usage(whole.get("prompt_eval_count") or 0, 0, whole.get("eval_count") or 0, 0)
    return answer


def _join_partial_calls(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A call whose arguments are streamed has several parts: the first has the name, the others add arguments."""
    joined: list[dict[str, Any]] = []
    is_open = False
    for part in parts:
        call = part.get("functionCall")
        if call is None or not is_open:
            part = {**part, "functionCall": {**call, "args": {**(call.get("args") or {})}}} if call else part
            joined.append(part)
        if call is not None:
            for piece in call.get("partialArgs") or ():
                _add_partial_argument(joined[-1]["functionCall"]["args"], piece)
            is_open = bool(call.get("willContinue"))
    return joined


def _add_partial_argument(arguments: dict[str, Any], piece: dict[str, Any]) -> None:
    """Sets the value at a path such as `$.items[0].name`; the pieces of a text are joined."""
    keys = [int(key) if key.isdigit() else key for key in re.findall(r"[^.\[\]]+", piece["jsonPath"])[1:]]
    target: Any = arguments
    for key, following in itertools.pairwise(keys):
        empty: Any = [] if isinstance(following, int) else {}
        target = _member(target, key, empty)
    kinds = ("stringValue", "numberValue", "boolValue", "nullValue")
    value = next((piece[kind] for kind in kinds if kind in piece), None)
    if "stringValue" in piece:
        value = _member(target, keys[-1], "") + value
    _member(target, keys[-1], None)
    target[keys[-1]] = value


def _member(target: Any, key: Any, default: Any) -> Any:
    if isinstance(target, dict):
        return target.setdefault(key, default)
    while len(target) <= key:
        target.append(default)
    return target[key]


def _finish(word: Any, answer: Answer) -> str:
    """Dialects differ in whether a normal end has its own word if there are calls."""
    if word in ("end", "calls"):
        return "calls" if answer.calls else "end"
    return str(word)


#: Finish reasons of Gemini servers that send the number of the word.
FINISH_NUMBERS: Final[dict[Any, str]] = {1: "STOP", 2: "MAX_TOKENS", 3: "SAFETY", 4: "RECITATION", 5: "OTHER"}
FINISH_WORDS: Final[dict[Any, str]] = {
    "stop": "end",
    "end_turn": "end",
    "stop_sequence": "end",
    "completed": "end",
    "STOP": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "tool_use": "calls",
    "length": "length",
    "max_output_tokens": "length",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "MAX_TOKENS": "length",
    "content_filter": "filter",
    "refusal": "filter",
    "SAFETY": "filter",
    "PROHIBITED_CONTENT": "filter",
    "RECITATION": "filter",
    "BLOCKLIST": "filter",
    "IMAGE_SAFETY": "filter",
}
FOLDS: Final[dict[ServerDialectName, Callable[[list[dict[str, Any]]], dict[str, Any]]]] = {
    "chat": _fold_chat,
    "responses": _fold_responses,
    "messages": _fold_messages,
    "gemini": _fold_gemini,
    "ollama": _fold_ollama,
}
WHOLE_READERS: Final[dict[ServerDialectName, Callable[[dict[str, Any]], Answer]]] = {
    "chat": _read_chat,
    "responses": _read_responses,
    "messages": _read_messages,
    "gemini": _read_gemini,
    "ollama": _read_ollama,
}
ENVELOPE: Final = re.compile(r"antiphon\.reasoning\.[A-Za-z0-9_-]+\.([A-Za-z0-9_-]*={0,2})")
