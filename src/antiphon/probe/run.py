"""Run the experiments on a server, one after the other, and keep the findings even if the run ends early.

After a timeout or a temporary failure, the minimal request is sent. If it is answered, the experiment's own request
failed; if not, the server is down and the remaining experiments are skipped.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from antiphon.dialects.dialect import ServerDialectName
from antiphon.probe import extras
from antiphon.probe.draft import ProfileDraft, Verdicts
from antiphon.probe.experiments import EXPERIMENTS
from antiphon.probe.finding import (
    READING_INSPECTIONS,
    Body,
    Choice,
    Experiment,
    Observation,
    ProbeFinding,
    Step,
    text_of,
)
from antiphon.probe.proof import make_proofs
from antiphon.probe.samples import TextForm
from antiphon.probe.target import ProbeResult, ProbeTarget, ServerConnection
from antiphon.profiles.loading import load_profile
from antiphon.profiles.profile import Profile, parse_profile
from antiphon.upstream.transport import Transport

#: Token limits of an answer: `READING_TOKENS` if the answer is inspected (a call or a small object after some
#: reasoning), else `BRIEF_TOKENS`.
READING_TOKENS: Final = 300
BRIEF_TOKENS: Final = 32
USUAL_ANSWER_TOKENS: Final = 40
OnFinding = Callable[[ProbeFinding], object]
Sleep = Callable[[float], Awaitable[Any]]


class ServerUnanswered(Exception):
    """The server does not answer the minimal request; the message describes its answer."""


class ProbeCost(Struct, frozen=True):
    """The estimated cost of a run: the least and the most requests, and input and output tokens."""

    least: int
    most: int
    tokens_in: int
    tokens_out: int


class ProbeReport(Struct, frozen=True, kw_only=True):
    """All findings, and the profile derived from them."""

    url: str
    dialect: ServerDialectName
    model: str
    findings: list[ProbeFinding]
    requests: int
    #: Why the run ended early; empty if it did not.
    stopped: str
    profile: str


def estimate_cost(dialect: ServerDialectName) -> ProbeCost:
    """Estimate the cost of a run before anything is sent."""
    all_steps = EXPERIMENTS[dialect].steps.steps("parts")
    tries = [step for step in all_steps if isinstance(step, Experiment)]
    choices = [step for step in all_steps if isinstance(step, Choice)]
    least = len(tries) + len(choices) + len(EXPERIMENTS[dialect].steps.LIMITS) + EXTRA_REQUESTS
    most = least + sum(len(choice.members) for choice in choices) + REPEATED_REQUESTS
    tokens_in = sum(len(msgspec.json.encode(step.body)) for step in all_steps) // 3
    return ProbeCost(least, most, tokens_in, len(tries) * USUAL_ANSWER_TOKENS)


class Probe:
    """One run. `findings` holds the findings so far."""

    def __init__(
        self, target: ProbeTarget, transport: Transport, on_finding: OnFinding, *, sleep: Sleep = asyncio.sleep
    ) -> None:
        self.findings: dict[str, ProbeFinding] = {}
        self.connection = ServerConnection(target, transport)
        self.stopped = ""
        self._transport = transport
        self._on_finding = on_finding
        self._sleep = sleep
        self._experiments = EXPERIMENTS[target.dialect]
        self._steps = self._experiments.steps
        self._form = self._experiments.text_form
        self._limit = ""
        self._baseline: ProbeResult | None = None

    async def run(self) -> ProbeReport:
        """Run all experiments, until the end or until the server stops answering."""
        await self._establish_baseline()
        try:
            for step in self._steps.steps(self._form):
                await self._try(step)
            await self._run_extras()
            await self._run_proofs()
        except ServerUnanswered as gone:
            self.stopped = str(gone)
        return self.report()

    def report(self) -> ProbeReport:
        """Return the report of the findings so far."""
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

    # The minimal request

    async def _establish_baseline(self) -> None:
        """Find a form of the minimal request that is answered: the key's header, the form of text, the limit's name."""
        result = await self._find_minimal_form()
        if result.verdict != "accepted":
            self._record(
                ProbeFinding(
                    id="minimal", title=MINIMAL, verdict=result.verdict, detail=result.message, evidence=result.evidence
                )
            )
            raise ServerUnanswered(result.message)

    async def _find_minimal_form(self) -> ProbeResult:
        forms: tuple[TextForm, ...] = (self._form, "string" if self._form == "parts" else "parts")
        first: ProbeResult | None = None
        for form in forms:
            for limit in (*self._steps.LIMITS, ""):
                result = await self._ask_with_key(self._body(self._steps.minimal(form), limit))
                if result.verdict == "accepted":
                    self._record_minimal(result, form, limit, first)
                    await self._other_limits(limit)
                    return result
                first = first or result
                if result.is_no_api or _is_missing(result):
                    return result
        assert first is not None
        return first

    async def _other_limits(self, limit: str) -> None:
        """Try the limit names after the accepted one as well."""
        names = self._steps.LIMITS
        for name in names[names.index(limit) + 1 :] if limit else ():
            body = self._steps.limited(self._steps.minimal(self._form), name, BRIEF_TOKENS)
            await self._try(Experiment(f"limit.{name}", f"limit {name}", body), limit="")

    def _record_minimal(self, result: ProbeResult, form: TextForm, limit: str, first: ProbeResult | None) -> None:
        self._form, self._limit, self._baseline = form, limit, result
        self._record(
            ProbeFinding(id="minimal", title=MINIMAL, verdict="accepted", detail="answered", evidence=result.evidence)
        )
        if form != self._experiments.text_form and first is not None:
            other = "user.parts" if form == "string" else "user.string"
            self._record(
                ProbeFinding(
                    id=other, title=FORMS[other], verdict="refused", detail=first.message, evidence=first.evidence
                )
            )
        names = self._steps.LIMITS
        for name in names[: names.index(limit)] if limit else names:
            detail = first.message if first else "refused"
            self._record(
                ProbeFinding(
                    id=f"limit.{name}",
                    title=f"limit {name}",
                    verdict="refused",
                    detail=detail,
                    evidence=first and first.evidence,
                )
            )
        if limit:
            self._record(
                ProbeFinding(
                    id=f"limit.{limit}",
                    title=f"limit {limit}",
                    verdict="accepted",
                    detail="answered",
                    evidence=result.evidence,
                )
            )

    async def _ask_with_key(self, body: Body) -> ProbeResult:
        """Send a body; if the key is refused in one header, try the other headers."""
        result = await self._send_with_retry(body)
        target = self.connection.target
        if target.key is None or result.evidence.status not in (401, 403):
            return result
        for header in KEY_HEADERS:
            if header == target.key_header:
                continue
            self.connection.target = replace(target, key_header=header)
            again = await self._send_with_retry(body)
            if again.evidence.status not in (401, 403):
                return again
        self.connection.target = target
        return result

    def _body(self, body: Body, limit: str | None = None, tokens: int = BRIEF_TOKENS) -> Body:
        limit = self._limit if limit is None else limit
        return {**self.connection.target.model_field, **(self._steps.limited(body, limit, tokens) if limit else body)}

    def _baseline_body(self) -> Body:
        return self._body(self._steps.minimal(self._form))

    # Experiments

    async def _try(self, step: Step, *, limit: str | None = None) -> None:
        if step.id in self.findings:
            return
        missing = [id for id in step.needs if id not in self.findings or self.findings[id].verdict != "accepted"]
        if missing:
            self._record(
                ProbeFinding(id=step.id, title=step.title, verdict="untried", detail=f"requires {', '.join(missing)}")
            )
        elif isinstance(step, Experiment):
            self._record(await self._finding(step, limit))
        else:
            await self._choose(step)

    async def _choose(self, choice: Choice) -> None:
        """Try all members in one request, then one by one if that request is refused."""
        at_once = choice.body
        for member in choice.members.values():
            at_once = _merge_bodies(at_once, member)
        result = await self._send_and_recheck(self._body(at_once), streams=False, path="")
        for name, member in choice.members.items():
            id, title = f"{choice.id}.{name}", f"{choice.title} {name}"
            if result.verdict == "accepted":
                self._record(
                    ProbeFinding(
                        id=id,
                        title=title,
                        verdict="accepted",
                        detail="answered, in one request with the others",
                        evidence=result.evidence,
                    )
                )
            else:
                self._record(await self._finding(Experiment(id, title, _merge_bodies(choice.body, member))))

    async def _finding(self, step: Experiment, limit: str | None = None) -> ProbeFinding:
        body = self._body(
            step.body, "" if step.path else limit, READING_TOKENS if step.look in READING_INSPECTIONS else BRIEF_TOKENS
        )
        result = await self._send_and_recheck(body, streams=step.streams, path=step.path)
        verdict, detail = result.verdict, result.message
        if result.response is not None and step.look is not None:
            effect, detail = step.look(self._observe(result))
            verdict = "accepted" if effect else "ignored"
        return ProbeFinding(id=step.id, title=step.title, verdict=verdict, detail=detail, evidence=result.evidence)

    def _observe(self, result: ProbeResult) -> Observation:
        assert result.response is not None
        assert self._baseline is not None
        assert self._baseline.response is not None
        baseline = self._baseline.response
        tokens = baseline.usage.input_tokens if baseline.usage is not None else None
        return Observation(response=result.response, baseline_tokens=tokens, baseline_text=text_of(baseline))

    async def _send_and_recheck(self, body: Body, *, streams: bool, path: str) -> ProbeResult:
        """Send a body and tell a refusal from a temporary failure. Raise `ServerUnanswered` if the server is down."""
        result = await self._send_with_retry(body, streams=streams, path=path)
        if result.verdict != "down":
            return result
        baseline = await self._send_with_retry(self._baseline_body())
        if baseline.verdict == "down":
            raise ServerUnanswered(
                f"the server stopped answering after {self.connection.count} requests: {baseline.message}"
            )
        if result.timed_out:
            return result._replace(message=f"{result.message}; other requests are answered")
        again = await self._send_with_retry(body, streams=streams, path=path)
        if (
            again.verdict == "down"
            and again.evidence.status is not None
            and again.evidence.status not in RETRY_STATUSES
        ):
            return again._replace(verdict="refused", message=f"{again.message} (twice; other requests are answered)")
        return again

    async def _send_with_retry(self, body: Body, *, streams: bool = False, path: str = "") -> ProbeResult:
        """Send a body, and once more after `Retry-After` if the server names a short wait."""
        result = await self.connection.ask(body, streams=streams, path=path)
        if result.evidence.status in RETRY_STATUSES and 0 < result.retry_after <= MAX_RETRY_WAIT:
            await self._sleep(result.retry_after)
            result = await self.connection.ask(body, streams=streams, path=path)
        return result

    async def _run_extras(self) -> None:
        baseline_body = self._baseline_body()

        async def send(body: Body) -> ProbeResult:
            return await self._send_and_recheck(body, streams=False, path="")

        assert self._baseline is not None
        self._record(extras.usage(self._baseline))
        self._record(await extras.wrong_request(send, baseline_body))
        if "model" in baseline_body:  # else the model is part of the URL
            self._record(await extras.wrong_model(send, baseline_body))
        if self._experiments.has_stored_responses:
            self._record(await extras.stream_order(self.connection, baseline_body))
            self._record(await extras.state(send, baseline_body))
            self._record(await extras.websocket(self.connection, self._transport))

    # The profile

    async def _run_proofs(self) -> None:
        """Send the requests that the gateway would send with the drafted profile."""
        profile = self.profile()
        for id, title, body, streams in make_proofs(profile, self.connection.target.model):
            result = await self._send_and_recheck(body, streams=streams, path="")
            self._record(
                ProbeFinding(
                    id=id, title=title, verdict=result.verdict, detail=result.message, evidence=result.evidence
                )
            )

    def draft(self) -> ProfileDraft:
        target = self.connection.target
        draft = self._experiments.conclude(Verdicts(self.findings.values(), self._form))
        if target.key is not None and target.key_header != target.base.key_header:
            draft.key_header = target.key_header
        return draft

    def profile(self) -> Profile:
        return parse_profile(self._toml(), "probed", find_parent=load_profile)

    def _toml(self) -> str:
        target = self.connection.target
        refused = sum(finding.verdict in ("refused", "ignored") for finding in self.findings.values())
        about = (
            f"{target.base_url}, model {target.model}; made by `antiphon probe` from {self.connection.count} requests"
        )
        cut = f"; incomplete: {self.stopped}" if self.stopped else f"; {refused} features refused or ignored"
        return self.draft().toml(f"{about}{cut}.", self.findings.values())

    def _record(self, finding: ProbeFinding) -> None:
        self.findings[finding.id] = finding
        self._on_finding(finding)


def _is_missing(result: ProbeResult) -> bool:
    """Whether the endpoint is missing, so that no other form or limit can help."""
    return result.evidence.status in (403, 404, 405)


def _merge_bodies(one: Body, other: Body) -> Body:
    both = {name: {**one[name], **other[name]} for name in one if name in other and isinstance(one[name], dict)}
    return {**one, **other, **both}


FORMS: Final = {"user.parts": "user message as parts", "user.string": "user message as a string"}
MINIMAL: Final = "minimal request"
KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
#: Statuses that ask the client to retry later.
RETRY_STATUSES: Final = frozenset({408, 425, 429, 503, 529})
MAX_RETRY_WAIT: Final = 30.0
#: Requests about usage, errors and stored responses, and those that test the profile.
EXTRA_REQUESTS: Final = 12
#: Allowance for requests that are sent again.
REPEATED_REQUESTS: Final = 20
