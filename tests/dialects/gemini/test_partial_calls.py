"""Calls whose arguments a gemini server streams in pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.dialects.gemini.reading import call, frame, parts, read, read_frames

from antiphon.dialects.gemini.partial_calls import PartialCall
from antiphon.dialects.gemini.response_wire import AnswerFunctionCallIn, PartialArgIn
from antiphon.protocol.losses import Losses


def start(name: str, **members: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "willContinue": True, **members}}


def piece(path: str, *, ends: bool = False, **value: Any) -> dict[str, Any]:
    more = {} if ends else {"willContinue": True}
    return {"functionCall": {"partialArgs": [{"jsonPath": path, **value}], **more}}


END: dict[str, Any] = {"functionCall": {}}


def joined(*pieces: PartialArgIn) -> tuple[Any, list[str]]:
    losses = Losses()
    arguments = PartialCall(AnswerFunctionCallIn(name="f", partial_args=[*pieces]), losses).arguments()
    return arguments, [loss.path for loss in losses]


def test_pieces_of_a_call_are_joined() -> None:
    """TOOL-1: as recorded: strings in pieces, an empty piece at the end of a string, then an empty call."""
    reading = read(
        parts({**start("get_time", id="a"), "thoughtSignature": "s"}),
        parts(piece("$.at.zone", stringValue="Europe/", willContinue=True)),
        parts(piece("$.at.zone", stringValue="Berlin", willContinue=True)),
        parts(piece("$.at.zone", stringValue="")),
        parts({"functionCall": {"willContinue": True}}),
        parts(piece("$.days[0]", numberValue=3)),
        parts(END),
        parts(start("get_time", id="b"), piece("$.zone", stringValue="UTC", ends=True)),
        parts({"text": ""}),
    )
    assert reading.summary == [
        "signed by gemini, on call: s",
        'a = get_time({"at":{"zone":"Europe/Berlin"},"days":[3]})',
        'b = get_time({"zone":"UTC"})',
        "completed",
    ]
    assert list(reading.losses) == []


@pytest.mark.parametrize("follows", [[call("get_time", {}, id="b")], [{"text": "Done"}], []])
def test_call_without_a_last_piece_ends_with_the_next_content(follows: list[dict[str, Any]]) -> None:
    reading = read(parts(start("get_time", id="a")), parts(piece("$.zone", stringValue="UTC")), parts(*follows))
    assert reading.summary[0] == 'a = get_time({"zone":"UTC"})'
    assert len(reading.summary) == 2 + len(follows)


def test_name_starts_a_new_call_unless_the_id_is_the_same() -> None:
    pieces = [start("get_time", id=id, args={"at": id}) for id in ("a", "a", "b")]
    reading = read(parts(*pieces), parts(END))
    assert reading.summary == ['a = get_time({"at":"a"})', 'b = get_time({"at":"b"})', "completed"]


def test_piece_without_a_call_is_a_loss() -> None:
    reading = read(parts(piece("$.zone", stringValue="UTC", ends=True)))
    assert reading.summary == ["completed"]
    assert [loss.what for loss in reading.losses] == ["a call without a name"]


def test_truncated_call_is_incomplete() -> None:
    """TOOL-1: an incomplete call cannot be called."""
    reading = read_frames(
        [
            frame(parts({"text": "x"}, call("get_time", {"zone": "UTC"}, id="a"))),
            frame(parts(start("get_time", id="b"))),
            frame(parts(piece("$.zone", stringValue="CE"), finishReason="MALFORMED_FUNCTION_CALL")),
        ]
    )
    assert reading.summary == [
        "x",
        'a = get_time({"zone":"UTC"})',
        'b = get_time({"zone":"CE"}) (incomplete)',
        "incomplete: malformed_function_call",
    ]


def test_values_of_every_type_are_joined() -> None:
    paths = ["$.s", "$.n", "$.b", "$['a name']", '$["it\\"s"]', "$.rows[0][0].x", "$.rows[0][1]", "$.rows[1]"]
    values = [
        {"string_value": "s"},
        {"number_value": 0.5},
        {"bool_value": False},
        {"null_value": None},
        {"null_value": "NULL_VALUE"},
        {"number_value": 1},
        {"string_value": "y"},
        {"bool_value": True},
    ]
    pieces = [PartialArgIn(json_path=path, **value) for path, value in zip(paths, values, strict=True)]  # type: ignore[arg-type]
    assert joined(*pieces) == (
        {"s": "s", "n": 0.5, "b": False, "a name": None, 'it"s': None, "rows": [[{"x": 1}, "y"], True]},
        [],
    )


def test_value_at_a_known_path_replaces_it() -> None:
    one, two = PartialArgIn(json_path="$.a[0]", string_value="1"), PartialArgIn(json_path="$.a[0]", number_value=2)
    assert joined(one, two) == ({"a": [2]}, [])
    assert joined(one, PartialArgIn(json_path="$.a[0]", will_continue=True)) == ({"a": ["1"]}, [])


@pytest.mark.parametrize(
    "path", [None, "", "$", "zone", "$.a[*]", "$..a", "$[0]", "$.a[1]", "$.s.x", "$.s[0]", "$.s.x.y", "$" + ".a" * 200]
)
def test_path_that_cannot_be_followed_is_a_loss(path: str | None) -> None:
    """Limits: no path makes a large array or deep nesting."""
    text = PartialArgIn(json_path="$.s", string_value="s")
    arguments, lost = joined(text, PartialArgIn(json_path=path, number_value=1))
    assert lost == ["functionCall.partialArgs"]
    assert json.dumps(arguments) in ('{"s": "s"}', '{"s": "s", "a": []}')


def test_name_in_two_pieces_is_one_name() -> None:
    pieces = [("get_", True), ("time", True), ("get_time", False)]
    reading = read(*[parts({"functionCall": {"id": "a", "name": name, "willContinue": more}}) for name, more in pieces])
    assert reading.summary == ["a = get_time({})", "completed"]
