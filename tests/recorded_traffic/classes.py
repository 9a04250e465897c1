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
]

DEFECTS: Final = [
    # All dialects
    DifferenceClass(
        name="answer id",
        reason="The id of the answer is the gateway's, not the server's.",
        checks=SAME,
        paths=(
            "id",
            "responseId",
        ),
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
    ),
    DifferenceClass(
        name="answer model",
        reason="The model of the answer is the name in the request, not the name that the server sent.",
        checks=SAME,
        paths=("model", "modelVersion"),
        changes=("changed",),
    ),
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
    DifferenceClass(
        name="service tier",
        reason="The service tier of the server is left out, or the default is sent in its place.",
        checks=SAME,
        paths=("service_tier", "usage.service_tier", "usageMetadata.serviceTier"),
    ),
    DifferenceClass(
        name="token details",
        reason="Token counts that the hub does not have are left out.",
        checks=SAME,
        paths=("usage.*", "usageMetadata.*"),
        changes=("missing", "missing null", "missing empty"),
    ),
    DifferenceClass(
        name="token details that the server did not send",
        reason="Token counts that are 0 or unknown are added.",
        checks=SAME,
        paths=("usage.*", "usageMetadata.*"),
        changes=("added", "null → object"),
    ),
    DifferenceClass(
        name="tokens at the start of a stream",
        reason="The first event of a stream has zeros in place of the server's token counts.",
        checks=("events",),
        client="messages",
        server="messages",
        paths=("usage.*",),
        changes=("changed",),
    ),
    DifferenceClass(
        name="tokens of tool use",
        reason="Tokens of tool results are added to the tokens of the prompt.",
        checks=("answer",),
        client="gemini",
        server="gemini",
        paths=("usageMetadata.promptTokenCount",),
        changes=("changed",),
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
    ),
    # Chat Completions
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
    ),
    DifferenceClass(
        name="chat: name of the reasoning",
        reason="Reasoning is sent as `reasoning_content`, whatever member the server used.",
        checks=SAME,
        client="chat",
        server="chat",
        paths=("choices[].message.reasoning", "choices[].message.reasoning_content"),
        changes=("added", "missing"),
    ),
    DifferenceClass(
        name="chat: reasoning details",
        reason="`reasoning_details` of the server are replaced by one detail with an envelope.",
        checks=SAME,
        client="chat",
        server="chat",
        paths=("choices[].message.reasoning_details", "choices[].message.reasoning_details[].*"),
    ),
    DifferenceClass(
        name="chat: empty content",
        reason="An empty text becomes null beside calls, or the reverse.",
        checks=SAME,
        client="chat",
        server="chat",
        paths=("choices[].message.content",),
        changes=("string → null", "null → string"),
    ),
    DifferenceClass(
        name="chat: content in parts",
        reason="Content that a server sends as a list of parts becomes one text.",
        checks=("answer",),
        client="chat",
        server="chat",
        paths=("choices[].message.content",),
        changes=("list → string",),
    ),
    DifferenceClass(
        name="chat: members of a call",
        reason="`index` of a call in a whole answer is left out; `type` is added.",
        checks=("answer",),
        client="chat",
        server="chat",
        paths=("choices[].message.tool_calls[].index", "choices[].message.tool_calls[].type"),
        changes=("missing", "added"),
    ),
    DifferenceClass(
        name="chat: finish reason",
        reason="The finish reason follows from the content: `tool_calls` if there are calls, else `stop`.",
        checks=SAME,
        client="chat",
        server="chat",
        paths=("choices[].finish_reason",),
        changes=("changed", "added", "string → null", "null → string"),
    ),
    DifferenceClass(
        name="chat: repeated role",
        reason="The role is sent once. Servers repeat it in each chunk, and some never send it.",
        checks=("accumulated", "events"),
        client="chat",
        server="chat",
        paths=("choices[].message.role",),
    ),
    DifferenceClass(
        name="chat: usage that was not requested",
        reason="Usage in a stream is left out if the client did not request it, although the server sends it.",
        checks=(*SAME, "usage"),
        client="chat",
        server="chat",
        paths=("usage",),
        changes=("missing", "object → null"),
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
    ),
    # Responses
    DifferenceClass(
        name="responses: settings in the response",
        reason="The settings in a response are those of the request, not those that the server sent.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=(
            "background",
            "frequency_penalty",
            "max_output_tokens",
            "metadata",
            "metadata.*",
            "parallel_tool_calls",
            "presence_penalty",
            "reasoning",
            "reasoning.*",
            "safety_identifier",
            "store",
            "temperature",
            "text",
            "text.*",
            "tool_choice",
            "tools",
            "tools[].*",
            "top_logprobs",
            "top_p",
            "truncation",
        ),
    ),
    DifferenceClass(
        name="responses: members of the response",
        reason="Members of a response that the hub does not have are left out.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=(
            "billing",
            "content_filters",
            "moderation",
            "prompt_cache_retention",
            "tool_usage",
            "response.completed[].copilot_usage",
            "response.*[].obfuscation",
        ),
        changes=("missing",),
    ),
    DifferenceClass(
        name="responses: status of items",
        reason="An item without a status gets one, and a status becomes `completed` at the end.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=("output[].status",),
        changes=(
            "added",
            "changed",
        ),
    ),
    DifferenceClass(
        name="responses: members of items",
        reason="Members of items are left out, added or replaced by default values.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=(
            "output[].id",
            "output[].call_id",
            "output[].caller",
            "output[].fingerprint",
            "output[].outputs",
            "output[].results",
            "output[].action.sources",
            "output[].content[].logprobs",
        ),
    ),
    DifferenceClass(
        name="responses: text that was not streamed",
        reason="The recording streams another text than the one at the end of the item.",
        checks=("events", "accumulated"),
        client="responses",
        server="responses",
        paths=(
            "output[].content[].text",
            "response.output_text.done[].text",
            "response.content_part.done[].part.text",
        ),
        changes=("changed",),
    ),
    DifferenceClass(
        name="responses: seal in the last event",
        reason="The server seals reasoning anew in the last event; the gateway repeats the first seal or none.",
        checks=SAME,
        client="responses",
        server="responses",
        paths=("output[].encrypted_content",),
        changes=("missing",),
    ),
    DifferenceClass(
        name="responses: seals that were not requested",
        reason="Encrypted reasoning is left out if the client did not request it, although the server sends it.",
        checks=("seals",),
        client="responses",
        server="responses",
        changes=("missing",),
    ),
    DifferenceClass(
        name="responses: name of a call",
        reason="The name of the call is added to the event that ends its arguments.",
        checks=("events",),
        client="responses",
        server="responses",
        paths=("response.function_call_arguments.done[].name",),
        changes=("added",),
    ),
    DifferenceClass(
        name="responses: numbers of events",
        reason="Events, items and parts are numbered anew.",
        checks=("events",),
        client="responses",
        server="responses",
        paths=(
            "response.*[].sequence_number",
            "response.*[].output_index",
            "response.*[].content_index",
            "response.*[].item_id",
        ),
        changes=(
            "added",
            "changed",
        ),
    ),
    DifferenceClass(
        name="responses: log probabilities",
        reason="Log probabilities that the client did not request are left out.",
        checks=("events",),
        client="responses",
        server="responses",
        paths=("response.*.logprobs",),
        changes=("length",),
    ),
    DifferenceClass(
        name="responses: events that the server left out",
        reason="Events that the server left out are added.",
        checks=("events",),
        client="responses",
        server="responses",
        paths=(
            "response.content_part.added",
            "response.content_part.done",
            "response.custom_tool_call_input.done",
        ),
        changes=("added",),
    ),
    DifferenceClass(
        name="responses: unknown types",
        reason="Types of items and events that the server added later are reported as violations of the grammar.",
        checks=("grammar",),
        server="responses",
        paths=("ITEM-5",),
    ),
    # Messages
    DifferenceClass(
        name="messages: members of the answer",
        reason="Members of an answer that the hub does not have are left out.",
        checks=SAME,
        client="messages",
        server="messages",
        paths=("container", "context_management", "stop_details", "content[].caller"),
        changes=("missing", "object → null"),
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
    ),
    DifferenceClass(
        name="messages: pings",
        reason="Pings are not passed on: the gateway sends its own.",
        checks=("events",),
        client="messages",
        server="messages",
        paths=("ping",),
    ),
    DifferenceClass(
        name="messages: stop reason",
        reason="The stop reason follows from the content: `tool_use` if there are calls.",
        checks=("answer",),
        client="messages",
        server="messages",
        paths=("stop_reason", "content"),
    ),
    DifferenceClass(
        name="messages: second start of a message",
        reason="A proxy continues a broken stream with another one. The SDK reads the content in another way.",
        checks=("events", "accumulated", "sdk"),
        client="messages",
        server="messages",
        paths=("message_start", "content_block_start[].index", "content[].thinking", "calls"),
    ),
    # Gemini
    DifferenceClass(
        name="gemini: members of the answer",
        reason="Members of an answer that the hub does not have are left out.",
        checks=SAME,
        client="gemini",
        server="gemini",
        paths=("candidates[].avgLogprobs", "candidates[].finishMessage", "usageMetadata"),
        changes=("missing",),
    ),
    DifferenceClass(
        name="gemini: index of the candidate",
        reason="The index 0 is added.",
        checks=SAME,
        client="gemini",
        server="gemini",
        paths=("candidates[].index",),
        changes=("added",),
    ),
    DifferenceClass(
        name="gemini: ids of calls",
        reason="A call without an id gets one.",
        checks=SAME,
        client="gemini",
        server="gemini",
        paths=("candidates[].content.parts[].functionCall.id",),
        changes=("added",),
    ),
    DifferenceClass(
        name="gemini: parts",
        reason="The signature of a text is sent on a part of its own.",
        checks=SAME,
        client="gemini",
        server="gemini",
        paths=("candidates[].content.parts", "candidates[].content.parts[].text"),
        changes=("length", "changed"),
    ),
    DifferenceClass(
        name="gemini: grounding",
        reason="Citations are sent in another form.",
        checks=SAME,
        client="gemini",
        server="gemini",
        paths=("candidates[].groundingMetadata", "candidates[].citationMetadata", "candidates[].citationMetadata.*"),
        changes=("missing", "added"),
    ),
    DifferenceClass(
        name="gemini: numbers for words",
        reason="A finish reason that is sent as the number of its word becomes the word.",
        checks=SAME,
        client="gemini",
        server="gemini",
        paths=("candidates[].finishReason",),
        changes=("number → string",),
    ),
    # Ollama
    DifferenceClass(
        name="ollama: durations",
        reason="The durations that the server measured are left out.",
        checks=SAME,
        client="ollama",
        server="ollama",
        paths=("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"),
        changes=("missing",),
    ),
    DifferenceClass(
        name="ollama: unreported seals",
        reason="The API has no member for seals, and their loss is not reported.",
        checks=("seals",),
        client="ollama",
        changes=("missing",),
    ),
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
    DifferenceClass(
        name="usage: reasoning tokens beside the output",
        reason="Some servers count reasoning tokens beside the output tokens.",
        checks=("usage",),
        client="gemini",
        server="chat",
        paths=("output",),
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
        name="request: role of the instructions",
        reason="The role of the system instruction is left out.",
        checks=("request",),
        client="gemini",
        paths=("systemInstruction.role",),
        changes=("missing",),
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
        name="request: strict of functions",
        reason="`strict: false` is added to functions.",
        checks=("request",),
        client="chat",
        paths=("tools[].function.strict",),
        changes=("added",),
    ),
    DifferenceClass(
        name="request: type of messages",
        reason="The type `message` is added to items.",
        checks=("request",),
        client="responses",
        paths=("input[].type",),
        changes=("added",),
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
        name="request: empty text beside calls",
        reason="An empty text of an assistant becomes null.",
        checks=("request",),
        client="chat",
        paths=("messages[].content",),
        changes=("string → null",),
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
        name="request: words",
        reason="Words with the same meaning are replaced: `developer`, `any`, lower case.",
        checks=("request",),
        paths=(
            "messages[].role",
            "tool_choice",
            "toolConfig.functionCallingConfig.mode",
        ),
        changes=("changed",),
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
    ),
    DifferenceClass(
        name="request: chat effort",
        reason="The effort is left out for servers whose profile does not have it.",
        checks=("request",),
        client="chat",
        paths=("reasoning_effort",),
        changes=("missing",),
    ),
    DifferenceClass(
        name="request: chat members",
        reason="Members that the hub does not have are left out.",
        checks=("request",),
        client="chat",
        paths=(
            "messages[].name",
            "tools[].function.requires_confirmation",
            "tools[].function.external_execution",
        ),
        changes=("missing",),
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
        name="request: gemini schemas",
        reason="A schema is sent as JSON Schema, in another member; a schema without members is left out.",
        checks=("request",),
        client="gemini",
        paths=(
            "tools[].functionDeclarations[].parameters*",
            "generationConfig.responseSchema",
            "generationConfig.responseJsonSchema",
        ),
        changes=(
            "missing",
            "added",
        ),
    ),
    DifferenceClass(
        name="request: gemini names with underscores",
        reason="Names with underscores become names in camel case.",
        checks=("request",),
        client="gemini",
        paths=(
            "contents[].parts[].inline*",
            "contents[].parts[].file*",
            "contents[].parts[].functionResponse.parts[].inline*",
            "generationConfig.thinkingConfig.*",
            "tools[].google*",
            "tools[].code*",
        ),
        changes=(
            "missing",
            "added",
            "missing empty",
            "added empty",
        ),
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
