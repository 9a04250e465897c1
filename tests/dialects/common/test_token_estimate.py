"""Estimates of the tokens of a request, compared with the counts of real vocabularies."""

from __future__ import annotations

import base64

import msgspec
import pytest
from msgspec import Raw
from msgspec.structs import replace
from tests.counting import calls_of
from tests.hostile_schemas import object_of

from antiphon.dialects import responses
from antiphon.dialects.common.token_estimate import (
    FILE_TOKENS,
    IMAGE_TOKENS,
    MAX_VALUES,
    SAMPLE_CHARACTERS,
    SAMPLES,
    SMALL_IMAGE_TOKENS,
    VIDEO_TOKENS,
    estimate_items,
    estimate_request,
    estimate_text,
)
from antiphon.protocol import codec
from antiphon.protocol.request import Request, input_items
from antiphon.protocol.tools import FunctionToolParam, ToolList, ToolParam

# Each text with its counts in four common vocabularies, the smallest and the largest.
TEXTS = {
    "english": (
        "Hello! How can I help you today? Could you tell me what the weather is like in Paris right now?",
        23,
        23,
    ),
    "python": ("def total(items: list[int]) -> int:\n    return sum(item for item in items if item > 0)\n", 24, 27),
    "json": ('{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}', 18, 19),
    "german": (
        "Gestern waren wir in einem neuen Restaurant, dessen Spezialitäten außerordentlich köstlich waren.",
        20,
        28,
    ),
    "chinese": ("人工智能正在改变我们的生活方式,越来越多的企业开始使用大型语言模型。", 14, 32),
    "russian": ("Вчера мы с друзьями ходили в новый ресторан, и нам очень понравилось.", 18, 39),
}


def read(**fields: object) -> Request:
    request, _ = responses.request_to_hub(msgspec.json.encode({"model": "m", **fields}))
    return request


def counted(*items: object) -> int:
    """The items alone, without the overhead of each."""
    return estimate_items(input_items(read(input=list(items)))) - 4 * len(items)


def message(*parts: object) -> dict[str, object]:
    return {"type": "message", "role": "user", "content": list(parts)}


@pytest.mark.parametrize(("text", "least", "most"), TEXTS.values(), ids=TEXTS)
def test_text_estimate_is_close_to_real_vocabularies(text: str, least: int, most: int) -> None:
    assert 0.95 * least <= estimate_text(text) <= 1.3 * most


def test_empty_text_has_no_tokens_and_other_text_has_some() -> None:
    assert estimate_text("") == 0
    assert estimate_text("a") >= 1
    assert estimate_text("\ud800") >= 1


def test_long_text_is_estimated_from_samples() -> None:
    page = TEXTS["english"][0] + "\n" + TEXTS["python"][0]
    whole = estimate_text(page)
    assert 0.97 * whole * 1000 <= estimate_text(page * 1000) <= 1.03 * whole * 1000
    halves = "word " * 50_000 + "字" * 50_000
    assert 0.9 * 105_000 <= estimate_text(halves) <= 1.1 * 105_000


def test_estimate_of_many_texts_is_proportional() -> None:
    text = TEXTS["english"][0] * 10
    few, many = ([message({"type": "input_text", "text": text})] * count for count in (5, 500))
    assert 0.95 <= counted(*many) / counted(*few) / 100 <= 1.05


def test_estimate_counts_every_prompt_field() -> None:
    fields: dict[str, object] = {"input": "Hello there"}
    before = estimate_request(read(**fields))
    tool = {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
    schema = {"type": "json_schema", "name": "city", "schema": {"type": "object", "required": ["name"]}, "strict": True}
    for more in ({"instructions": "Be brief."}, {"tools": [tool]}, {"text": {"format": schema}}):
        fields |= more
        after = estimate_request(read(**fields))
        assert after > before + 3
        before = after
    settings = {"temperature": 0.5, "metadata": {"a": "b"}, "max_output_tokens": 100}
    assert estimate_request(read(**fields, **settings)) == before


def test_estimate_of_an_empty_request_is_the_overhead() -> None:
    assert estimate_request(read()) == estimate_items([]) + 3 == 3
    assert estimate_request(read(text={"format": {"type": "text"}})) == 3


def test_estimate_counts_calls_and_outputs() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": '{"city":"Paris"}'}
    output = {"type": "function_call_output", "call_id": "c", "output": "Sunny and 22 degrees"}
    assert counted(call) > 6 + 4
    assert counted(output) > 6 + 4
    assert counted({**output, "output": [{"type": "input_image", "image_url": "https://a/b.png"}]}) == 6 + IMAGE_TOKENS
    custom = {"type": "custom_tool_call", "call_id": "d", "name": "get_weather", "input": '{"city":"Paris"}'}
    assert counted(custom) == counted(call)
    assert counted({"type": "custom_tool_call_output", "call_id": "d", "output": "Sunny and 22 degrees"}) == counted(
        output
    )


def test_estimate_counts_media_by_kind_and_size() -> None:
    data = base64.b64encode(bytes(300_000)).decode()
    assert counted(message({"type": "input_image", "image_url": f"data:image/png;base64,{data}"})) == IMAGE_TOKENS
    assert (
        counted(message({"type": "input_image", "image_url": "https://a/b.png", "detail": "low"})) == SMALL_IMAGE_TOKENS
    )
    assert counted(message({"type": "input_video", "video_url": "https://a/b.mp4"})) == VIDEO_TOKENS
    assert counted(message({"type": "input_file", "file_id": "file_1"})) == FILE_TOKENS
    assert counted(message({"type": "input_file", "file_data": data})) == 10_000
    assert counted(message({"type": "input_file", "file_data": f"data:application/pdf;base64,{data}"})) == 10_000
    assert counted(message({"type": "input_file", "file_data": f"data:text/plain;base64,{data}"})) == 100_001
    assert counted(message({"type": "input_file", "file_data": f"data:image/png;base64,{data}"})) == IMAGE_TOKENS
    assert counted(message({"type": "input_file", "file_data": f"data:audio/mpeg;base64,{data}"})) == 601
    assert counted(message({"type": "input_audio", "input_audio": {"data": data, "format": "mp3"}})) == 601
    screenshot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{data}"}
    assert (
        IMAGE_TOKENS
        < counted({"type": "computer_call_output", "call_id": "c", "output": screenshot})
        < IMAGE_TOKENS + 40
    )
    assert counted({"type": "image_generation_call", "id": "ig_1", "result": data}) == IMAGE_TOKENS


def test_estimate_counts_plain_and_sealed_reasoning() -> None:
    opened = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "It is sunny."}]}
    assert counted(opened) == estimate_text("It is sunny.")
    thought = [{"type": "reasoning_text", "text": "It is very sunny today."}]
    assert counted({**opened, "content": thought}) == estimate_text("It is very sunny today.")
    assert counted({**opened, "content": thought, "encrypted_content": "x" * 600}) == estimate_text(
        "It is very sunny today."
    )
    assert counted({**opened, "encrypted_content": "x" * 600}) == 100
    assert counted({"type": "compaction", "encrypted_content": "x" * 600}) == 100


def test_estimate_ignores_items_that_no_model_reads() -> None:
    assert counted({"type": "item_reference", "id": "msg_1"}, {"type": "compaction_trigger"}) == 0


def test_estimate_counts_parts_of_every_kind() -> None:
    expected = estimate_text("I may not.")
    assert counted(message({"type": "refusal", "refusal": "I may not."})) == expected
    assert counted(message({"type": "output_text", "text": "I may not."})) == expected
    assert counted({"type": "message", "role": "user", "content": "I may not."}) == expected
    assert (
        counted(message({"type": "tool_use", "id": "t", "name": "get_weather", "input": {"city": ["Paris", 1, None]}}))
        > 8
    )
    assert counted(message({"type": "acme:part", "note": "I may not."})) > expected


def test_estimate_counts_items_and_tools_of_any_type() -> None:
    assert counted({"type": "acme:thing", "note": "It is sunny in Paris today, and warm."}) > 8
    tools = {"type": "additional_tools", "tools": [{"type": "function", "name": "get_weather"}]}
    assert counted(tools) > 4
    deep = msgspec.json.decode(b"[" * 250 + b"]" * 250)
    assert counted({"type": "acme:thing", "deep": deep}) >= 250


@pytest.mark.slow
def test_estimate_of_large_json_is_taken_from_its_text() -> None:
    """Faults: tools of many megabytes are estimated from their text, with about the same result."""
    tool = {"type": "function", "name": "f", "parameters": object_of(2000)}
    few, many = read(input="", tools=[tool] * 3), read(input="", tools=[tool] * 300)
    assert calls_of(lambda: estimate_request(many)) < 20 * MAX_VALUES
    assert 0.8 * 100 * estimate_request(few) < estimate_request(many) < 1.2 * 100 * estimate_request(few)


def test_last_piece_of_a_long_text_is_looked_at() -> None:
    """The pieces start at equal distances, the first at the start of the text and the last so that it ends with it."""
    length = SAMPLE_CHARACTERS + 600 * (SAMPLES - 1)
    blank = " " * (length - SAMPLE_CHARACTERS)
    assert estimate_text(blank + "." * SAMPLE_CHARACTERS) > estimate_text(blank + " " * SAMPLE_CHARACTERS)


def test_estimate_of_encoded_tools_follows_their_size() -> None:
    """Tools of a large request are estimated without decoding them."""
    tools: list[ToolParam] = [FunctionToolParam(name=f"f{at}", parameters=object_of(2000)) for at in range(10)]
    encoded: ToolList[ToolParam] = ToolList([FunctionToolParam(name="f0")], Raw(codec.encode(tools)))
    exact = estimate_request(Request(tools=tools))
    assert exact / 2 < estimate_request(Request(tools=encoded)) < exact * 2


def test_estimate_of_encoded_instructions_follows_their_size() -> None:
    text = "Some words of a long text. " * 1000
    encoded = replace(Request(), instructions=Raw(codec.encode(text)))
    exact = estimate_request(Request(instructions=text))
    assert exact / 2 < estimate_request(encoded) < exact * 2
