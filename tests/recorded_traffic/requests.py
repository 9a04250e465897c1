"""Reads what a request asks, in no dialect: texts, calls, results, media, reasoning, tools and settings.

The result is a table from the path of a fact to its values, so that two requests of different dialects can be compared.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from antiphon.dialects.dialect import ServerDialectName

Facts = dict[str, list[Any]]


def read_request(dialect: ServerDialectName, body: dict[str, Any]) -> Facts:
    """The facts of a request: `text.user`, `calls`, `results`, `tools`, `media`, `settings.temperature` and so on."""
    facts: Facts = defaultdict(list)
    READERS[dialect](facts, body)
    return {path: values for path, values in facts.items() if values}


def _setting(facts: Facts, name: str, value: Any) -> None:
    if value is not None:
        facts[f"settings.{name}"].append(value)


def _effort(facts: Facts, effort: Any) -> None:
    _setting(facts, "effort", None if effort == "none" else effort)


def _text(facts: Facts, role: str, text: Any) -> None:
    if isinstance(text, str) and text.strip():
        facts[f"text.{ROLES.get(role, role)}"].append(text)


def _arguments(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value or "{}")
        except ValueError:
            return value
    return value or {}


# Chat Completions


def _read_chat(facts: Facts, body: dict[str, Any]) -> None:
    for message in body.get("messages") or ():
        role = message.get("role", "user")
        content = message.get("content")
        if role in ("tool", "function"):
            facts["results"].append(_joined_text(content))
            continue
        for part in _parts(content):
            if "text" in part:
                _text(facts, role, part["text"])
            else:
                facts["media"].append(part.get("type"))
        _text(facts, "reasoning", message.get("reasoning_content") or message.get("reasoning"))
        for call in message.get("tool_calls") or ():
            function = call.get("function") or call.get("custom") or {}
            arguments = _arguments(function.get("arguments", function.get("input")))
            facts["calls"].append((function.get("name"), arguments))
    for tool in body.get("tools") or ():
        _tool(facts, tool.get("type"), (tool.get("function") or tool.get("custom") or {}).get("name"))
    for function in body.get("functions") or ():
        _tool(facts, "function", function.get("name"))
    _setting(facts, "max_tokens", body.get("max_tokens") or body.get("max_completion_tokens"))
    stop = body.get("stop")
    _setting(facts, "stop", [stop] if isinstance(stop, str) else stop)
    _effort(facts, body.get("reasoning_effort"))
    for name in ("temperature", "top_p", "top_k", "seed", "presence_penalty", "frequency_penalty"):
        _setting(facts, name, body.get(name))
    _setting(facts, "tool_choice", _choice_word(body.get("tool_choice")))
    schema = (body.get("response_format") or {}).get("json_schema") or {}
    _setting(facts, "schema", "schema" if schema.get("schema") else None)


# Responses


def _read_responses(facts: Facts, body: dict[str, Any]) -> None:
    _text(facts, "system", body.get("instructions"))
    items = body.get("input")
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items or ():
        _read_item(facts, item)
    for tool in body.get("tools") or ():
        _tool(facts, tool.get("type"), tool.get("name"))
    _setting(facts, "max_tokens", body.get("max_output_tokens"))
    _effort(facts, (body.get("reasoning") or {}).get("effort"))
    for name in ("temperature", "top_p", "presence_penalty", "frequency_penalty"):
        _setting(facts, name, body.get(name))
    _setting(facts, "tool_choice", _choice_word(body.get("tool_choice")))
    form = (body.get("text") or {}).get("format") or {}
    _setting(facts, "schema", "schema" if form.get("schema") else None)
    _setting(facts, "previous_response_id", body.get("previous_response_id"))


def _read_item(facts: Facts, item: dict[str, Any]) -> None:
    match item.get("type", "message"):
        case "message":
            for part in _parts(item.get("content")):
                text = part.get("text", part.get("refusal"))
                if text is None:
                    facts["media"].append(part.get("type"))
                else:
                    _text(facts, item.get("role", "user"), text)
        case "function_call":
            facts["calls"].append((item.get("name"), _arguments(item.get("arguments"))))
        case "custom_tool_call":
            facts["calls"].append((item.get("name"), item.get("input")))
        case "function_call_output" | "custom_tool_call_output":
            facts["results"].append(_joined_text(item.get("output")))
            facts["media"] += [part.get("type") for part in _parts(item.get("output")) if "text" not in part]
        case "reasoning":
            for part in [*(item.get("summary") or ()), *(item.get("content") or ())]:
                _text(facts, "reasoning", part.get("text"))
            facts["seals"] += [item["encrypted_content"]] if item.get("encrypted_content") else []
        case kind:
            facts["items"].append(kind)


# Messages


def _read_messages(facts: Facts, body: dict[str, Any]) -> None:
    for part in _parts(body.get("system")):
        _text(facts, "system", part.get("text"))
    for message in body.get("messages") or ():
        for block in _parts(message.get("content")):
            _read_block(facts, message.get("role", "user"), block)
    for tool in body.get("tools") or ():
        _tool(facts, "function" if tool.get("type", "custom") == "custom" else tool["type"], tool.get("name"))
    _setting(facts, "max_tokens", body.get("max_tokens"))
    _setting(facts, "stop", body.get("stop_sequences"))
    for name in ("temperature", "top_p", "top_k"):
        _setting(facts, name, body.get(name))
    _setting(facts, "tool_choice", _choice_word(body.get("tool_choice")))
    form = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    _setting(facts, "schema", "schema" if form.get("schema") else None)
    if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        _setting(facts, "effort", "thinking")


def _read_block(facts: Facts, role: str, block: dict[str, Any]) -> None:
    match block.get("type", "text"):
        case "text":
            _text(facts, role, block.get("text"))
        case "thinking":
            _text(facts, "reasoning", block.get("thinking"))
            facts["seals"] += [block["signature"]] if block.get("signature") else []
        case "redacted_thinking":
            facts["seals"].append(block.get("data"))
        case "tool_use":
            facts["calls"].append((block.get("name"), block.get("input") or {}))
        case "tool_result":
            facts["results"].append(_joined_text(block.get("content")))
            facts["media"] += [part.get("type") for part in _parts(block.get("content")) if "text" not in part]
        case "image" | "document":
            facts["media"].append(block["type"])
        case kind:
            facts["items"].append(kind)


# Gemini


def _read_gemini(facts: Facts, body: dict[str, Any]) -> None:
    system = body.get("systemInstruction") or body.get("system_instruction") or {}
    for part in system.get("parts") or ():
        _text(facts, "system", part.get("text"))
    for content in body.get("contents") or ():
        for part in content.get("parts") or ():
            _read_part(facts, content.get("role", "user"), part)
    for tool in body.get("tools") or ():
        for name, value in tool.items():
            if name in ("functionDeclarations", "function_declarations"):
                for declaration in value:
                    _tool(facts, "function", declaration.get("name"))
            else:
                _tool(facts, name, None)
    config = body.get("generationConfig") or {}
    _setting(facts, "max_tokens", config.get("maxOutputTokens"))
    _setting(facts, "stop", config.get("stopSequences"))
    _setting(facts, "temperature", config.get("temperature"))
    _setting(facts, "top_p", config.get("topP"))
    _setting(facts, "top_k", config.get("topK"))
    _setting(facts, "seed", config.get("seed"))
    _setting(facts, "presence_penalty", config.get("presencePenalty"))
    _setting(facts, "frequency_penalty", config.get("frequencyPenalty"))
    _setting(facts, "schema", "schema" if config.get("responseSchema") or config.get("responseJsonSchema") else None)
    thinking = config.get("thinkingConfig") or config.get("thinking_config") or {}
    if any(thinking.get(name) for name in ("thinkingLevel", "thinkingBudget", "thinking_level", "thinking_budget")):
        _setting(facts, "effort", "thinking")
    _setting(facts, "tool_choice", _gemini_choice(body.get("toolConfig") or {}))


def _read_part(facts: Facts, role: str, part: dict[str, Any]) -> None:
    signature = part.get("thoughtSignature") or part.get("thought_signature")
    facts["seals"] += [signature] if signature else []
    match part:
        case {"functionCall": call} | {"function_call": call}:
            facts["calls"].append((call.get("name"), call.get("args") or {}))
        case {"functionResponse": result} | {"function_response": result}:
            facts["results"].append(_result_text(result.get("response")))
        case {"text": text}:
            _text(facts, "reasoning" if part.get("thought") else role, text)
        case {"thought": True}:
            pass  # a signature alone
        case {"inlineData": _} | {"inline_data": _} | {"fileData": _} | {"file_data": _}:
            facts["media"].append("media")
        case _:
            facts["items"] += [name for name in part if name not in ("thoughtSignature", "thought_signature")]


def _result_text(response: Any) -> str:
    """The text of a result, which is an object here. Clients put a text into a member of their choice."""
    if isinstance(response, dict) and len(response) == 1:
        [value] = response.values()
        return _joined_text(value)
    return json.dumps(response, ensure_ascii=False)


def _gemini_choice(config: dict[str, Any]) -> str | None:
    calling = config.get("functionCallingConfig") or {}
    mode = str(calling.get("mode", "")).upper()
    if mode == "ANY" and len(calling.get("allowedFunctionNames") or ()) == 1:
        return "function"
    return CHOICES.get(mode)


# Ollama


def _read_ollama(facts: Facts, body: dict[str, Any]) -> None:
    for message in body.get("messages") or ():
        role = message.get("role", "user")
        if role == "tool":
            facts["results"].append(_joined_text(message.get("content")))
        else:
            _text(facts, role, message.get("content"))
        _text(facts, "reasoning", message.get("thinking"))
        facts["media"] += ["image" for _ in message.get("images") or ()]
        for call in message.get("tool_calls") or ():
            facts["calls"].append((call["function"].get("name"), _arguments(call["function"].get("arguments"))))
    for tool in body.get("tools") or ():
        _tool(facts, tool.get("type", "function"), (tool.get("function") or {}).get("name"))
    options = body.get("options") or {}
    _setting(facts, "max_tokens", options.get("num_predict"))
    for name in ("temperature", "top_p", "top_k", "seed", "stop", "presence_penalty", "frequency_penalty"):
        _setting(facts, name, options.get(name))
    _setting(facts, "schema", "schema" if isinstance(body.get("format"), dict) else None)
    _setting(facts, "effort", body.get("think") or None)


# All


def _parts(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return [{"type": "text", "text": part} if isinstance(part, str) else part for part in content or ()]


def _joined_text(content: Any) -> str:
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in _parts(content))
    return content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)


def _tool(facts: Facts, kind: Any, name: Any) -> None:
    if kind in ("function", "custom"):
        facts["tools"].append(name)
    else:
        facts["hosted_tools"].append(kind)


def _choice_word(choice: Any) -> str | None:
    match choice:
        case str():
            return CHOICES.get(choice, choice)
        case {"type": "function" | "tool" | "custom"}:
            return "function"
        case {"type": str() as kind}:
            return CHOICES.get(kind, kind)
        case _:
            return None


ROLES: Final = {"developer": "system", "model": "assistant"}
#: Words for the choice of a tool; automatic choice is the default, which is the same as its absence.
CHOICES: Final[dict[Any, str | None]] = {
    "auto": None,
    "AUTO": None,
    "none": "none",
    "NONE": "none",
    "required": "required",
    "any": "required",
    "ANY": "required",
}
READERS: Final[dict[ServerDialectName, Callable[[Facts, dict[str, Any]], None]]] = {
    "chat": _read_chat,
    "responses": _read_responses,
    "messages": _read_messages,
    "gemini": _read_gemini,
    "ollama": _read_ollama,
}
