"""Compares a recording with what its client and its upstream received."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from tests.recorded_traffic.answers import (
    FOLDS,
    WHOLE_READERS,
    Answer,
    answer_events,
    opened_seals,
    read_answer,
)
from tests.recorded_traffic.difference import Check, Difference, Finding
from tests.recorded_traffic.exchanges import EVENT_STREAM, JSON, JSON_LINES
from tests.recorded_traffic.json_diff import Delta, compare_json
from tests.recorded_traffic.play import ClientRequest, Outcome
from tests.recorded_traffic.recording import Recording
from tests.recorded_traffic.requests import Facts, read_request
from tests.recorded_traffic.sdks import SdkError, accumulate

from antiphon.dialects.common.message_separator import BLANK_LINE
from antiphon.dialects.dialect import ServerDialectName
from antiphon.protocol.losses import Loss


class Checker:
    """Collects the findings of one play: a client of one dialect, a server of another or of the same."""

    def __init__(self, client: ServerDialectName, server: ServerDialectName, source: str) -> None:
        self.client = client
        self.server = server
        self.findings: list[Finding] = []
        self._source = source

    def add(self, check: Check, path: str, change: str, detail: str = "") -> None:
        difference = Difference(check=check, client=self.client, server=self.server, path=path, change=change)
        self.findings.append(Finding(difference=difference, detail=detail[:200], source=self._source))

    def add_deltas(self, check: Check, deltas: list[Delta]) -> None:
        for delta in deltas:
            self.add(check, delta.path, delta.change, delta.detail)

    # Any outcome

    def check_log(self, outcome: Outcome) -> None:
        """No exception, and no violation of the grammar of events."""
        for event in outcome.events:
            self.add("grammar", str(event.get("row", "exception")), "added", str(event.get("message", event))[-200:])

    def check_refusal(self, recording: Recording, outcome: Outcome) -> bool:
        """Whether the answer is an error. Only an error of the server itself is expected."""
        if outcome.status < 400:
            return False
        body = json.loads(outcome.body)
        error = body["error"] if isinstance(body.get("error"), dict) else {}
        expected = read_answer(recording.dialect, recording.answer).error if outcome.upstream_bodies else ""
        message = _message_in(body)
        if expected and expected in message:
            return True  # an error before the first output of a stream is an answer with an error status
        code = error.get("code") or error.get("type") or ""
        self.add("refused", f"{outcome.status} {code}", "added", message)
        return True

    # Requests

    def check_same_request(self, request: ClientRequest, outcome: Outcome) -> None:
        """Client and server of one dialect: the body is the same JSON."""
        deltas = compare_json(request.body, outcome.upstream_json)
        self.add_deltas("request", deltas)
        if deltas:
            self._check_facts(request, outcome)

    def check_asked(self, request: ClientRequest, outcome: Outcome) -> None:
        """A server of another dialect is asked the same, or the losses say what is missing."""
        before, after = self._check_facts(request, outcome)
        if set(before.get("seals", ())) & set(after.get("seals", ())):
            self.add("asked", "seals", "sent", "reasoning that another maker sealed")

    def _check_facts(self, request: ClientRequest, outcome: Outcome) -> tuple[Facts, Facts]:
        upstream = outcome.upstream_json
        assert upstream is not None
        before, after = read_request(self.client, request.body), read_request(self.server, upstream)
        for path, change, detail in _compare_facts(before, after):
            if change == "added" or not _is_reported(path, outcome.losses):
                self.add("asked", path, change, detail)
        return before, after

    # Answers

    def check_same_answer(self, recording: Recording, outcome: Outcome) -> None:
        """Client and server of one dialect: the answer is the same JSON, event by event."""
        if not recording.is_stream:
            self.add_deltas("answer", compare_json(json.loads(recording.answer), json.loads(outcome.body)))
            return
        before, after = _events(recording.answer), _events(outcome.body)
        self.add_deltas("events", _compare_events(before, after))
        try:
            expected = _accumulate(recording.dialect, recording.answer, is_stream=True)
        except SdkError:
            return  # the SDK cannot read the server itself
        try:
            deltas = compare_json(expected, _accumulate(self.client, outcome.body, is_stream=True))
        except SdkError as error:
            self.add("sdk", str(error).partition(":")[0], "error", str(error))
            return
        self.add_deltas("accumulated", [delta._replace(path=_answer_path(delta.path)) for delta in deltas])

    def check_content(self, recording: Recording, outcome: Outcome, *, wants_seals: bool = True) -> Answer:
        """The client receives the text, the reasoning, the calls, the finish and the usage of the server. A Responses
        client that did not ask for seals gets none (RSN-2)."""
        before = read_answer(recording.dialect, recording.answer)
        after = read_answer(self.client, outcome.body)
        if before.error or before.finish == "None":  # an error, or a stream that broke off
            if not after.error or before.error not in after.error:
                self.add("error", "message", "changed", f"{before.error} → {after.error}")
            return after
        self._check_text("text", before.text + before.refusal, after.text + after.refusal)
        self._check_text("reasoning", _squeeze(before.reasoning), _squeeze(after.reasoning))
        if wants_seals:
            self._check_seals(before, after, outcome.losses)
        self._check_calls(before, after)
        if before.finish != after.finish and not self._is_reported("answer.finish", outcome.losses):
            self.add("finish", before.finish, after.finish)
        self._check_usage(before, after)
        if self.client != self.server and not outcome.losses:
            for kind in dict.fromkeys(before.others):
                if not any(other.endswith(kind) for other in after.others):
                    self.add("losses", kind, "missing")
        return after

    def check_sdk(self, recording: Recording, outcome: Outcome, content: Answer) -> None:
        """The SDK of the client has the same content as the bytes."""
        if content.error:
            return
        try:
            whole = _accumulate(self.client, outcome.body, is_stream=recording.is_stream)
        except SdkError as error:
            if not self._fails_on_recording(recording):
                self.add("sdk", str(error).partition(":")[0], "error", str(error))
            return
        read = self._read_whole(whole)
        read_from_server = self._sdk_reading(recording)
        for name in ("text", "refusal", "reasoning", "calls", "finish", "usage"):
            before, after = getattr(content, name), getattr(read, name)
            if read_from_server is not None and after == getattr(read_from_server, name):
                continue  # the SDK reads the server's own bytes so too
            if name == "calls" and not any(call.id for call in after):  # the SDK of Ollama leaves ids out
                before, after = [call[1:] for call in before], [call[1:] for call in after]
            if before != after:
                self.add("sdk", name, "changed", f"{before!r:.60} → {after!r:.60}")

    def check_cut(self, content: Answer, cut: Outcome) -> None:
        """An answer in small pieces gives the same content."""
        other = read_answer(self.client, cut.body)
        for name in ("text", "refusal", "reasoning", "seals", "calls", "finish", "usage", "error"):
            before, after = getattr(content, name), getattr(other, name)
            if name == "calls":
                before, after = [call[1:] for call in before], [call[1:] for call in after]
            if before != after:
                self.add("cut", name, "changed", f"{before!r:.60} → {after!r:.60}")

    def check_error(self, recording: Recording, outcome: Outcome) -> None:
        """An error of the server keeps its status and its message; in its own dialect it is the same JSON."""
        if b"the upstream refused the gateway's credentials" in outcome.body:
            self.add("error", "credentials", "replaced", f"{recording.status} → {outcome.status}")
            return
        if outcome.status != recording.status:
            self.add("error", "status", f"{recording.status} → {outcome.status}")
        after = json.loads(outcome.body)
        if self.client == self.server:
            self.add_deltas("error", compare_json(json.loads(recording.answer), after, "body"))
        message = _message_in(json.loads(recording.answer))
        if message and message not in _message_in(after):
            self.add("error", "message", "changed", f"{message} → {after}")

    def _read_whole(self, whole: dict[str, Any]) -> Answer:
        return WHOLE_READERS[self.client](FOLDS[self.client](whole["chunks"]) if "chunks" in whole else whole)

    def _sdk_reading(self, recording: Recording) -> Answer | None:
        """What the SDK reads in the recording itself; None if it is of another dialect."""
        if self.client != recording.dialect or self._fails_on_recording(recording):
            return None
        return self._read_whole(_accumulate(recording.dialect, recording.answer, is_stream=recording.is_stream))

    def _fails_on_recording(self, recording: Recording) -> bool:
        if self.client != recording.dialect:
            return False
        try:
            _accumulate(recording.dialect, recording.answer, is_stream=recording.is_stream)
        except SdkError:
            return True
        return False

    def _check_text(self, check: Check, before: str, after: str) -> None:
        if before == after or (self.client != self.server and _is_separated(before, after)):
            return
        if not after:
            self.add(check, check, "missing", before[:60])
        elif _squeeze(before) == _squeeze(after):
            self.add(check, check, "whitespace", f"{before[:40]!r} → {after[:40]!r}")
        elif before in after:
            self.add(check, check, "added", after.replace(before, "…", 1)[:100])
        else:
            self.add(check, check, "changed", _first_change(before, after))

    def _is_reported(self, path: str, losses: list[Loss]) -> bool:
        """Whether the loss of content is reported. Within one dialect nothing may be lost."""
        return self.client != self.server and _is_reported(path, losses)

    def _check_seals(self, before: Answer, after: Answer, losses: list[Loss]) -> None:
        arrived = opened_seals(after.seals)
        missing = [seal for seal in before.seals if seal not in arrived]
        if missing and not self._is_reported("answer.seals", losses):
            self.add("seals", "seals", "missing", f"{len(missing)} of {len(before.seals)}")
        elif self.client == self.server and before.seals != after.seals:
            self.add("answer", "seals", "sealed", f"{len(before.seals)} → {len(after.seals)}")

    def _check_calls(self, before: Answer, after: Answer) -> None:
        if len(before.calls) != len(after.calls):
            self.add("calls", "calls", "length", f"{len(before.calls)} → {len(after.calls)}")
            return
        for old, new in zip(before.calls, after.calls, strict=True):
            if old.id and old.id != new.id:
                self.add("calls", "id", "changed", f"{old.id} → {new.id}")
            if old.name != new.name:
                self.add("calls", "name", "changed", f"{old.name} → {new.name}")
            if new.arguments not in (old.arguments, *_wrapped(old.arguments)):
                self.add("calls", "arguments", "changed", f"{old.arguments!r:.80} → {new.arguments!r:.80}")

    def _check_usage(self, before: Answer, after: Answer) -> None:
        if before.usage is None or after.usage is None:
            if before.usage != after.usage:
                self.add("usage", "usage", "missing" if before.usage else "added", f"{before.usage or after.usage}")
            return
        for name in before.usage._fields:
            if (old := getattr(before.usage, name)) != (new := getattr(after.usage, name)):
                self.add("usage", name, "changed", f"{old} → {new}")


def _wrapped(arguments: Any) -> list[Any]:
    """Text as arguments: the input of a custom tool, or JSON that is not complete. Some dialects have only objects."""
    return [{"input": arguments}, {"arguments": arguments}] if isinstance(arguments, str) else []


def _events(body: bytes) -> list[dict[str, Any]]:
    events = answer_events(body)
    if events is not None:
        return events
    value = json.loads(body)
    return value if isinstance(value, list) else [value]


def _compare_events(before: list[dict[str, Any]], after: list[dict[str, Any]]) -> list[Delta]:
    """Compares the events of each type in their order. If the numbers differ, only the numbers are compared."""
    deltas: list[Delta] = []
    by_type = [_by_type(before), _by_type(after)]
    for kind in dict.fromkeys([*by_type[0], *by_type[1]]):
        old, new = by_type[0].get(kind, []), by_type[1].get(kind, [])
        if len(old) != len(new):
            deltas.append(Delta(kind, "missing" if len(new) < len(old) else "added", f"{len(old)} → {len(new)}"))
        else:
            deltas += compare_json(old, new, kind)
    paths = {(delta := each._replace(path=_answer_path(each.path)))[:2]: delta for each in deltas}
    return list(paths.values())


def _answer_path(path: str) -> str:
    """The path of a value in the whole answer, if an event carries a part of the answer."""
    for pattern, replacement in EVENT_PATHS:
        path = pattern.sub(replacement, path)
    return path


def _by_type(events: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    grouped: dict[str, list[dict[str, Any]]] = {}
    for event in events:
        grouped.setdefault(str(event.get("type", "chunk")), []).append(event)
    return grouped


def _accumulate(dialect: ServerDialectName, body: bytes, *, is_stream: bool) -> dict[str, Any]:
    content_type = JSON if not is_stream else JSON_LINES if dialect == "ollama" else EVENT_STREAM
    return accumulate(dialect, body, content_type, is_stream=is_stream)


def _compare_facts(before: Facts, after: Facts) -> Iterator[tuple[str, str, str]]:
    """The facts that a server of another dialect does not get, and the settings that it gets in addition."""
    everything = _squeeze("".join(str(text) for path in after for text in after[path] if path in TEXTS))
    for path, values in before.items():
        if path in TEXTS:
            lost = [value for value in values if _squeeze(str(value)) not in everything]
            if lost:
                yield path, "missing", repr(lost[0])[:80]
        elif path == "media":
            if len(after.get(path, ())) < len(values):
                yield path, "missing", f"{len(values)} → {len(after.get(path, ()))}"
        elif path not in after:
            yield path, "missing", repr(values[0])[:60]
        elif path not in PRESENCE and values != after[path]:
            yield path, "changed", f"{values!r:.60} → {after[path]!r:.60}"
    for path in after:
        if path.startswith("settings.") and path not in before:
            yield path, "added", repr(after[path][0])[:60]


def _is_reported(path: str, losses: list[Loss]) -> bool:
    words = REPORTED_AS.get(path, (path.removeprefix("settings.").replace("_", ""),))
    return any(word in loss.path.replace("_", "").lower() for loss in losses for word in words)


def _message_in(body: Any) -> str:
    match body:
        case {"error": {"message": str() as message}} | {"message": str() as message} | {"error": str() as message}:
            return message
        case [first, *_]:
            return _message_in(first)
        case _:
            return ""


def _is_separated(before: str, after: str) -> bool:
    """Whether only blank lines were added: they separate the messages of one answer (`MessageSeparator`)."""
    return len(before) < len(after) and before.replace(BLANK_LINE, "") == after.replace(BLANK_LINE, "")


def _squeeze(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _first_change(before: str, after: str) -> str:
    pairs = enumerate(zip(before, after, strict=False))
    at = next((index for index, (old, new) in pairs if old != new), min(len(before), len(after)))
    return f"at {at}: {before[at : at + 40]!r} → {after[at : at + 40]!r}"


EVENT_PATHS: Final = [
    (re.compile(r"^response\.(created|queued|in_progress|completed|incomplete|failed)\[\]\.response\."), ""),
    (re.compile(r"^response\.output_item\.(added|done)\[\]\.item\b"), "output[]"),
    (re.compile(r"^chunk\[\]\.choices\[\]\.delta\b"), "choices[].message"),
    (re.compile(r"^message_start\[\]\.message\."), ""),
    (re.compile(r"^message_delta\[\]\.(delta\.)?"), ""),
    (re.compile(r"^content_block_start\[\]\.content_block\b"), "content[]"),
    (re.compile(r"^chunks?\[\]\."), ""),
]
TEXTS: Final = frozenset({"text.system", "text.user", "text.assistant", "text.reasoning", "results"})
#: Facts whose values have another form in each dialect.
PRESENCE: Final = frozenset({"settings.effort", "seals", "hosted_tools", "items"})
#: Words of the paths at which the loss of a fact may be reported.
REPORTED_AS: Final[dict[str, tuple[str, ...]]] = {
    "text.system": ("instructions", "input["),
    "text.user": ("input[",),
    "text.assistant": ("input[",),
    "text.reasoning": ("input[", "messages[", "contents["),
    "seals": ("input[", "messages[", "contents["),
    "answer.seals": ("encryptedcontent", "signature"),
    "answer.finish": ("incompletedetails",),
    "results": ("input[",),
    "calls": ("input[",),
    "media": ("input[", "content"),
    "items": ("input[", "messages[", "contents["),
    "tools": ("tools",),
    "hosted_tools": ("tools",),
    "settings.max_tokens": ("maxoutputtokens", "maxtokens"),
    "settings.effort": ("reasoning", "thinking"),
    "settings.schema": ("text", "format"),
    "settings.tool_choice": ("toolchoice", "toolconfig", "tools"),
}
