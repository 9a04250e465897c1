"""A fast path for plain conversations. It writes the same contents as `history_from_hub`; a test compares the two."""

from __future__ import annotations

from msgspec import UNSET, Raw

from antiphon.dialects.common.history import NO_RESULT
from antiphon.dialects.common.plain_history import PlainCalls, plain_history
from antiphon.dialects.gemini.content_from_hub import AnyPartOut
from antiphon.dialects.gemini.tool_names import GeminiToolNames
from antiphon.dialects.gemini.wire import ContentOut, FunctionCallOut, FunctionResponseOut, GeminiWire, PartOut
from antiphon.protocol.items import ItemParam
from antiphon.protocol.nesting import JSON_WHITESPACE, decode_json


def plain_contents(items: list[ItemParam], names: GeminiToolNames, wire: GeminiWire) -> list[ContentOut] | None:
    """The contents of a plain conversation; None if it is not plain or cannot be sent unchanged."""
    turns = plain_history(items)
    if turns is None:
        return None
    done: list[ContentOut] = []
    for turn in turns:
        if type(turn) is PlainCalls:
            model_parts: list[AnyPartOut] = [PartOut(text=turn.text)] if turn.text else []
            results: list[AnyPartOut] = []
            for call, output in zip(turn.calls, turn.outputs, strict=True):
                arguments = arguments_as_json_object(call.arguments)
                if arguments is None:
                    return None
                name, id = names.wire_name(("function", call.name, None)), call.call_id if wire.call_ids else UNSET
                model_parts.append(PartOut(function_call=FunctionCallOut(name=name, args=arguments, id=id)))
                response = {"error" if output == NO_RESULT else "output": output}
                results.append(PartOut(function_response=FunctionResponseOut(name=name, response=response, id=id)))
            done.append(ContentOut(role="model", parts=model_parts))
            done.append(ContentOut(role="user", parts=results))
        elif not turn.is_user:
            done.append(ContentOut(role="model", parts=[PartOut(text=turn.text)]))
        elif done and done[-1].role == "user":  # results, which the user's text follows
            done[-1].parts.append(PartOut(text=turn.text))
        else:
            done.append(ContentOut(role="user", parts=[PartOut(text=turn.text)]))
    return done


def arguments_as_json_object(arguments: str) -> Raw | None:
    """Arguments as a JSON object; None if they are not one. Empty arguments count as `{}`."""
    arguments = arguments.strip(JSON_WHITESPACE) or "{}"
    try:
        decode_json(arguments, type=dict[str, Raw])
    except ValueError:
        return None
    return Raw(arguments.encode())
