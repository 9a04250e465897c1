"""Runs the experiments on a server, one after the other, and keeps what was found however it ends.

Whatever does not answer, or fails for a reason that may pass, is looked at twice: if the plainest request is still answered, it was
this request; if not, the server is down, and the rest is not tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.probe import (
    chat,
    chat_steps,
    extras,
    gemini,
    gemini_steps,
    messages,
    messages_steps,
    responses,
    responses_steps,
)
from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.finding import READING_INSPECTIONS, Body, Choice, Experiment, Observation, ProbeFinding, Step, text_of
from antiphon.probe.proof import make_proofs
from antiphon.probe.samples import TextForm
from antiphon.probe.target import ProbeResult, ProbeTarget, ServerConnection
from antiphon.profiles import Dialect
from antiphon.profiles.loading import load_profile
from antiphon.profiles.profile import Profile, parse_profile
from antiphon.upstream.transport import Transport

#: Tokens that an answer may have: enough for a call or a small object after some thinking; else few.
ENOUGH: Final = 300
BRIEF_TOKENS: Final = 32
USUAL_ANSWER: Final = 40
Tell = Callable[[ProbeFinding], object]
Sleep = Callable[[float], Awaitable[Any]]


class ServerUnanswered(Exception):
    """The server does not answer even the plainest request; the message says what it does instead."""


class Steps(Protocol):
    """What every dialect's module of experiments has."""

    @property
    def LIMITS(self) -> tuple[str, ...]:
        """What a limit on the answer may be called, the usual name first."""

    def minimal(self, form: TextForm) -> Body: ...

    def limited(self, body: Body, name: str, tokens: int) -> Body: ...

    def steps(self, form: TextForm) -> list[Step]: ...


class ProbeCost(Struct, frozen=True):
    """What a run will take, roughly: requests at least and at most, and tokens read and written."""

    least: int
    most: int
    tokens_in: int
    tokens_out: int


class ProbeReport(Struct, frozen=True, kw_only=True):
    """All that was found, and the profile that follows from it."""

    url: str
    dialect: Dialect
    model: str
    findings: list[ProbeFinding]
    requests: int
    #: Why the run ended before its time, if it did.
    stopped: str
    profile: str


def estimate_cost(dialect: Dialect) -> ProbeCost:
    """Told before anything is sent."""
    all_steps = STEPS[dialect].steps("parts")
    tries = [step for step in all_steps if isinstance(step, Experiment)]
    choices = [step for step in all_steps if isinstance(step, Choice)]
    least = len(tries) + len(choices) + len(STEPS[dialect].LIMITS) + AROUND
    most = least + sum(len(choice.members) for choice in choices) + AGAIN
    tokens_in = sum(len(msgspec.json.encode(step.body)) for step in all_steps) // 3
    return ProbeCost(least, most, tokens_in, len(tries) * USUAL_ANSWER)


class Probe:
    """One run. `findings` is what is known so far, at any time."""

    def __init__(self, target: ProbeTarget, transport: Transport, tell: Tell, *, sleep: Sleep = asyncio.sleep) -> None:
        self.findings: dict[str, ProbeFinding] = {}
        self.connection = ServerConnection(target, transport)
        self.stopped = ""
        self._transport = transport
        self._tell = tell
        self._sleep = sleep
        self._steps: Steps = STEPS[target.dialect]
        self._form: TextForm = "parts" if target.dialect == "responses" else "string"
        self._limit = ""
        self._least: ProbeResult | None = None

    async def run(self) -> ProbeReport:
        """Everything, to the end or to where the server goes away."""
        await self._begin()
        try:
            for step in self._steps.steps(self._form):
                await self._try(step)
            await self._look_around()
            await self._prove()
        except ServerUnanswered as gone:
            self.stopped = str(gone)
        return self.report()

    def report(self) -> ProbeReport:
        """What is known so far."""
        target = self.connection.target
        return ProbeReport(
            url=target.base_url,
            dialect=target.dialect,
            model=target.model,
            findings=list(self.findings.values()),
            requests=self.connection.count,
            stopped=self.stopped,
            profile=self._toml(),
        )

    # The plainest request

    async def _begin(self) -> None:
        """Finds a form of the plainest request that is answered: where the key goes, how text stands, how a limit is called."""
        came = await self._plainest()
        if came.verdict != "accepted":
            self._found(ProbeFinding(id="minimal", title=MINIMAL, verdict=came.verdict, said=came.message, evidence=came.evidence))
            raise ServerUnanswered(came.message)

    async def _plainest(self) -> ProbeResult:
        forms: tuple[TextForm, ...] = (self._form, "string" if self._form == "parts" else "parts")
        first: ProbeResult | None = None
        for form in forms:
            for limit in (*self._steps.LIMITS, ""):
                came = await self._ask_with_key(self._body(self._steps.minimal(form), limit))
                if came.verdict == "accepted":
                    self._keep(came, form, limit, first)
                    await self._other_limits(limit)
                    return came
                first = first or came
                if came.is_no_api or _is_missing(came):
                    return came
        assert first is not None
        return first

    async def _other_limits(self, limit: str) -> None:
        """The names of the limit that come after the one that is taken are tried as well."""
        names = self._steps.LIMITS
        for name in names[names.index(limit) + 1 :] if limit else ():
            body = self._steps.limited(self._steps.minimal(self._form), name, BRIEF_TOKENS)
            await self._try(Experiment(f"limit.{name}", f"limit {name}", body), limit="")

    def _keep(self, came: ProbeResult, form: TextForm, limit: str, first: ProbeResult | None) -> None:
        self._form, self._limit, self._least = form, limit, came
        self._found(ProbeFinding(id="minimal", title=MINIMAL, verdict="accepted", said="taken", evidence=came.evidence))
        if form != ("parts" if self.connection.target.dialect == "responses" else "string") and first is not None:
            other = "user.parts" if form == "string" else "user.string"
            self._found(ProbeFinding(id=other, title=FORMS[other], verdict="refused", said=first.message, evidence=first.evidence))
        names = self._steps.LIMITS
        for name in names[: names.index(limit)] if limit else names:
            said = first.message if first else "refused"
            self._found(
                ProbeFinding(
                    id=f"limit.{name}", title=f"limit {name}", verdict="refused", said=said, evidence=first and first.evidence
                )
            )
        if limit:
            self._found(
                ProbeFinding(id=f"limit.{limit}", title=f"limit {limit}", verdict="accepted", said="taken", evidence=came.evidence)
            )

    async def _ask_with_key(self, body: Body) -> ProbeResult:
        """A key that is refused in one header is tried in the others."""
        came = await self._patiently(body)
        target = self.connection.target
        if target.key is None or came.evidence.status not in (401, 403):
            return came
        for header in KEY_HEADERS:
            if header == target.key_header:
                continue
            self.connection.target = replace(target, key_header=header)
            again = await self._patiently(body)
            if again.evidence.status not in (401, 403):
                return again
        self.connection.target = target
        return came

    def _body(self, body: Body, limit: str | None = None, tokens: int = BRIEF_TOKENS) -> Body:
        limit = self._limit if limit is None else limit
        model = {} if self.connection.target.dialect == "gemini" else {"model": self.connection.target.model}
        return {**model, **(self._steps.limited(body, limit, tokens) if limit else body)}

    def _least_body(self) -> Body:
        return self._body(self._steps.minimal(self._form))

    # Experiments

    async def _try(self, step: Step, *, limit: str | None = None) -> None:
        if step.id in self.findings:
            return
        missing = [id for id in step.needs if id not in self.findings or self.findings[id].verdict != "accepted"]
        if missing:
            self._found(ProbeFinding(id=step.id, title=step.title, verdict="untried", said=f"needs {', '.join(missing)}"))
        elif isinstance(step, Experiment):
            self._found(await self._finding(step, limit))
        else:
            await self._choose(step)

    async def _choose(self, choice: Choice) -> None:
        """All at once, and one by one if that is refused."""
        at_once = choice.body
        for member in choice.members.values():
            at_once = _merged(at_once, member)
        came = await self._careful(self._body(at_once), streams=False, path="")
        for name, member in choice.members.items():
            id, title = f"{choice.id}.{name}", f"{choice.title} {name}"
            if came.verdict == "accepted":
                self._found(
                    ProbeFinding(id=id, title=title, verdict="accepted", said="taken, with the others", evidence=came.evidence)
                )
            else:
                self._found(await self._finding(Experiment(id, title, _merged(choice.body, member))))

    async def _finding(self, step: Experiment, limit: str | None = None) -> ProbeFinding:
        body = self._body(step.body, "" if step.path else limit, ENOUGH if step.look in READING_INSPECTIONS else BRIEF_TOKENS)
        came = await self._careful(body, streams=step.streams, path=step.path)
        verdict, said = came.verdict, came.message
        if came.response is not None and step.look is not None:
            effect, said = step.look(self._seen(came))
            verdict = "accepted" if effect else "ignored"
        return ProbeFinding(id=step.id, title=step.title, verdict=verdict, said=said, evidence=came.evidence)

    def _seen(self, came: ProbeResult) -> Observation:
        assert came.response is not None
        assert self._least is not None
        assert self._least.response is not None
        least = self._least.response
        tokens = least.usage.input_tokens if least.usage is not None else None
        return Observation(response=came.response, least_tokens=tokens, least_text=text_of(least))

    async def _careful(self, body: Body, *, streams: bool, path: str) -> ProbeResult:
        """A verdict about this request, and not about the moment. Raises `ServerUnanswered` where the server is gone."""
        came = await self._patiently(body, streams=streams, path=path)
        if came.verdict != "down":
            return came
        least = await self._patiently(self._least_body())
        if least.verdict == "down":
            raise ServerUnanswered(f"after {self.connection.count} requests the server is gone: {least.message}")
        if came.timed_out:
            return came._replace(message=f"{came.message}, though it answers others")
        again = await self._patiently(body, streams=streams, path=path)
        if again.verdict == "down" and again.evidence.status is not None and again.evidence.status not in WAITING:
            return again._replace(verdict="refused", message=f"{again.message} (twice, though it answers others)")
        return again

    async def _patiently(self, body: Body, *, streams: bool = False, path: str = "") -> ProbeResult:
        """Once more where the server says when."""
        came = await self.connection.ask(body, streams=streams, path=path)
        if came.evidence.status in WAITING and 0 < came.retry_after <= LONGEST_WAIT:
            await self._sleep(came.retry_after)
            came = await self.connection.ask(body, streams=streams, path=path)
        return came

    async def _look_around(self) -> None:
        least = self._least_body()

        async def ask(body: Body) -> ProbeResult:
            return await self._careful(body, streams=False, path="")

        assert self._least is not None
        self._found(extras.usage(self._least))
        self._found(await extras.wrong_request(ask, least))
        if "model" in least:  # else it stands in the address
            self._found(await extras.wrong_model(ask, least))
        if self.connection.target.dialect == "responses":
            self._found(await extras.stream_order(self.connection, least))
            self._found(await extras.state(ask, least))
            self._found(await extras.websocket(self.connection, self._transport))

    # The profile

    async def _prove(self) -> None:
        """What the gateway would send with the profile that follows."""
        profile = self.profile()
        for id, title, body, streams in make_proofs(profile, self.connection.target.model):
            came = await self._careful(body, streams=streams, path="")
            self._found(ProbeFinding(id=id, title=title, verdict=came.verdict, said=came.message, evidence=came.evidence))

    def draft(self) -> ProfileDraft:
        target = self.connection.target
        draft = CONCLUSIONS[target.dialect](Verdicts(self.findings.values(), self._form))
        if target.key is not None and target.key_header != target.base.key_header:
            draft.key_header = target.key_header
        return draft

    def profile(self) -> Profile:
        return parse_profile(self._toml(), "probed", find_parent=load_profile)

    def _toml(self) -> str:
        target = self.connection.target
        refused = sum(finding.verdict in ("refused", "ignored") for finding in self.findings.values())
        about = f"{target.base_url}, model {target.model}; facts from {self.connection.count} requests of `antiphon probe`"
        cut = f", which ended before its time: {self.stopped}" if self.stopped else f"; {refused} things refused or without effect"
        return self.draft().toml(f"{about}{cut}.", self.findings.values())

    def _found(self, finding: ProbeFinding) -> None:
        self.findings[finding.id] = finding
        self._tell(finding)


def _is_missing(came: ProbeResult) -> bool:
    """Nothing is there: neither another form nor another limit will help."""
    return came.evidence.status in (403, 404, 405)


def _merged(one: Body, other: Body) -> Body:
    both = {name: {**one[name], **other[name]} for name in one if name in other and isinstance(one[name], dict)}
    return {**one, **other, **both}


STEPS: Final[dict[Dialect, Steps]] = {
    "responses": responses_steps,
    "chat": chat_steps,
    "messages": messages_steps,
    "gemini": gemini_steps,
}
CONCLUSIONS: Final[dict[Dialect, Callable[[Verdicts], ProfileDraft]]] = {
    "responses": responses.conclude,
    "chat": chat.conclude,
    "messages": messages.conclude,
    "gemini": gemini.conclude,
}
FORMS: Final = {"user.parts": "user's text as parts", "user.string": "user's text as a string"}
MINIMAL: Final = "plainest message of a user"
KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
#: Statuses that mean: later.
WAITING: Final = frozenset({408, 425, 429, 503, 529})
LONGEST_WAIT: Final = 30.0
#: Requests about usage, errors and state, and those that prove the profile.
AROUND: Final = 12
#: Some are looked at twice.
AGAIN: Final = 20
