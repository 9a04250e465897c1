"""Plays recordings in all directions and collects the findings."""

from __future__ import annotations

import asyncio
import multiprocessing
from collections.abc import Sequence
from typing import Final

from tests.recorded_traffic.checks import Checker
from tests.recorded_traffic.difference import Finding
from tests.recorded_traffic.plain import plain_answer, plain_request
from tests.recorded_traffic.play import ClientRequest, Player, UpstreamAnswer
from tests.recorded_traffic.recording import DIALECTS, Recording

from antiphon.dialects.dialect import ServerDialectName


def play_all(recordings: Sequence[Recording], processes: int = 2) -> list[Finding]:
    """All findings, in the order of the recordings within each process."""
    shares = [list(recordings[start::processes]) for start in range(processes)]
    with multiprocessing.get_context("fork").Pool(processes) as pool:
        return [finding for findings in pool.map(_play_share, shares, chunksize=1) for finding in findings]


def _play_share(recordings: list[Recording]) -> list[Finding]:
    return asyncio.run(play_recordings(recordings))


async def play_recordings(recordings: Sequence[Recording]) -> list[Finding]:
    """Plays recordings one after the other in this process."""
    player = Player()
    try:
        return [finding for recording in recordings for finding in await _play(player, recording)]
    finally:
        await player.close()


async def _play(player: Player, recording: Recording) -> list[Finding]:
    findings: list[Finding] = []
    for client in DIALECTS:
        findings += await _play_answer(player, recording, client)
    if recording.request is not None and not recording.is_error:
        for server in DIALECTS:
            if server != recording.dialect:
                findings += await _play_request(player, recording, server)
    return findings


async def _play_answer(player: Player, recording: Recording, client: ServerDialectName) -> list[Finding]:
    """The recorded answer for a client of any dialect; a client of its own dialect sends the recorded request."""
    checker = Checker(client, recording.dialect, recording.source)
    is_own = client == recording.dialect
    request = recorded_request(recording) if is_own else None
    if request is None:
        request = plain_request(client, recording.model, is_stream=recording.is_stream)
    profile = profile_of(recording)
    outcome = await player.play(request, recording.dialect, profile, _answer(recording, [recording.answer]))
    checker.check_log(outcome)
    if outcome.upstream_bodies and is_own and recording.request is not None:
        checker.check_same_request(request, outcome)
    if recording.is_error and outcome.upstream_bodies:
        checker.check_error(recording, outcome)
        return checker.findings
    if checker.check_refusal(recording, outcome):
        return checker.findings
    content = checker.check_content(recording, outcome, wants_seals=wants_seals(request))
    if is_own:
        checker.check_same_answer(recording, outcome)
    checker.check_sdk(recording, outcome, content)
    pieces = cut_at_odd_bytes(recording.answer)
    checker.check_cut(content, await player.play(request, recording.dialect, profile, _answer(recording, pieces)))
    return checker.findings


async def _play_request(player: Player, recording: Recording, server: ServerDialectName) -> list[Finding]:
    """The recorded request for a server of another dialect, which gives a plain answer."""
    checker = Checker(recording.dialect, server, recording.source)
    request = recorded_request(recording)
    assert request is not None
    answer = plain_answer(server, is_stream=recording.is_stream)
    outcome = await player.play(request, server, MAKERS[server], answer)
    checker.check_log(outcome)
    if not checker.check_refusal(recording, outcome):
        checker.check_asked(request, outcome)
    return checker.findings


def recorded_request(recording: Recording) -> ClientRequest | None:
    if recording.request is None:
        return None
    return ClientRequest(
        dialect=recording.dialect, model=recording.model, body=recording.request, is_stream=recording.is_stream
    )


def wants_seals(request: ClientRequest) -> bool:
    """Whether the client gets sealed reasoning: clients of Responses must ask for it."""
    return request.dialect != "responses" or "reasoning.encrypted_content" in (request.body.get("include") or ())


def profile_of(recording: Recording) -> str:
    """The profile for the server that gave the answer."""
    for ending, profiles in PROFILES.items():
        if recording.host.endswith(ending) and recording.dialect in profiles:
            return profiles[recording.dialect]
    return (DEFAULTS if recording.host else MAKERS)[recording.dialect]


def cut_at_odd_bytes(data: bytes) -> list[bytes]:
    """Pieces of an odd size, at most about a thousand of them."""
    size = max(7, len(data) // 1000 | 1)
    return [data[start : start + size] for start in range(0, len(data), size)]


def _answer(recording: Recording, pieces: list[bytes]) -> UpstreamAnswer:
    return UpstreamAnswer(status=recording.status, headers=recording.headers, pieces=pieces)


MAKERS: Final[dict[ServerDialectName, str]] = {
    "chat": "chat",
    "responses": "openai",
    "messages": "anthropic",
    "gemini": "google",
    "ollama": "ollama-native",
}
DEFAULTS: Final[dict[ServerDialectName, str]] = {
    "chat": "chat",
    "responses": "open-responses",
    "messages": "messages",
    "gemini": "gemini",
    "ollama": "ollama-native",
}
#: Shipped profiles, by the end of the host's name.
PROFILES: Final[dict[str, dict[ServerDialectName, str]]] = {
    "api.openai.com": {"responses": "openai"},
    "azure.com": {"responses": "azure"},
    "api.anthropic.com": {"messages": "anthropic"},
    "googleapis.com": {"gemini": "google"},
    "api.mistral.ai": {"chat": "mistral"},
    "api.deepseek.com": {"chat": "deepseek"},
    "api.groq.com": {"chat": "groq"},
    "openrouter.ai": {"chat": "openrouter"},
    "ollama.com": {"chat": "ollama"},
}
