"""A gemini client's contents as hub items."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from msgspec import UNSET, Raw
from tests.dialects.gemini.asking import ask, call, model, result, user

from antiphon.dialects.common.envelope import seal_reasoning
from antiphon.dialects.gemini import request_from_hub
from antiphon.dialects.gemini.history_in import Signature, read_signature
from antiphon.dialects.gemini.wire import GeminiWire
from antiphon.protocol.content import (
    ContentParam,
    InputFileParam,
    InputImageParam,
    InputText,
    OutputTextParam,
    ReasoningText,
    UnknownContent,
)
from antiphon.protocol.items import (
    FunctionCallOutputParam,
    FunctionCallParam,
    MessageParam,
    ReasoningParam,
    UnknownItem,
)

PNG = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}


def assistant_message(text: str) -> MessageParam:
    return MessageParam(role="assistant", content=[OutputTextParam(text=text)])


def seal(name: str) -> str:
    """An envelope of this gateway."""
    return seal_reasoning("lab", {"name": name})


def own_signature(**content: str) -> ReasoningParam:
    """The signature of a gemini server, as an item of its own."""
    return ReasoningParam(summary=[], encrypted_content=seal_reasoning("any-gemini", content))


def signed(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode()


# Messages


def test_content_without_a_role_is_a_user_message() -> None:
    items = ask({"parts": [{"text": "see"}, PNG, {"text": ""}]}).items
    image = InputImageParam(image_url="data:image/png;base64,AAAA")
    content: list[ContentParam] = [InputText(text="see"), image, InputText(text="")]
    assert items == [MessageParam(role="user", content=content)]


def test_stream_pieces_that_a_client_sends_back_are_joined() -> None:
    """The official SDK keeps every frame of a stream as a content of its own, the empty last one too."""
    asked = ask(
        user({"text": "hi"}), model({"text": "Hel"}), model({"text": "lo"}), model({"text": ""}), user({"text": "more"})
    )
    assert asked.items[1] == assistant_message("Hello")
    assert asked.lost == []


def test_system_content_is_a_system_message_in_place() -> None:
    items = ask(user({"text": "a"}), {"role": "system", "parts": [{"text": "b"}]}).items
    assert items[1] == MessageParam(role="system", content=[InputText(text="b")])


def test_content_without_parts_makes_no_item() -> None:
    assert ask({"role": "user"}, {"role": "model", "parts": None}).items == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("be good", "be good"),
        ({"parts": [{"text": "be"}, {"text": "good"}]}, "be\ngood"),
        ([{"text": "be good"}], "be good"),
        ({"role": "user"}, UNSET),
        (None, UNSET),
    ],
)
def test_instructions_are_decoded_in_any_form(given: Any, expected: Any) -> None:
    assert ask(systemInstruction=given).request.instructions == expected


def test_instructions_report_parts_other_than_text() -> None:
    """F-4."""
    asked = ask(systemInstruction={"parts": [{"text": "be good", "acme": 1}, PNG]})
    assert asked.request.instructions == "be good"
    assert asked.lost == ["systemInstruction.parts[0].acme", "systemInstruction.parts[1]"]


# Calls and results


def test_parallel_calls_and_their_results_keep_their_ids() -> None:
    """Ids distinguish two calls of one name, in any order of the results."""
    items = ask(
        user({"text": "hi"}),
        model({"text": "Let me see."}, call("look", {"x": 1}, id="b"), call("look", {"x": 2}, id="a")),
        user(result("look", {"output": "two"}, id="a"), result("look", {"output": "one"}, id="b"), {"text": "go on"}),
    ).items
    assert items[1:] == [
        assistant_message("Let me see."),
        FunctionCallParam(call_id="b", name="look", arguments='{"x":1}'),
        FunctionCallParam(call_id="a", name="look", arguments='{"x":2}'),
        FunctionCallOutputParam(call_id="a", output="two"),
        FunctionCallOutputParam(call_id="b", output="one"),
        MessageParam(role="user", content=[InputText(text="go on")]),
    ]


@pytest.mark.parametrize("word", ["skip_thought_signature_validator", "context_engineering_is_the_way_to_go"])
def test_placeholder_signature_makes_no_reasoning(word: str) -> None:
    """RSN-3: a client without a signature sends a placeholder, as text or in base64. It is not sealed reasoning."""
    for written in (word, signed(word)):
        asked = ask(
            user({"text": "hi"}),
            model({**call("a", {}, id="c"), "thoughtSignature": written}),
            user(result("a", id="c")),
        )
        assert [type(item) for item in asked.items] == [MessageParam, FunctionCallParam, FunctionCallOutputParam]
        assert asked.lost == []


def test_calls_and_results_are_accepted_under_any_role() -> None:
    """Older clients send results under the role `function`, and text before them."""
    items = ask(
        user({"text": "hi"}, call("a")),
        model(result("a", {"output": "1"})),
        {"role": "function", "parts": [{"text": "and"}, result("b")]},
    ).items
    assert [type(item) for item in items] == [
        MessageParam,
        FunctionCallParam,
        FunctionCallOutputParam,
        MessageParam,
        FunctionCallOutputParam,
    ]


def translated_result(response: Any) -> dict[str, Any]:
    return {"gemini:resultObject": response}


@pytest.mark.parametrize(
    ("response", "output", "extra"),
    [
        ({"output": "sunny"}, "sunny", {}),
        ({"result": "sunny"}, "sunny", translated_result({"result": "sunny"})),
        ({"output": {"a": 1}}, '{"output":{"a":1}}', translated_result({"output": {"a": 1}})),
        ({"output": "x", "code": 0}, '{"output":"x","code":0}', translated_result({"output": "x", "code": 0})),
        ({"result": "x", "code": 0}, '{"result":"x","code":0}', translated_result({"result": "x", "code": 0})),
        ({"error": "no such file"}, "no such file", {"is_error": True}),
        ({"error": {"code": 2}}, '{"code":2}', {**translated_result({"error": {"code": 2}}), "is_error": True}),
        ({"error": ""}, '{"error":""}', translated_result({"error": ""})),
        ({"error": "x", "code": 0}, '{"error":"x","code":0}', translated_result({"error": "x", "code": 0})),
        ({}, "{}", translated_result({})),
        (None, "", {}),
    ],
)
def test_result_is_text_and_gemini_servers_get_the_object(response: Any, output: str, extra: Any) -> None:
    """The text contains everything, so other servers lose nothing. A failed tool is marked."""
    item = ask(model(call("a", id="c")), user(result("a", response, id="c"))).items[1]
    assert isinstance(item, FunctionCallOutputParam)
    assert item.output == output
    assert {name: json.loads(bytes(raw)) for name, raw in (item.extra or {}).items()} == extra


def test_media_in_a_result_are_kept() -> None:
    """TOOL-6."""
    parts = [
        PNG,
        {"fileData": {"fileUri": "https://a.example/x.pdf"}},
        {"inlineData": {"mimeType": "audio/wav", "data": ""}},
        {},
    ]
    asked = ask(model(call("a", id="c")), user(result("a", {"output": "see"}, id="c", parts=parts)))
    assert asked.items[1] == FunctionCallOutputParam(
        call_id="c",
        output=[
            InputText(text="see"),
            InputImageParam(image_url="data:image/png;base64,AAAA"),
            InputFileParam(file_url="https://a.example/x.pdf"),
            InputText(text="[audio omitted: wav]"),
            InputText(text="[part omitted: no source]"),
        ],
        extra={
            "gemini:resultParts": Raw(
                b'[{"inlineData":{"mimeType":"image/png","data":""}},{"fileData":{"fileUri":"https://a.example/x.pdf"}},'
                b'{"inlineData":{"mimeType":"audio/wav","data":""}},{}]'
            )
        },
    )
    path = "contents[1].parts[0].functionResponse.parts"
    assert asked.lost == [f"{path}[2]", f"{path}[3]"]


# Reasoning


def test_thought_with_its_signature_is_one_item() -> None:
    """RSN-1, RSN-2: thoughts in pieces are joined, up to the signed one."""
    items = ask(
        model({"text": "h", "thought": True}, {"text": "m", "thought": True, "thoughtSignature": signed(seal("seal"))}),
        model({"text": "so", "thought": True}, {"text": "Done"}),
    ).items
    assert items == [
        ReasoningParam(summary=[], content=[ReasoningText(text="hm")], encrypted_content=seal("seal")),
        ReasoningParam(summary=[], content=[ReasoningText(text="so")], extra={"gemini:thought": Raw(b"true")}),
        assistant_message("Done"),
    ]


def test_signature_on_a_call_or_a_text_is_an_item_before_it() -> None:
    """RSN-2."""
    items = ask(
        model({"text": "one"}, {"text": "two", "thoughtSignature": signed(seal("on text"))}),
        model({**call("a", id="c"), "thoughtSignature": signed(seal("on call"))}),
    ).items
    assert items == [
        assistant_message("one"),
        ReasoningParam(summary=[], encrypted_content=seal("on text")),
        assistant_message("two"),
        ReasoningParam(summary=[], encrypted_content=seal("on call")),
        FunctionCallParam(call_id="c", name="a", arguments="{}"),
    ]


def test_signature_after_an_unsigned_thought_seals_it() -> None:
    """RSN-2: in the form in which a client of this dialect receives a thought and its seal."""
    items = ask(
        model({"text": "hm", "thought": True}, {"text": "Done", "thoughtSignature": signed(seal("seal"))})
    ).items
    assert items == [
        ReasoningParam(summary=[], content=[ReasoningText(text="hm")], encrypted_content=seal("seal")),
        assistant_message("Done"),
    ]


def test_signature_alone_on_a_part_follows_the_text() -> None:
    """RSN-2: the last part of a stream."""
    items = ask(
        model(
            {"text": "Done"},
            {"text": "", "thoughtSignature": signed(seal("seal"))},
            {"thoughtSignature": signed(seal("2"))},
        )
    ).items
    assert items == [
        assistant_message("Done"),
        ReasoningParam(summary=[], encrypted_content=seal("seal")),
        ReasoningParam(summary=[], encrypted_content=seal("2")),
    ]


def test_empty_thought_is_dropped_and_last_thought_is_kept() -> None:
    items = ask(
        model({"text": "", "thought": True}), model(call("a", id="c")), model({"text": "hm", "thought": True})
    ).items
    assert [type(item) for item in items] == [FunctionCallParam, ReasoningParam]


@pytest.mark.parametrize(
    ("signature", "expected"),
    [
        (signed(seal("ä?>")), Signature(envelope=seal("ä?>"))),
        (signed(seal("ä?>")).rstrip("="), Signature(envelope=seal("ä?>"))),
        ("skip_thought_signature_validator", Signature()),
        (signed("skip_thought_signature_validator"), Signature()),
        *((raw, Signature(raw=raw)) for raw in (signed("text"), "/w==", "no base64!", "keins: ä", "abcde")),
    ],
)
def test_signature_is_an_envelope_or_that_of_a_server(signature: str, expected: Signature) -> None:
    assert read_signature(signature) == expected


def test_signatures_of_gemini_servers_stay_on_their_parts() -> None:
    """RSN-2: in a conversation that never passed a gateway; a signature of a text is an item after it."""
    contents = [
        user({"text": "hi"}),
        model(
            {"text": "Hm.", "thought": True, "thoughtSignature": "AA=="},
            {"text": "one", "thoughtSignature": "AQ=="},
            {"text": "two", "thoughtSignature": "Ag=="},
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "Aw=="},
            {"functionCall": {"name": "a", "args": {}, "id": "c"}, "thoughtSignature": "BA=="},
        ),
        user(result("a", {"output": "1"}, id="c")),
        model({"text": "Plain.", "thought": True}, {"text": "Done"}, {"text": "", "thoughtSignature": "BQ=="}),
        user({"text": "more"}),
    ]
    asked = ask(*contents)
    assert asked.lost == []
    assert asked.items[1:7] == [
        ReasoningParam(
            summary=[],
            content=[ReasoningText(text="Hm.")],
            encrypted_content=seal_reasoning("any-gemini", {"on": "thought", "signature": "AA==", "text": "Hm."}),
        ),
        assistant_message("one"),
        own_signature(on="text", signature="AQ=="),
        assistant_message("two"),
        own_signature(on="text", signature="Ag=="),
        own_signature(on="part", signature="Aw=="),
    ]
    body, losses = request_from_hub(asked.request, GeminiWire(call_ids=True))
    assert list(losses) == []
    contents[3]["parts"][1:] = [{"text": "Done", "thoughtSignature": "BQ=="}]  # the end of a stream is joined
    assert json.loads(body)["contents"] == contents


def test_thought_with_only_a_signature_is_a_thought() -> None:
    """RSN-2: as clients send back the answer of a model that hides its thoughts."""
    thought = {"thought": True, "thoughtSignature": "AQ=="}
    asked = ask(user({"text": "hi"}), model(thought, {"text": "Done"}), user({"text": "more"}))
    body, losses = request_from_hub(asked.request)
    assert json.loads(body)["contents"][1]["parts"] == [{"text": "", **thought}, {"text": "Done"}]
    assert list(losses) == []


def test_signature_alone_after_an_unsigned_thought_does_not_sign_it() -> None:
    """RSN-2: the next text or call has the signature of a server."""
    thought = {"text": "Hm.", "thought": True}
    first, second = {"text": "", "thoughtSignature": "AQ=="}, {"thoughtSignature": "Ag=="}
    asked = ask(user({"text": "hi"}), model(thought, first, second), user({"text": "more"}))
    body, losses = request_from_hub(asked.request)
    assert json.loads(body)["contents"][1]["parts"] == [thought, first, {"text": "", **second}]
    assert list(losses) == []


def test_signature_is_returned_only_to_its_server() -> None:
    """RSN-2, RSN-3."""
    own, foreign = (
        seal_reasoning("gemini", {"on": "call", "signature": "c2ln"}),
        seal_reasoning("other", {"thinking": "x", "signature": "y"}),
    )
    asked = ask(
        user({"text": "hi"}),
        model({**call("a"), "thoughtSignature": signed(own)}),
        user(result("a", {"output": "1"})),
        model({**call("b"), "thoughtSignature": signed(foreign)}),
        user(result("b", {"output": "2"})),
    )
    body, losses = request_from_hub(asked.request)
    signatures = [part.get("thoughtSignature") for content in json.loads(body)["contents"] for part in content["parts"]]
    assert signatures == [None, "c2ln", None, None, None]
    assert [loss.path for loss in losses] == ["input[4]"]


# Content that only this dialect has


def test_native_parts_reach_gemini_servers_unchanged() -> None:
    """ITEM-5: code and its result, generated images, and future kinds of parts."""
    code = {"executableCode": {"language": "PYTHON", "code": "1+1"}}
    image = {**PNG, "mediaResolution": {"level": "LOW"}}
    odd = {"hologram": {"depth": 1}}
    asked = ask(user({"text": "hi"}), model(code, image, {"text": "see"}), user(odd, {"text": "ok"}))
    assert asked.lost == []
    assert [item.kind for item in asked.items if isinstance(item, UnknownItem)] == [
        "gemini:executableCode",
        "gemini:inlineData",
    ]
    message = asked.items[-1]
    assert isinstance(message, MessageParam)
    assert isinstance(message.content[0], UnknownContent)
    assert message.content[0].kind == "gemini:hologram"
    body, losses = request_from_hub(asked.request)
    contents = json.loads(body)["contents"]
    assert [part for content in contents for part in content["parts"]][1:] == [
        code,
        image,
        {"text": "see"},
        odd,
        {"text": "ok"},
    ]
    assert list(losses) == []


def test_media_metadata_is_kept_with_the_media() -> None:
    asked = ask(user({**PNG, "mediaResolution": {"level": "LOW"}}, {"text": "see"}))
    body, _ = request_from_hub(asked.request)
    assert json.loads(body)["contents"][0]["parts"][0] == {**PNG, "mediaResolution": {"level": "LOW"}}


def test_contents_report_unsupported_members_as_losses() -> None:
    """F-4."""
    asked = ask(
        {"role": "user", "parts": [{"text": "a", "acme": 1, "thoughtSignature": "x"}, {}], "acme": 1},
        model({}, {"text": "b", "acme": 1}, {"text": "c", "thought": True, "acme": 1}, {"videoMetadata": {"fps": 1}}),
        model({**call("a", willContinue=True), "acme": 1}),
        user(result("a", {}, scheduling="SILENT")),
    )
    assert asked.lost == [
        "contents[0].acme",
        "contents[0].parts[0].thoughtSignature",
        "contents[0].parts[0].acme",
        "contents[0].parts[1]",
        "contents[1].parts[0]",
        "contents[1].parts[1].acme",
        "contents[1].parts[2].acme",
        "contents[1].parts[3]",
        "contents[2].parts[0].acme",
        "contents[2].parts[0].functionCall.willContinue",
        "contents[3].parts[0].functionResponse.scheduling",
    ]


def ids_of(*contents: dict[str, Any]) -> list[tuple[str, str]]:
    """Calls and results with their ids."""
    collected = []
    for item in ask(*contents).items:
        match item:
            case FunctionCallParam():
                collected.append((item.name, item.call_id))
            case FunctionCallOutputParam(output=str() as output):
                collected.append((output, item.call_id))
    return collected


def test_call_ids_of_one_name_match_results_in_order() -> None:
    """The same body always has the same ids."""
    conversation = [
        model(call("look"), call("read"), call("look")),
        user(result("look", {"output": "1"}), result("look", {"output": "3"}), result("read", {"output": "2"})),
    ]
    expected = [
        ("look", "call_gemini_1"),
        ("read", "call_gemini_2"),
        ("look", "call_gemini_3"),
        ("1", "call_gemini_1"),
        ("3", "call_gemini_3"),
        ("2", "call_gemini_2"),
    ]
    assert ids_of(*conversation) == expected
    assert ids_of(*conversation, model({"text": "x"}), user({"text": "y"})) == expected


def test_call_ids_skip_numbers_that_the_client_used() -> None:
    assert ids_of(model(call("a"), call("b", id="call_gemini_1"))) == [("a", "call_gemini_2"), ("b", "call_gemini_1")]


def test_result_matches_only_calls_of_its_turn() -> None:
    """An unanswered call of an earlier turn does not match it."""
    assert ids_of(
        model(call("a"), call("b")),
        user(result("b", {"output": "first"})),
        model(call("a")),
        user(result("a", {"output": "second"})),
    ) == [
        ("a", "call_gemini_1"),
        ("b", "call_gemini_2"),
        ("first", "call_gemini_2"),
        ("a", "call_gemini_3"),
        ("second", "call_gemini_3"),
    ]


def test_calls_in_the_pieces_of_a_stream_are_one_turn() -> None:
    assert ids_of(
        model(call("a")),
        model(call("a")),
        user(result("a", {"output": "1"}), result("a", {"output": "2"})),
    ) == [("a", "call_gemini_1"), ("a", "call_gemini_2"), ("1", "call_gemini_1"), ("2", "call_gemini_2")]


def test_result_with_unknown_id_matches_by_name() -> None:
    """Clients that give ids to results alone."""
    assert ids_of(model(call("a")), user(result("a", {"output": "1"}, id="x"))) == [
        ("a", "call_gemini_1"),
        ("1", "call_gemini_1"),
    ]


def test_result_without_call_keeps_its_id_or_gets_a_new_one() -> None:
    """The dialect of the server reports that its call is missing."""
    assert ids_of(user(result("a", {"output": "1"}, id="x"), result("a", {"output": "2"}))) == [
        ("1", "x"),
        ("2", "call_gemini_1"),
    ]


def test_second_result_keeps_the_id_of_its_call() -> None:
    given = ids_of(
        model(call("a", id="x"), call("a", id="y")), user(*(result("a", {"output": "1"}, id="x") for _ in range(2)))
    )
    assert given[2:] == [("1", "x"), ("1", "x")]
