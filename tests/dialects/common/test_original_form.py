"""`dialects/common/original_form`: a server of the client's dialect gets the client's own JSON where nothing changed."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from antiphon.dialects import chat, gemini, ollama
from antiphon.dialects.chat.wire import ChatWire
from antiphon.dialects.common.original_form import keep_original_form, without_restored_losses
from antiphon.errors import InvalidValue
from antiphon.protocol.losses import Loss, Losses

PNG = b"\x89PNG\r\n\x1a\n"
USER = {"role": "user", "content": "Hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def sent(body: dict[str, Any], wire: ChatWire = ChatWire()) -> dict[str, Any]:  # noqa: B008
    """The body for a chat server, if a chat client sends `body`."""
    original = json.dumps(body).encode()
    translation, _ = chat.request_from_hub(chat.request_to_hub(original)[0], wire)
    merged: dict[str, Any] = json.loads(keep_original_form(original, translation, chat.request_to_hub))
    return merged


@pytest.mark.parametrize(
    "members",
    [
        {"seed": None, "logprobs": False, "n": 1, "stop": "x"},
        {"unknown": {"a": [1]}, "messages": [{**USER, "unknown": 1}]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "Hi", "unknown": 1}], "name": None}]},
        {"messages": [{"role": "system", "content": "a"}, {"role": "system", "content": "b", "name": "c"}, USER]},
        {
            "messages": [
                USER,
                {"role": "assistant", "content": None, "refusal": None, "audio": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "ok"},
            ],
            "tools": [{**TOOL, "function": {**TOOL["function"], "strict": None}}],  # type: ignore[dict-item]
        },
        {"tools": [{**TOOL, "function": {**TOOL["function"], "description": ""}}]},  # type: ignore[dict-item]
    ],
)
def test_request_within_a_dialect_keeps_its_form(members: dict[str, Any]) -> None:
    body = {"model": "m", "messages": [USER], **members}
    assert sent(body) == body


def test_change_that_a_profile_demands_stays() -> None:
    """The other name of a member is not sent beside it."""
    body = {"model": "m", "messages": [{**USER, "unknown": 1}], "max_tokens": 9, "temperature": 1, "seed": None}
    wire = ChatWire(max_tokens="max_completion_tokens", fields=())
    assert sent(body, wire) == {
        "model": "m",
        "messages": [{**USER, "unknown": 1}],
        "max_completion_tokens": 9,
        "seed": None,
    }


def test_repaired_history_stays_repaired() -> None:
    """The results that a client left out are added; all other messages keep their form."""
    calling = {"role": "assistant", "content": None, "unknown": 1, "tool_calls": [CALL]}
    body = {"model": "m", "messages": [{**USER, "unknown": 2}, calling, {**USER, "content": "Go", "unknown": 3}]}
    first, second, added, last = sent(body)["messages"]
    assert [first, second, last] == body["messages"]
    assert added["role"] == "tool"


def test_part_of_a_message_changes_alone() -> None:
    """A message that differs in one place keeps the client's form in all others."""
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png", "unknown": 1}}
    text = {"type": "text", "text": "Hi", "unknown": 2}
    body = {"model": "m", "messages": [{"role": "user", "content": [text, image], "name": None}]}
    original = json.dumps(body).encode()
    changed = {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "[image]"}]}
    translation = json.dumps({"model": "m", "messages": [changed]}).encode()
    merged = json.loads(keep_original_form(original, translation, chat.request_to_hub))
    expected = {"role": "user", "content": [text, {"type": "text", "text": "[image]"}]}
    assert merged["messages"] == [{**expected, "name": None}]


def test_member_that_cannot_be_read_is_not_sent() -> None:
    translation = {"model": "m", "messages": [USER]}
    original = json.dumps({**translation, "top_logprobs": 99}).encode()
    merged = keep_original_form(original, json.dumps(translation).encode(), chat.request_to_hub)
    assert json.loads(merged) == translation


def test_both_spellings_of_a_name_are_one_member() -> None:
    body = {
        "system_instruction": {"role": "system", "parts": [{"text": "Be brief."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "generation_config": {"max_output_tokens": 9, "unknown": None},
    }
    original = json.dumps(body).encode()
    translation, _ = gemini.request_from_hub(gemini.request_to_hub(original)[0])
    assert json.loads(keep_original_form(original, translation, gemini.request_to_hub)) == body


def test_body_that_is_no_object_is_sent_as_translated() -> None:
    translation = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    assert keep_original_form(b"[]", translation, chat.request_to_hub) is translation


def test_members_keep_the_order_of_the_client() -> None:
    """E-4: the bytes of a message are the same in every turn, whatever else differs."""
    original = b'{"messages":[{"content":"Hi","role":"user"}],"model":"m","top_p":null}'
    for translation in (
        b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"top_p":null}',
        b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}',
        b'{"model":"m","messages":[{"role":"user","content":"Hi"}],"top_p":null,"store":false}',
    ):
        sent_body = keep_original_form(original, translation, chat.request_to_hub)
        assert sent_body.removesuffix(b',"store":false}').removesuffix(b"}") == original.removesuffix(b"}")


def test_request_of_another_endpoint_is_sent_as_translated() -> None:
    translation = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    assert keep_original_form(b'{"model":"m","prompt":"Hi"}', translation, ollama.request_to_hub) is translation


def test_members_without_a_meaning_pass_beside_members_that_are_left_out() -> None:
    body = {"model": "m", "messages": [USER], "temperature": 1, "seed": None, "logprobs": False, "store": False}
    assert sent(body, ChatWire(fields=())) == {"model": "m", "messages": [USER], "seed": None, "logprobs": False}


def test_work_is_bounded() -> None:
    """A request with many small differences is read only so often; the rest is sent as translated."""
    messages = [{"role": "user", "content": f"Hi {number}", "unknown": number} for number in range(3000)]
    readings = 0

    def read_body(body: bytes) -> Any:
        nonlocal readings
        readings += 1
        return chat.request_to_hub(body)

    translated = [{"role": "user", "content": f"Hi {number}."} for number in range(3000)]
    original = json.dumps({"model": "m", "messages": messages}).encode()
    translation = json.dumps({"model": "m", "messages": translated}).encode()
    merged = json.loads(keep_original_form(original, translation, read_body))
    assert readings <= 400
    assert merged["messages"][-1] == translated[-1]


def test_members_that_are_sent_after_all_are_no_losses() -> None:
    losses = Losses()
    for path in ("messages[0].unknown", "messages[0].name", "messages[3].unknown", "tools", "messages[0].content[0]"):
        losses.add(path, "a member")
    original = b'{"messages": [{"unknown": 1, "name": "a", "content": "Hi"}]}'
    sent_body = b'{"messages": [{"unknown": 1, "content": "Hi"}]}'
    remaining = list(without_restored_losses(losses, original, sent_body))
    assert remaining == [
        Loss(path, "a member", "")
        for path in ("messages[0].name", "messages[3].unknown", "tools", "messages[0].content[0]")
    ]


def test_message_with_a_cache_mark_keeps_its_form_without_it() -> None:
    """E-4: in the next turn the client marks another message, and the cached prefix must still match."""
    part = {"type": "text", "text": "Hi"}
    mark = {"cache_control": {"type": "ephemeral"}}
    body = {"model": "m", "messages": [{"role": "user", "content": [{**part, **mark}]}]}
    assert sent(body)["messages"] == [{"role": "user", "content": [part]}]
    assert sent(body, ChatWire(cache_marks="cache_control"))["messages"] == body["messages"]
    schema = {"type": "object", "properties": {"cache_control": {"type": "string"}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema, "strict": False}}]
    assert sent({**body, "tools": tools})["tools"] == tools


def test_cache_mark_whose_name_has_an_escape_is_left_out() -> None:
    part = {"type": "text", "text": "Hi"}
    body = {"model": "m", "messages": [{"role": "user", "content": [{**part, "cache_control": {"type": "ephemeral"}}]}]}
    original = json.dumps(body).replace("cache_control", r"cache\u005fcontrol").encode()
    translation, _ = chat.request_from_hub(chat.request_to_hub(original)[0], ChatWire())
    merged = json.loads(keep_original_form(original, translation, chat.request_to_hub))
    assert merged["messages"] == [{"role": "user", "content": [part]}]


def test_form_that_a_profile_states_is_kept() -> None:
    """The neutral translation shows what the profile changed: here, the content of the first message."""
    text = [{"type": "text", "text": "Hi"}]
    messages = [{"role": "user", "content": text}, {"role": "assistant", "content": [*text]}, USER]
    stated = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}, USER]
    neutral = [{"role": "user", "content": text}, {"role": "assistant", "content": "Hi"}, USER]
    original, translation = (json.dumps({"model": "m", "messages": each}).encode() for each in (messages, stated))

    def merge(neutral_messages: Any) -> Any:
        body = json.dumps({"model": "m", "messages": neutral_messages}).encode()
        return json.loads(keep_original_form(original, translation, chat.request_to_hub, lambda: body))["messages"]

    assert merge(neutral) == [stated[0], *messages[1:]]
    assert merge(stated) == messages
    assert merge(neutral[:1]) == stated


def merge_messages(client: list[Any], stated: list[Any], neutral: list[Any]) -> Any:
    """The messages for a server whose profile states the form `stated`."""
    original, translation, body = (
        json.dumps({"model": "m", "messages": each}).encode() for each in (client, stated, neutral)
    )
    return json.loads(keep_original_form(original, translation, chat.request_to_hub, lambda: body))["messages"]


def test_profile_changes_only_the_members_that_it_states() -> None:
    calling = {"role": "assistant", "content": "", "tool_calls": [{**CALL, "unknown": 1}], "name": None}
    result = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
    neutral = {"role": "assistant", "content": None, "tool_calls": [CALL]}
    stated = {**neutral, "reasoning_content": " "}
    merged = merge_messages([USER, calling, result], [USER, stated, result], [USER, neutral, result])
    assert merged == [USER, {**calling, "reasoning_content": " "}, result]
    merged = merge_messages(
        [USER, {**calling, "reasoning_content": "a"}, result], [USER, neutral, result], [USER, stated]
    )
    assert merged == [USER, neutral, result]


def test_form_that_a_profile_states_is_kept_in_lists_of_other_lengths() -> None:
    """The second message is joined to the first one, and the profile states the form of the third one."""
    contents = [{"role": role, "parts": [{"text": role}], "unknown": 1} for role in ("user", "user", "model", "user")]
    joined = {"role": "user", "parts": [{"text": "user"}, {"text": "user"}]}
    neutral = [joined, {"role": "model", "parts": [{"text": "model"}]}, {"role": "user", "parts": [{"text": "user"}]}]
    stated = [*neutral[:2], {"role": "user", "parts": [{"text": "user"}], "unknown": 2}]
    original, translation, body = (json.dumps({"contents": each}).encode() for each in (contents, stated, neutral))
    merged = keep_original_form(original, translation, gemini.request_to_hub, lambda: body, keeps_turns=True)
    assert json.loads(merged)["contents"] == [*contents[:3], {**contents[3], "unknown": 2}]
    original = json.dumps({"contents": "user"}).encode()
    merged = keep_original_form(original, translation, gemini.request_to_hub, lambda: body, keeps_turns=True)
    assert json.loads(merged)["contents"] == stated


def test_texts_in_a_list_of_another_length_are_those_of_the_translation() -> None:
    original = json.dumps({"model": "m", "messages": [USER], "stop": ["a", "b"]}).encode()
    translation = json.dumps({"model": "m", "messages": [USER], "stop": ["a"]}).encode()
    assert keep_original_form(original, translation, chat.request_to_hub) == keep_original_form(
        translation, translation, chat.request_to_hub
    )


def test_profile_changes_only_the_elements_that_it_states() -> None:
    part = {"type": "text", "text": "Hi", "unknown": 1}
    client = {"role": "user", "content": [part, part]}
    neutral = {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Hi"}]}
    stated = {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "text", "text": "Hi."}]}
    assert merge_messages([client], [stated], [neutral])[0]["content"][0] == part
    assert merge_messages([client], [stated], [neutral])[0]["content"][1]["text"] == "Hi."


def test_form_that_the_client_spells_in_another_way_is_the_clients() -> None:
    """Here both have the media inside the result; the neutral translation has it beside the result."""
    blob = {"mime_type": "image/png", "data": "iVBORw0KGgo="}
    call = {"role": "model", "parts": [{"functionCall": {"id": "c", "name": "f", "args": {}}}]}
    result = {"id": "c", "name": "f", "response": {"output": "ok"}}
    client = {"role": "user", "parts": [{"function_response": {**result, "parts": [{"inline_data": blob}]}}]}
    media = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    stated = {"role": "user", "parts": [{"functionResponse": {**result, "parts": [media]}}]}
    neutral = {"role": "user", "parts": [{"functionResponse": result}, media]}
    original, translation, body = (
        json.dumps({"contents": [call, each]}).encode() for each in (client, stated, neutral)
    )
    merged = json.loads(keep_original_form(original, translation, gemini.request_to_hub, lambda: body))
    assert merged["contents"] == [call, client]


def test_messages_keep_their_form_beside_a_message_that_is_added() -> None:
    """E-4: images of a result become a message of their own. All other messages are as in the turn before."""
    text = {"type": "text", "text": "Hi"}
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    calling = {"role": "assistant", "content": "", "tool_calls": [CALL], "reasoning": "so", "unknown": 1}
    result = {"role": "tool", "content": [text, image], "tool_call_id": "c1", "unknown": 2}
    question = {"role": "user", "content": [text], "unknown": 3}
    body = {"model": "m", "messages": [question, calling, result, question]}
    first, second, third, added, last = sent(body)["messages"]
    assert [first, last] == [question, question]
    assert second == {"role": "assistant", "content": "", "tool_calls": [CALL], "unknown": 1}
    assert (third["unknown"], third["tool_call_id"]) == (2, "c1")
    assert added["content"][1] == image
    assert sent({**body, "messages": body["messages"][:2]})["messages"][:2] == [first, second]


def test_consecutive_turns_of_one_role_stay_if_the_server_takes_them() -> None:
    image = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}}
    turns = [[{"text": "a"}], [{"text": "b"}], [image, {"text": "c"}]]
    body = {
        "contents": [
            *({"parts": parts, "role": "user"} for parts in turns),
            {"parts": [{"text": "d"}], "role": "model"},
            {"parts": [{"text": "e"}], "role": "user"},
        ]
    }
    original = json.dumps(body).encode()
    translation, _ = gemini.request_from_hub(gemini.request_to_hub(original)[0])
    kept = keep_original_form(original, translation, gemini.request_to_hub, keeps_turns=True)
    assert json.loads(kept) == body
    joined = json.loads(keep_original_form(original, translation, gemini.request_to_hub))
    assert [content["role"] for content in joined["contents"]] == ["user", "model", "user"]


def test_data_keeps_the_alphabet_of_the_client() -> None:
    """Only short texts are words with two spellings."""
    data = base64.urlsafe_b64encode(PNG + bytes(range(200, 256)) * 2).decode()
    body = {"contents": [{"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": data}}]}]}
    original = json.dumps(body).encode()
    translation, _ = gemini.request_from_hub(gemini.request_to_hub(original)[0])
    assert data.encode() not in translation
    assert json.loads(keep_original_form(original, translation, gemini.request_to_hub)) == body


def test_translation_that_only_a_profile_allows_is_kept() -> None:
    def refuse() -> bytes:
        raise InvalidValue("it is refused", param="messages")

    original = b'{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"Hi"}]}]}'
    translation = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    assert keep_original_form(original, translation, chat.request_to_hub, refuse) == translation


def test_types_and_words_of_the_translation_are_kept() -> None:
    """Servers need the type of a tool, and know only one of two words."""
    body = {
        "model": "m",
        "messages": [USER],
        "tools": [{"function": {"name": "f", "parameters": {"type": "object"}}, "unknown": 1}],
        "tool_choice": "any",
    }
    merged = sent(body)
    assert merged["tools"][0]["type"] == "function"
    assert merged["tool_choice"] == "required"


def test_long_name_that_the_server_does_not_take_is_not_kept() -> None:
    """The name of a result is mapped like the name of its call."""
    name = "n" * 100
    call = {"role": "model", "parts": [{"functionCall": {"id": "c", "name": name, "args": {}}}]}
    result = {"role": "user", "parts": [{"functionResponse": {"id": "c", "name": name, "response": {"output": "ok"}}}]}
    original = json.dumps({"contents": [{"role": "user", "parts": [{"text": "Hi"}]}, call, result]}).encode()
    translation, _ = gemini.request_from_hub(gemini.request_to_hub(original)[0])
    contents = json.loads(keep_original_form(original, translation, gemini.request_to_hub))["contents"]
    names = [contents[1]["parts"][0]["functionCall"]["name"], contents[2]["parts"][0]["functionResponse"]["name"]]
    assert names[0] == names[1]
    assert len(names[0]) <= 64


@pytest.mark.parametrize("media_type", ["video/*", "video/webm", "image/*", "application/vnd.acme+json"])
def test_media_type_of_an_address_stays_the_clients(media_type: str) -> None:
    part = {"fileData": {"fileUri": "https://a.example/a", "mimeType": media_type}}
    body = {"contents": [{"role": "user", "parts": [part]}]}
    original = json.dumps(body).encode()
    translation, _ = gemini.request_from_hub(gemini.request_to_hub(original)[0])
    assert json.loads(keep_original_form(original, translation, gemini.request_to_hub)) == body
