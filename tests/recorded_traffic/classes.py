"""The closed table of known differences. Every difference belongs to the first class that matches it.

A class matches the check, the dialects, the path and the change of a difference, and nothing else. Its row in
`docs/dialects.md` says why the difference is intended. Text, calls, finish and seals never differ.
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
    """Patterns may contain `*`. `row` is the title of a row in `docs/dialects.md`."""

    name: str
    reason: str
    checks: tuple[Check, ...]
    client: str = "*"
    server: str = "*"
    paths: tuple[str, ...] = ("*",)
    changes: tuple[str, ...] = ("*",)
    row: str = ""

    def matches(self, difference: Difference) -> bool:
        return (
            difference.check in self.checks
            and _matches(self.client, difference.client)
            and _matches(self.server, difference.server)
            and any(_matches(pattern, difference.path) for pattern in self.paths)
            and any(_matches(pattern, difference.change) for pattern in self.changes)
        )

    def unused_patterns(self, differences: Iterable[Difference]) -> list[str]:
        """The checks, paths and changes that none of the differences of this class has."""
        differences = list(differences)
        checks = [check for check in self.checks if all(each.check != check for each in differences)]
        paths = [path for path in self.paths if not any(_matches(path, each.path) for each in differences)]
        changes = [change for change in self.changes if not any(_matches(change, each.change) for each in differences)]
        return [*checks, *paths, *changes]


def classify(difference: Difference, classes: Iterable[DifferenceClass]) -> DifferenceClass | None:
    """The class of a difference; None if there is none."""
    return next((each for each in classes if each.matches(difference)), None)


@cache
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def _matches(pattern: str, text: str) -> bool:
    return pattern == "*" or _compile(pattern).fullmatch(text) is not None


CLASSES: Final = [
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
        name="chat: required members",
        reason="The SDK requires members that the server left out of a chunk.",
        checks=("events",),
        client="chat",
        server="chat",
        paths=("object",),
        changes=("added",),
        row="members that chat clients need, and the server left out",
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
        name="only tools of another server",
        reason="The request offers only tools that its own server runs, and the other server has none of them.",
        checks=("refused",),
        client="messages",
        paths=("400 unsupported_parameter",),
        row="Messages request all of whose tools the server lacks",
    ),
    DifferenceClass(
        name="content part of a type that nobody knows",
        reason="The part would have to be translated, and its meaning is not known.",
        checks=("refused",),
        client="chat",
        paths=("400 invalid_value",),
        row="content part of an unknown type, to a server of another dialect",
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
        paths=("store", "background", "previous_response_id"),
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
        checks=("answer", "events"),
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
        reason="Seals and log probabilities are left out if the client did not request them (RSN-2, STR-12).",
        checks=SAME,
        client="responses",
        server="responses",
        paths=(
            "output[].content[].logprobs",
            "output[].encrypted_content",
            "response.*.logprobs",
        ),
        changes=("missing", "length"),
        row="seals and log probabilities that `include` did not request",
    ),
    DifferenceClass(
        name="request: words in another spelling",
        reason="A word that the client spells in another way is sent in the spelling of the API.",
        checks=("request",),
        paths=(
            "tool_choice",
            "toolConfig.*",
            "generationConfig.thinkingConfig.thinking_level",
        ),
        changes=("changed",),
        row="words in another spelling",
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
        name="messages: usage of a repaired stream",
        reason="The last event has all token counts of the answer. A count that the server did not send is 0 or null.",
        checks=("events", "accumulated"),
        client="messages",
        server="messages",
        paths=("usage.*",),
        changes=("added", "added null"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="null members",
        reason="The repaired message has no empty list of calls. Members that clients need are null.",
        checks=("answer",),
        paths=("choices[].logprobs", "choices[].message.*", "stop_sequence"),
        changes=("added null", "missing null"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="messages: start of thoughts",
        reason="A block of thoughts starts with an empty signature.",
        checks=("events",),
        client="messages",
        server="messages",
        paths=("content[].signature",),
        changes=("added empty",),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chat: name of the reasoning",
        reason="Reasoning in parts of the content is sent as `reasoning_content`.",
        checks=("answer", "accumulated"),
        client="chat",
        server="chat",
        paths=("choices[].message.reasoning_content",),
        changes=("added",),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chat: content in parts",
        reason="Content that a server sends as a list of parts becomes one text. The SDK cannot join lists of a stream.",
        checks=("answer", "accumulated"),
        client="chat",
        server="chat",
        paths=("choices[].message.content",),
        changes=("list → string", "changed"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chunk boundaries",
        reason="The chunks of a stream are divided anew. The joined content is compared by the other checks.",
        checks=("events",),
        paths=("chunk", "content_block_delta[].index"),
        changes=("added", "changed"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="chat: calls of two streams",
        reason="The server sends two answers in one stream. Their calls have numbers of their own.",
        checks=("accumulated",),
        client="chat",
        server="chat",
        paths=("choices[].message.tool_calls",),
        changes=("length",),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="messages: content at the start",
        reason="Content and stop reason in the first event of a stream are sent as events of their own.",
        checks=("events", "accumulated"),
        client="messages",
        server="messages",
        paths=(
            "content[].input.*",
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
        ),
        row="what the profile of the server states",
    ),
    DifferenceClass(
        name="answers with seals in an envelope",
        reason="The answer is translated, so its seals are in an envelope. The check of seals opens it.",
        checks=SAME,
        client="messages",
        server="messages",
        paths=("seals", "content[].signature", "content_block_delta[].delta.signature"),
        changes=("sealed", "changed", "added"),
        row="answers that need a repair",
    ),
    DifferenceClass(
        name="responses: calls in progress",
        reason="A call that the server leaves in progress is completed when its item is done (ITEM-2).",
        checks=SAME,
        client="responses",
        server="responses",
        paths=("output[].status",),
        changes=("changed",),
        row="items that are done and still in progress",
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
        row="values that a server contradicts",
    ),
    DifferenceClass(
        name="usage: more cached tokens than input",
        reason="Some servers count more cached tokens than input tokens. Messages adds both.",
        checks=("usage",),
        client="messages",
        server="chat",
        paths=("input",),
        changes=("changed",),
        row="more cached tokens than input tokens",
    ),
    DifferenceClass(
        name="error codes",
        reason="Type, code and param say what an error means, in the words of the gateway (ERR-4).",
        checks=("error",),
        paths=(
            *("body.error.code", "body.error.type", "body.error.param"),
            *("body.error.details",),
        ),
        changes=("changed", "added", "added null", "null → string", "number → string", "length"),
        row="type, code and param of errors",
    ),
    DifferenceClass(
        name="request: tool choice without tools",
        reason="Most servers refuse a choice of tools without tools.",
        checks=("request",),
        client="chat",
        paths=("tool_choice",),
        changes=("missing",),
        row="`tool_choice` without tools",
    ),
    DifferenceClass(
        name="request: model in the body",
        reason="The path has the model. The gateway maps it there.",
        checks=("request",),
        client="gemini",
        paths=("model",),
        changes=("missing",),
        row="`model` in the body of a Gemini request",
    ),
    DifferenceClass(
        name="request: name of the schema",
        reason="A schema without a name gets one, because the API requires it.",
        checks=("request",),
        client="chat",
        paths=("response_format.json_schema.name",),
        changes=("added",),
        row="schema without a name",
    ),
    DifferenceClass(
        name="request: images in results",
        reason="The profile moves images out of results. Texts are compared by the check of facts.",
        checks=("request",),
        client="chat",
        paths=("messages",),
        changes=("length",),
        row="what the profile of the server states",
    ),
    DifferenceClass(
        name="request: blank texts",
        reason="A blank text is left out, because the server refuses it.",
        checks=("request",),
        client="messages",
        paths=("messages[].content",),
        changes=("length",),
        row="blank texts",
    ),
    DifferenceClass(
        name="request: type of an image",
        reason="The type of an image is corrected, because the server refuses another type than that of the data.",
        checks=("request",),
        client="messages",
        paths=("messages[].content[].source.media_type",),
        changes=("changed",),
        row="media type that does not fit the image",
    ),
]
