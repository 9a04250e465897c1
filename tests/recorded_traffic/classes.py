"""The closed table of known differences. Every difference belongs to the first class that matches it.

A class matches the check, the dialects, the path and the change of a difference, and nothing else. A class is either
accepted, with its row in `docs/dialects.md`, or a defect, which is removed from the table when it is repaired. Text,
calls, finish and seals are never accepted to differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Final

from msgspec import Struct
from tests.recorded_traffic.difference import Check, Difference

SAME: Final[tuple[Check, ...]] = ("answer", "events", "accumulated")
#: Checks of content, in which no difference may be accepted.
CONTENT: Final[frozenset[Check]] = frozenset({"text", "reasoning", "seals", "calls", "finish", "cut"})


class DifferenceClass(Struct, frozen=True, kw_only=True):
    """Patterns may contain `*`. `row` is the title of a row in `docs/dialects.md`; a defect has none."""

    name: str
    reason: str
    checks: tuple[Check, ...]
    client: str = "*"
    server: str = "*"
    paths: tuple[str, ...] = ("*",)
    changes: tuple[str, ...] = ("*",)
    row: str = ""

    @property
    def is_defect(self) -> bool:
        return not self.row

    def matches(self, difference: Difference) -> bool:
        return (
            difference.check in self.checks
            and _matches(self.client, difference.client)
            and _matches(self.server, difference.server)
            and any(_matches(pattern, difference.path) for pattern in self.paths)
            and any(_matches(pattern, difference.change) for pattern in self.changes)
        )


def classify(difference: Difference, classes: Iterable[DifferenceClass]) -> DifferenceClass | None:
    """The class of a difference; None if there is none."""
    return next((each for each in classes if each.matches(difference)), None)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _matches(pattern: str, text: str) -> bool:
    return pattern == "*" or _compile(pattern).fullmatch(text) is not None


ACCEPTED: Final = [
    DifferenceClass(
        name="credentials",
        reason="The upstream refused the gateway's own key. The client did not send that key.",
        checks=("error",),
        paths=("credentials",),
        row="key of the gateway that the server refuses",
    ),
    DifferenceClass(
        name="required max_tokens",
        reason="Messages requires a limit of output tokens. A client of another dialect need not send one.",
        checks=("asked",),
        server="messages",
        paths=("settings.max_tokens",),
        changes=("added",),
        row="maximum of output tokens",
    ),
    DifferenceClass(
        name="required usage",
        reason="An answer of Messages always has token counts. They are 0 if the server sent none.",
        checks=("usage",),
        client="messages",
        server="chat",
        paths=("usage",),
        changes=("added",),
        row="input and output tokens",
    ),
    DifferenceClass(
        name="no count of cached tokens",
        reason="Ollama has no count of cached tokens.",
        checks=("usage",),
        client="ollama",
        paths=("cached",),
        changes=("changed",),
        row="cached tokens (Messages counts them separately)",
    ),
    DifferenceClass(
        name="no count of reasoning tokens",
        reason="Ollama has no count of reasoning tokens.",
        checks=("usage",),
        client="ollama",
        paths=("reasoning",),
        changes=("changed",),
        row="reasoning tokens (Gemini counts them separately)",
    ),
    DifferenceClass(
        name="tools that must not be called",
        reason="Ollama has no choice of tools. Tools that must not be called are not offered.",
        checks=("asked",),
        server="ollama",
        paths=("tools", "settings.tool_choice"),
        changes=("missing",),
        row="`tool_choice`: none",
    ),
    DifferenceClass(
        name="broken stream",
        reason="The server closed the stream before the answer was complete. The client gets an error event.",
        checks=("events", "sdk"),
        client="chat",
        server="chat",
        paths=("error", "choices", "created", "id", "model", "object", "APIError"),
        changes=("added", "missing", "error"),
        row="error in the middle of a stream",
    ),
    DifferenceClass(
        name="stored by another server",
        reason="The request continues a response that this gateway did not store.",
        checks=("refused",),
        client="responses",
        paths=("400 previous_response_not_found",),
        row="`previous_response_id` of a response that the gateway did not store",
    ),
    DifferenceClass(
        name="inner addresses",
        reason="Addresses are removed from the error messages of servers.",
        checks=("error",),
        paths=("body.error.message",),
        changes=("changed",),
        row="addresses in error messages",
    ),
    DifferenceClass(
        name="responses: id of the response",
        reason="The gateway stores responses and continues them, so a response has an id of the gateway.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=("id",),
        changes=("changed",),
        row="`id` of a response",
    ),
    DifferenceClass(
        name="responses: state of the gateway",
        reason="The gateway stores responses itself, and sends the whole conversation to the server.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=("store", "background", "previous_response_id", "conversation"),
        row="`store`, `background`, `previous_response_id` and `conversation` in a response",
    ),
    DifferenceClass(
        name="responses: required members",
        reason="The specification requires members that the server left out. Strict clients need them.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=(
            "completed_at",
            "error",
            "frequency_penalty",
            "incomplete_details",
            "instructions",
            "max_output_tokens",
            "max_tool_calls",
            "metadata",
            "parallel_tool_calls",
            "presence_penalty",
            "prompt_cache_key",
            "reasoning",
            "safety_identifier",
            "service_tier",
            "temperature",
            "text",
            "text.format.*",
            "tool_choice",
            "tools",
            "top_logprobs",
            "top_p",
            "truncation",
            "usage",
            "usage.*",
            "output[].id",
            "output[].status",
            "response.*[].sequence_number",
        ),
        changes=("added", "added null", "added empty"),
        row="members that the specification requires, and the server left out",
    ),
    DifferenceClass(
        name="responses: ids of items",
        reason="The server gives one id to two items, or another id to an item in each event.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=("output[].id", "response.*[].item_id"),
        changes=("changed",),
        row="ids of items that the server uses twice or changes",
    ),
    DifferenceClass(
        name="responses: events that the server left out",
        reason="Events that the specification requires are added, and the numbers count them. Numbers have no gaps.",
        checks=("events",),
        client="responses",
        server="responses",
        paths=(
            "response.content_part.added",
            "response.content_part.done",
            "response.custom_tool_call_input.done",
            "response.function_call_arguments.delta",
            "response.output_text.delta",
            "response.*[].sequence_number",
            "response.*[].output_index",
            "response.*[].content_index",
        ),
        changes=("added", "changed"),
        row="events that the specification requires, and the server left out",
    ),
    DifferenceClass(
        name="responses: members on request",
        reason="Members that are sent only on request (`include`) are left out if the client did not request them.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=(
            "output[].outputs",
            "output[].results",
            "output[].action.sources",
            "output[].content[].logprobs",
            "response.*.logprobs",
        ),
        changes=("missing", "missing empty", "list → null", "length"),
        row="members that `include` did not request",
    ),
    DifferenceClass(
        name="request: forms that a profile states",
        reason="The profile of the server states the form of a message, such as null in place of an empty text.",
        checks=("request",),
        paths=("messages[].content", "contents[].parts[].functionResponse.parts[]*"),
        changes=("string → null", "missing", "added"),
        row="what the profile of the server states",
    ),
    DifferenceClass(
        name="request: words in another spelling",
        reason="A word that the client spells in another way is sent in the spelling of the API.",
        checks=("request",),
        paths=(
            "tool_choice",
            "toolConfig.*",
            "generationConfig.thinkingConfig.thinking_level",
            "contents[].parts[].inline_data.mime_type",
        ),
        changes=("changed",),
        row="words in another spelling",
    ),
    DifferenceClass(
        name="documents that are text",
        reason="Search results and documents of text are sent as text to servers without such parts.",
        checks=("asked",),
        client="messages",
        paths=("media",),
        changes=("missing",),
        row="search results and documents of text",
    ),
    DifferenceClass(
        name="effort in settings for reasoning",
        reason="The setting `reasoning` of some chat APIs is read as effort.",
        checks=("asked",),
        client="chat",
        paths=("settings.effort",),
        changes=("added",),
        row="`reasoning` of a chat client",
    ),
    DifferenceClass(
        name="answer id",
        reason="The id of the answer is the gateway's, not the server's.",
        checks=SAME,
        paths=(
            "id",
            "responseId",
        ),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="answer times",
        reason="The times of the answer are the gateway's, not the server's.",
        checks=SAME,
        paths=(
            "created",
            "created_at",
            "completed_at",
            "createTime",
        ),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="service tier",
        reason="The service tier of the server is left out, or the default is sent in its place.",
        checks=SAME,
        paths=("service_tier", "usage.service_tier", "usageMetadata.serviceTier"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="token details",
        reason="Token counts that the hub does not have are left out.",
        checks=SAME,
        paths=("usage.*", "usageMetadata.*"),
        changes=("missing", "missing null", "missing empty"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="token details that the server did not send",
        reason="Token counts that are 0 or unknown are added.",
        checks=SAME,
        paths=("usage.*", "usageMetadata.*"),
        changes=("added", "added null", "null → object"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="null members",
        reason="A member with the value null becomes absent, or the reverse.",
        checks=SAME,
        paths=(
            "choices[].logprobs",
            "choices[].message.*",
            "choices[].native_finish_reason",
            "choices[].matched_stop",
            "choices[].seed",
            "choices[].finish_reason",
            "system_fingerprint",
            "prompt_filter_results",
            "usage",
            "usage_breakdown",
            "stop_details",
            "stop_sequence",
            "user",
            "prompt_cache_retention",
            "prompt_cache_key",
            "moderation",
            "content_filters",
            "max_tool_calls",
            "max_output_tokens",
            "safety_identifier",
            "instructions",
            "error",
            "incomplete_details",
            "previous_response_id",
            "reasoning",
            "tools[].*",
            "text.*",
            "output[].*",
        ),
        changes=("added null", "missing null"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="empty members",
        reason="A member with an empty value becomes absent, or the reverse.",
        checks=SAME,
        paths=(
            "choices[].message.*",
            "choices[].content_filter_results",
            "obfuscation",
            "prompt",
            "system_fingerprint",
            "content[].citations",
            "content[].signature",
            "input",
            "metadata",
            "output[].*",
            "response.output_text.done[].logprobs",
            "response.output_text.delta[].obfuscation",
            "tools",
        ),
        changes=("added empty", "missing empty"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chat: members of the answer",
        reason="Members of an answer that the hub does not have are left out.",
        checks=SAME,
        client="chat",
        server="chat",
        paths=(
            "system_fingerprint",
            "provider",
            "citations",
            "search_results",
            "x_groq",
            "time_info",
            "prompt_filter_results",
            "obfuscation",
            "p",
            "choices[].native_finish_reason",
            "choices[].seed",
            "choices[].text",
            "choices[].delta",
            "choices[].matched_stop",
            "choices[].content_filter_results",
            "choices[].message.token_id",
            "choices[].message.index",
        ),
        changes=("missing", "string → null"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chat: name of the reasoning",
        reason="Reasoning is sent as `reasoning_content`, whatever member the server used.",
        checks=SAME,
        client="chat",
        server="chat",
        paths=("choices[].message.reasoning", "choices[].message.reasoning_content"),
        changes=("added", "missing"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chat: content in parts",
        reason="Content that a server sends as a list of parts becomes one text.",
        checks=("answer",),
        client="chat",
        server="chat",
        paths=("choices[].message.content",),
        changes=("list → string",),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chat: usage that was not requested",
        reason="Usage in a stream is left out if the client did not request it, although the server sends it.",
        checks=(*SAME, "usage"),
        client="chat",
        server="chat",
        paths=("usage",),
        changes=("missing", "object → null"),
        row="usage in a stream that the client did not request",
    ),
    DifferenceClass(
        name="chunk boundaries",
        reason="The chunks of a stream are divided anew. The joined content is compared by the other checks.",
        checks=("events", "accumulated"),
        paths=(
            "chunk",
            "chunks",
            "choices",
            "choices[].message.content",
            "choices[].message.tool_calls",
            "choices[].message.tool_calls[].*",
            "content_block_delta",
            "content_block_delta[].*",
            "response.output_text.delta",
            "response.function_call_arguments.delta",
            "usageMetadata",
        ),
        changes=("added", "missing", "changed", "length", "missing empty"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="messages: content at the start",
        reason="Content and stop reason in the first event of a stream are sent as events of their own.",
        checks=("events", "accumulated"),
        client="messages",
        server="messages",
        paths=(
            "content",
            "content[].input.*",
            "content[].content",
            "stop_reason",
            "message_delta",
            "content_block_start",
            "content_block_stop",
        ),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="messages: second start of a message",
        reason="A proxy continues a broken stream with another one. The SDK reads the content in another way.",
        checks=("events", "accumulated", "sdk"),
        client="messages",
        server="messages",
        paths=("message_start", "content_block_start[].index", "content[].thinking", "calls"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="request: settings of the gateway",
        reason="The gateway adds settings of its own: it stores nothing here, and asks for seals and for usage.",
        checks=("request",),
        paths=(
            "store",
            "include",
            "stream_options",
        ),
        changes=(
            "added",
            "changed",
        ),
        row="settings that the gateway adds to a request",
    ),
    DifferenceClass(
        name="request: chat reasoning",
        reason="Reasoning in the history is left out, renamed or replaced by a space.",
        checks=("request",),
        client="chat",
        paths=(
            "messages[].reasoning",
            "messages[].reasoning_content",
            "messages[].reasoning_details",
        ),
        row="what the profile of the server states",
    ),
    DifferenceClass(
        name="request: chat effort",
        reason="The effort is left out for servers whose profile does not have it.",
        checks=("request",),
        client="chat",
        paths=("reasoning_effort",),
        changes=("missing",),
        row="what the profile of the server states",
    ),
]

DEFECTS: Final = [
    # All dialects
    DifferenceClass(
        name="sealed anew",
        reason="Seals are put into an envelope although client and server have the same dialect.",
        checks=(*SAME, "seals"),
        paths=(
            "seals",
            "output[].encrypted_content",
            "content[].signature",
            "content[].data",
            "content_block_delta[].delta.signature",
            "candidates[].content.parts[].thoughtSignature",
        ),
        changes=("changed", "added"),
    ),
    # Chat Completions
    # Responses
    DifferenceClass(
        name="responses: calls in progress",
        reason="A call that the server leaves in progress is completed when its item is done (ITEM-2).",
        checks=SAME,
        client="responses",
        server="responses",
        paths=("output[].status",),
        changes=("changed",),
    ),
    DifferenceClass(
        name="responses: contradictions",
        reason="The server says something else at the end of an item than before; the gateway keeps what came first.",
        checks=("events", "accumulated"),
        client="responses",
        server="responses",
        paths=(
            "output[].call_id",
            "output[].fingerprint",
            "output[].content[].text",
            "response.output_text.done[].text",
            "response.content_part.done[].part.text",
        ),
        changes=("changed",),
    ),
    DifferenceClass(
        name="responses: seals that were not requested",
        reason="Encrypted reasoning is left out if the client did not request it, although the server sends it (RSN-2).",
        checks=(*SAME, "seals"),
        client="responses",
        server="responses",
        paths=("seals", "output[].encrypted_content"),
        changes=("missing",),
    ),
    # Messages
    # Token counts
    DifferenceClass(
        name="usage: cached tokens beside the input",
        reason="Some servers count more cached tokens than input tokens.",
        checks=("usage",),
        client="messages",
        server="chat",
        paths=("input",),
        changes=("changed",),
    ),
    # Errors
    DifferenceClass(
        name="error members",
        reason="An error has the members and codes of the gateway, not those of the server.",
        checks=("error",),
        paths=("body.*",),
    ),
    # Requests
    DifferenceClass(
        name="request: null and empty members",
        reason="Members with the value null or with an empty value are left out, or added.",
        checks=("request",),
        paths=(
            "tools",
            "generationConfig",
            "system",
            "response_format",
            "tools[].function.description",
            "messages[].content",
        ),
        changes=(
            "missing null",
            "missing empty",
            "added null",
        ),
    ),
    DifferenceClass(
        name="request: default values",
        reason="Members with the default value, and the model in a body whose path has it, are left out.",
        checks=("request",),
        paths=(
            "n",
            "tool_choice",
            "logprobs",
            "generationConfig",
            "generationConfig.candidateCount",
            "messages[].content[].is_error",
            "model",
        ),
        changes=("missing",),
    ),
    DifferenceClass(
        name="request: name of the schema",
        reason="A schema without a name gets one.",
        checks=("request",),
        client="chat",
        paths=("response_format.json_schema.name",),
        changes=("added",),
    ),
    DifferenceClass(
        name="request: form of content",
        reason="A text becomes a list of one part, or the reverse.",
        checks=("request",),
        paths=(
            "messages[].content",
            "messages[].content[].image_url",
        ),
        changes=(
            "list → string",
            "string → list",
            "string → object",
        ),
    ),
    DifferenceClass(
        name="request: chat messages",
        reason="Consecutive messages are joined.",
        checks=("request",),
        client="chat",
        paths=("messages",),
        changes=("length",),
    ),
    DifferenceClass(
        name="request: chat hosted tools",
        reason="Hosted tools of a chat server are left out.",
        checks=("request",),
        client="chat",
        paths=("tools",),
        changes=("missing",),
    ),
    DifferenceClass(
        name="request: gemini turns",
        reason="Parts and turns are joined or divided.",
        checks=("request",),
        client="gemini",
        paths=(
            "contents[].parts",
            "contents",
        ),
        changes=("length",),
    ),
    DifferenceClass(
        name="request: messages thinking",
        reason="Thinking that did not come through the gateway is left out.",
        checks=("request",),
        client="messages",
        paths=("messages[].content",),
        changes=("length",),
    ),
    DifferenceClass(
        name="request: media",
        reason="The type of an image is corrected, and base64 is written in one alphabet.",
        checks=("request",),
        paths=(
            "messages[].content[].source.media_type",
            "contents[].parts[].inlineData.data",
        ),
        changes=("changed",),
    ),
]

CLASSES: Final = [*ACCEPTED, *DEFECTS]
