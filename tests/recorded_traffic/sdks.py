"""The official SDKs as readers: each accumulates the bytes that a client of its dialect received."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Final

import anthropic
import httpx
import httpx2
import ollama
import openai
from google import genai

from antiphon.dialects.dialect import ServerDialectName


class SdkError(Exception):
    """The SDK could not read an answer."""


def accumulate(dialect: ServerDialectName, body: bytes, content_type: str, *, is_stream: bool) -> dict[str, Any]:
    """The answer as the SDK has it in the end, in the form of the dialect."""
    _SERVER.answer = (body, content_type)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the SDKs warn of values that their types do not have
            return READERS[dialect](is_stream)
    except Exception as error:  # the SDKs raise anything for an answer that they cannot read
        raise SdkError(f"{type(error).__name__}: {error}"[:200]) from error


class _Server:
    """Gives every request the same answer."""

    answer: tuple[bytes, str] = b"", ""

    def respond(self, request: httpx2.Request) -> httpx2.Response:
        del request
        body, content_type = self.answer
        return httpx2.Response(200, headers={"content-type": content_type}, content=body)

    def respond_to_ollama(self, request: httpx.Request) -> httpx.Response:
        """The same for the SDK of Ollama, which uses another HTTP library than the others."""
        del request
        body, content_type = self.answer
        return httpx.Response(200, headers={"content-type": content_type}, content=body)


def _read_chat(is_stream: bool) -> dict[str, Any]:
    messages: Any = [{"role": "user", "content": "Hi"}]
    if not is_stream:
        return _dump(_OPENAI.chat.completions.create(model="m", messages=messages))
    try:
        with _OPENAI.chat.completions.stream(model="m", messages=messages) as stream:
            for _ in stream:
                pass
            return _dump(stream.get_final_completion())
    except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as end:
        return _dump(end.completion)  # the SDK raises at such an end


def _read_responses(is_stream: bool) -> dict[str, Any]:
    if not is_stream:
        return _dump(_OPENAI.responses.create(model="m", input="Hi"))
    last: Any = None
    with _OPENAI.responses.stream(model="m", input="Hi") as stream:
        for event in stream:
            if event.type in ("response.completed", "response.failed", "response.incomplete"):
                last = event.response
    return _dump(last) if last is not None else {}


def _read_messages(is_stream: bool) -> dict[str, Any]:
    request: Any = {"model": "m", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]}
    if not is_stream:
        return _dump(_ANTHROPIC.messages.create(**request))
    with _ANTHROPIC.messages.stream(**request) as stream:
        return _dump(stream.get_final_message())


def _read_gemini(is_stream: bool) -> dict[str, Any]:
    if not is_stream:
        return _dump_gemini(_GOOGLE.models.generate_content(model="m", contents="Hi"))
    chunks = [_dump_gemini(chunk) for chunk in _GOOGLE.models.generate_content_stream(model="m", contents="Hi")]
    return {"chunks": chunks}


def _read_ollama(is_stream: bool) -> dict[str, Any]:
    if not is_stream:
        return _dump(_OLLAMA.chat("m", stream=False))
    return {"chunks": [_dump(line) for line in _OLLAMA.chat("m", stream=True)]}


def _dump(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", exclude_unset=True, warnings=False)
    for choice in dumped.get("choices") or ():
        choice["message"].pop("parsed", None)
        for call in choice["message"].get("tool_calls") or ():
            (call.get("function") or {}).pop("parsed_arguments", None)
    for item in dumped.get("output") or ():
        item.pop("parsed_arguments", None)
        for part in item.get("content") or ():
            part.pop("parsed", None)
    return dumped


def _dump_gemini(model: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True, warnings=False)
    dumped.pop("sdkHttpResponse", None)
    return dumped


_SERVER: Final = _Server()
_HTTP: Final = httpx2.Client(transport=httpx2.MockTransport(_SERVER.respond))
_OPENAI: Final = openai.OpenAI(base_url="http://gateway/v1", api_key="any", max_retries=0, http_client=_HTTP)
_ANTHROPIC: Final = anthropic.Anthropic(base_url="http://gateway", api_key="any", max_retries=0, http_client=_HTTP)
_GOOGLE_OPTIONS: Any = {"base_url": "http://gateway", "httpx_client": _HTTP}
_GOOGLE: Final = genai.Client(api_key="any", http_options=_GOOGLE_OPTIONS)
_OLLAMA: Final = ollama.Client(host="http://gateway", transport=httpx.MockTransport(_SERVER.respond_to_ollama))
READERS: Final[dict[ServerDialectName, Callable[[bool], dict[str, Any]]]] = {
    "chat": _read_chat,
    "responses": _read_responses,
    "messages": _read_messages,
    "gemini": _read_gemini,
    "ollama": _read_ollama,
}
