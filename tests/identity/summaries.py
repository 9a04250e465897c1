"""The exception of the law for clients that ask for `reasoning.summary` (RSN-4): open reasoning of an item without a
summary arrives as its summary, and such a summary reaches the server as content. All other members stay as they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tests.identity.source import Case


def with_summaries(case: Case) -> Case:
    """What must arrive: the same case, unless the client asks for summaries."""
    if not (case.request.get("reasoning") or {}).get("summary"):
        return case
    input = case.request["input"]
    items = [_input_item(item) for item in input] if isinstance(input, list) else input
    is_stream = "type" in case.answer[0]
    answer = list(_events(case.answer)) if is_stream else [_response(response) for response in case.answer]
    return Case({**case.request, "input": items}, answer)


def _input_item(item: dict[str, Any]) -> dict[str, Any]:
    is_open = item.get("type") == "reasoning" and not item.get("content") and not item.get("encrypted_content")
    if not is_open or not item["summary"]:
        return item
    content = [{**part, "type": "reasoning_text"} for part in item["summary"]]
    return {**item, "summary": [], "content": content}


def _has_open_reasoning(item: dict[str, Any]) -> bool:
    return bool(item["type"] == "reasoning" and item.get("content") and not item["summary"])


def _output_item(item: dict[str, Any]) -> dict[str, Any]:
    if not _has_open_reasoning(item):
        return item
    rest = {name: value for name, value in item.items() if name != "content"}
    return {**rest, "summary": [_summary_part(part) for part in item["content"]]}


def _response(response: dict[str, Any]) -> dict[str, Any]:
    return {**response, "output": [_output_item(item) for item in response["output"]]}


def _summary_part(part: dict[str, Any]) -> dict[str, Any]:
    return {**part, "type": "summary_text"}


def _events(events: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    items = (event["item"] for event in events if event["type"] == "response.output_item.done")
    ids = {item["id"] for item in items if _has_open_reasoning(item)}
    for event in events:
        if event["type"] == "response.output_item.done":
            yield {**event, "item": _output_item(event["item"])}
        elif "response" in event:
            yield {**event, "response": _response(event["response"])}
        elif event.get("item_id") in ids and event["type"] in SUMMARY_EVENTS:
            yield _summary_event(event)
        else:
            yield event


def _summary_event(event: dict[str, Any]) -> dict[str, Any]:
    members = {("summary_index" if name == "content_index" else name): value for name, value in event.items()}
    if "part" in event:
        members["part"] = _summary_part(event["part"])
    return {**members, "type": SUMMARY_EVENTS[event["type"]]}


SUMMARY_EVENTS: Final = {
    "response.content_part.added": "response.reasoning_summary_part.added",
    "response.reasoning_text.delta": "response.reasoning_summary_text.delta",
    "response.reasoning_text.done": "response.reasoning_summary_text.done",
    "response.content_part.done": "response.reasoning_summary_part.done",
}
