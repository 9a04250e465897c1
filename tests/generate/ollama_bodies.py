"""Generates bodies of Ollama clients, in the form in which the gateway sends them, and answers of Ollama servers."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

TEXTS: Final = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
ARGUMENTS: Final = st.dictionaries(TEXTS, st.one_of(st.integers(-9, 9), st.booleans(), st.none(), TEXTS), max_size=3)
TOOL: Final = "get_weather"  # the tool that answers call
PIXEL: Final = "iVBORw0KGgo="
SCHEMAS: Final = st.sampled_from(
    [
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ]
)
OPTIONS: Final[dict[str, st.SearchStrategy[Any]]] = {
    "temperature": st.sampled_from([0, 0.5, 1.5]),
    "top_p": st.sampled_from([0.25, 1]),
    "presence_penalty": st.just(0.5),
    "frequency_penalty": st.just(-0.5),
    "num_predict": st.integers(1, 1000),
    "num_ctx": st.integers(1, 100_000),
    "seed": st.integers(0, 99),
    "stop": st.lists(TEXTS, min_size=1, max_size=2),
    "min_p": st.just(0.05),
}


@st.composite
def bodies(draw: st.DrawFn) -> dict[str, Any]:
    """A body of `/api/chat`, with every member in the form that a server gets."""
    body: dict[str, Any] = {"model": "m", "messages": draw(_messages()), "stream": draw(st.booleans())}
    settings: dict[str, st.SearchStrategy[Any]] = {
        "tools": st.lists(_tools(), min_size=1, max_size=2, unique_by=lambda tool: str(tool["function"]["name"])),
        "format": st.one_of(st.just("json"), SCHEMAS),
        "think": st.sampled_from([True, False, "low", "high", "max"]),
        "keep_alive": st.sampled_from(["5m", 0]),
        "truncate": st.booleans(),
        "options": st.fixed_dictionaries({}, optional=OPTIONS).filter(bool),
    }
    if draw(st.booleans()):
        body |= {"logprobs": True, "top_logprobs": draw(st.integers(1, 20))}
    return {**body, **draw(st.fixed_dictionaries({}, optional=settings))}


class GeneratedAnswer(NamedTuple):
    """One answer as the lines of a stream and as a whole."""

    lines: list[dict[str, Any]]
    whole: dict[str, Any]


@st.composite
def answers(draw: st.DrawFn) -> GeneratedAnswer:
    """An answer: thinking, text and calls, in this order, which is the order of a whole answer."""
    thinking, texts = draw(st.lists(TEXTS, max_size=3)), draw(st.lists(TEXTS, max_size=3))
    calls = [
        {"id": f"call_{index}", "function": {"index": index, "name": TOOL, "arguments": arguments}}
        for index, arguments in enumerate(draw(st.lists(ARGUMENTS, max_size=2)))
    ]
    counts = {"prompt_eval_count": draw(st.integers(0, 99)), "eval_count": draw(st.integers(0, 99))}
    end = {"done": True, "done_reason": draw(st.sampled_from(["stop", "length"])), **counts}
    pieces: list[dict[str, Any]] = [
        *({"content": "", "thinking": piece} for piece in thinking),
        *({"content": piece} for piece in texts),
        *({"content": "", "tool_calls": [call]} for call in calls),
    ]
    message: dict[str, Any] = {"role": "assistant", "content": "".join(texts)}
    if thinking:
        message["thinking"] = "".join(thinking)
    if calls:
        message["tool_calls"] = calls
    lines = [{**HEAD, "message": {"role": "assistant", **piece}, "done": False} for piece in pieces]
    last = {**HEAD, "message": {"role": "assistant", "content": ""}, **end}
    return GeneratedAnswer([*lines, last], {**HEAD, "message": message, **end})


@st.composite
def _messages(draw: st.DrawFn) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": draw(TEXTS)}] if draw(st.booleans()) else []
    messages.append(draw(_users()))
    for turn in range(draw(st.integers(0, 2))):
        messages += draw(_turns(turn))
        messages.append(draw(_users()))
    return messages


@st.composite
def _users(draw: st.DrawFn) -> dict[str, Any]:
    images = {"images": [PIXEL]} if draw(st.booleans()) else {}
    return {"role": "user", "content": draw(TEXTS), **images}


@st.composite
def _turns(draw: st.DrawFn, number: int) -> list[dict[str, Any]]:
    """A message of the model, and the results of its calls."""
    calls = [
        {"id": f"c{number}_{index}", "function": {"index": index, "name": TOOL, "arguments": arguments}}
        for index, arguments in enumerate(draw(st.lists(ARGUMENTS, max_size=2)))
    ]
    message: dict[str, Any] = {"role": "assistant", "content": draw(TEXTS if not calls else st.just("") | TEXTS)}
    if draw(st.booleans()):
        message["thinking"] = draw(TEXTS)
    if calls:
        message["tool_calls"] = calls
    results = [
        {"role": "tool", "content": draw(TEXTS), "tool_name": TOOL, "tool_call_id": call["id"]} for call in calls
    ]
    return [message, *results]


@st.composite
def _tools(draw: st.DrawFn) -> dict[str, Any]:
    function: dict[str, Any] = {"name": draw(st.sampled_from(["get_weather", "look"])), "parameters": draw(SCHEMAS)}
    if draw(st.booleans()):
        function["description"] = draw(TEXTS)
    return {"type": "function", "function": function}


HEAD: Final = {"model": "m", "created_at": "2023-11-14T22:13:20Z"}
