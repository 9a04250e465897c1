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
    Bound,
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

    min_requests: int
    max_requests: int
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
    all_steps = EXPERIMENTS[dialect].steps.probe_steps("parts")
    experiments = [step for step in all_steps if isinstance(step, Experiment)]
    choices = [step for step in all_steps if isinstance(step, Choice)]
    min_requests = len(experiments) + len(choices) + len(EXPERIMENTS[dialect].steps.LIMIT_NAMES) + EXTRA_REQUESTS
    bounds = [step for step in all_steps if isinstance(step, Bound)]
    min_requests += len(bounds)
    max_requests = min_requests + sum(len(choice.members) for choice in choices) + REPEATED_REQUESTS
    max_requests += sum(bound.largest.bit_length() for bound in bounds)
    tokens_in = sum(len(msgspec.json.encode(step.body)) for step in all_steps) // 3
    return ProbeCost(min_requests, max_requests, tokens_in, len(experiments) * USUAL_ANSWER_TOKENS)


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
        self._text_form = self._experiments.text_form
        self._limit_name = ""
        self._baseline: ProbeResult | None = None

    async def run(self) -> ProbeReport:
        """Run all experiments, until the end or until the server stops answering."""
        await self._establish_baseline()
        try:
            for step in self._steps.probe_steps(self._text_form):
                await self._run_step(step)
            await self._run_extras()
            await self._run_proofs()
        except ServerUnanswered as unanswered:
            self.stopped = str(unanswered)
        return self.report()

    def report(self) -> ProbeReport:
        """Return the report of the findings so far."""
        target = self.connection.target
        return ProbeReport(
            url=target.base_url,
            dialect=target.dialect,
            model=target.model,
            findings=list(self.findings.values()),
            requests=self.connection.request_count,
            stopped=self.stopped,
            profile=self._profile_toml(),
        )

    # The minimal request

    async def _establish_baseline(self) -> None:
        """Find a form of the minimal request that is answered: the key's header, the form of text, the limit's name."""
        result = await self._find_minimal_form()
        if result.verdict != "accepted":
            self._record(
                ProbeFinding(
                    id="minimal",
                    title=MINIMAL_TITLE,
                    verdict=result.verdict,
                    detail=result.message,
                    evidence=result.evidence,
                )
            )
            raise ServerUnanswered(result.message)

    async def _find_minimal_form(self) -> ProbeResult:
        forms: tuple[TextForm, ...] = (self._text_form, "string" if self._text_form == "parts" else "parts")
        first_result: ProbeResult | None = None
        for form in forms:
            for limit_name in (*self._steps.LIMIT_NAMES, ""):
                result = await self._send_with_each_key_header(
                    self._request_body(self._steps.minimal_body(form), limit_name)
                )
                if result.verdict == "accepted":
                    self._record_minimal(result, form, limit_name, first_result)
                    await self._try_other_limits(limit_name)
                    return result
                first_result = first_result or result
                if result.is_no_api or _is_endpoint_missing(result):
                    return result
        assert first_result is not None
        return first_result

    async def _try_other_limits(self, limit_name: str) -> None:
        """Try the limit names after the accepted one as well."""
        names = self._steps.LIMIT_NAMES
        for name in names[names.index(limit_name) + 1 :] if limit_name else ():
            body = self._steps.with_token_limit(self._steps.minimal_body(self._text_form), name, BRIEF_TOKENS)
            await self._run_step(Experiment(f"limit.{name}", f"limit {name}", body), limit_name="")

    def _record_minimal(
        self, result: ProbeResult, form: TextForm, limit_name: str, first_result: ProbeResult | None
    ) -> None:
        self._text_form, self._limit_name, self._baseline = form, limit_name, result
        self._record(
            ProbeFinding(
                id="minimal", title=MINIMAL_TITLE, verdict="accepted", detail="answered", evidence=result.evidence
            )
        )
        if form != self._experiments.text_form and first_result is not None:
            other_form = "user.parts" if form == "string" else "user.string"
            self._record(
                ProbeFinding(
                    id=other_form,
                    title=FORM_TITLES[other_form],
                    verdict="refused",
                    detail=first_result.message,
                    evidence=first_result.evidence,
                )
            )
        names = self._steps.LIMIT_NAMES
        for name in names[: names.index(limit_name)] if limit_name else names:
            detail = first_result.message if first_result else "refused"
            self._record(
                ProbeFinding(
                    id=f"limit.{name}",
                    title=f"limit {name}",
                    verdict="refused",
                    detail=detail,
                    evidence=first_result and first_result.evidence,
                )
            )
        if limit_name:
            self._record(
                ProbeFinding(
                    id=f"limit.{limit_name}",
                    title=f"limit {limit_name}",
                    verdict="accepted",
                    detail="answered",
                    evidence=result.evidence,
                )
            )

    async def _send_with_each_key_header(self, body: Body) -> ProbeResult:
        """Send a body; if the key is refused in one header, try the other headers."""
        result = await self._send_with_retry(body)
        target = self.connection.target
        if target.key is None or result.evidence.status not in (401, 403):
            return result
        for header in KEY_HEADERS:
            if header == target.key_header:
                continue
            self.connection.target = replace(target, key_header=header)
            second_result = await self._send_with_retry(body)
            if second_result.evidence.status not in (401, 403):
                return second_result
        self.connection.target = target
        return result

    def _request_body(self, body: Body, limit_name: str | None = None, tokens: int = BRIEF_TOKENS) -> Body:
        limit_name = self._limit_name if limit_name is None else limit_name
        return {
            **self.connection.target.model_field,
            **(self._steps.with_token_limit(body, limit_name, tokens) if limit_name else body),
        }

    def _baseline_body(self) -> Body:
        return self._request_body(self._steps.minimal_body(self._text_form))

    # Experiments

    async def _run_step(self, step: Step, *, limit_name: str | None = None) -> None:
        if step.id in self.findings:
            return
        unmet_needs = [id for id in step.needs if id not in self.findings or self.findings[id].verdict != "accepted"]
        if unmet_needs:
            self._record(
                ProbeFinding(
                    id=step.id, title=step.title, verdict="untried", detail=f"requires {', '.join(unmet_needs)}"
                )
            )
        elif isinstance(step, Experiment):
            self._record(await self._run_experiment(step, limit_name))
        elif isinstance(step, Bound):
            self._record(await self._find_bound(step))
        else:
            await self._run_choice(step)

    async def _run_choice(self, choice: Choice) -> None:
        """Try all members in one request, then one by one if that request is refused."""
        combined_body = choice.body
        for member in choice.members.values():
            combined_body = _merge_bodies(combined_body, member)
        result = await self._send_and_recheck(self._request_body(combined_body), streams=False, path="")
        if result.verdict != "accepted":
            await self._run_members(choice, result)
            return
        for name in choice.members:
            self._record(
                ProbeFinding(
                    id=f"{choice.id}.{name}",
                    title=f"{choice.title} {name}",
                    verdict="accepted",
                    detail="answered, in one request with the others",
                    evidence=result.evidence,
                )
            )

    async def _run_members(self, choice: Choice, combined_result: ProbeResult) -> None:
        """Try each member alone, because any of them could be the cause of the refusal."""
        findings = [
            await self._run_experiment(
                Experiment(f"{choice.id}.{name}", f"{choice.title} {name}", _merge_bodies(choice.body, member))
            )
            for name, member in choice.members.items()
        ]
        for finding in findings:
            self._record(finding)
        if all(finding.verdict == "accepted" for finding in findings):
            self._record(
                ProbeFinding(
                    id=f"{choice.id}.together",
                    title=f"all {choice.title}s in one request",
                    verdict=combined_result.verdict,
                    detail=f"each is accepted alone: {combined_result.message}",
                    evidence=combined_result.evidence,
                )
            )

    async def _find_bound(self, bound: Bound) -> ProbeFinding:
        """Find the largest accepted number."""
        result = await self._send_bound(bound, bound.largest)
        if result.verdict != "refused":
            detail = f"{bound.largest} accepted" if result.verdict == "accepted" else result.message
            return ProbeFinding(
                id=bound.id, title=bound.title, verdict=result.verdict, detail=detail, evidence=result.evidence
            )
        accepted, refused = 0, bound.largest
        while refused - accepted > 1:
            middle = (accepted + refused) // 2
            next_result = await self._send_bound(bound, middle)
            if next_result.verdict == "accepted":
                accepted = middle
            else:
                refused, result = middle, next_result
        detail = f"at most {accepted}: {result.message}"
        return ProbeFinding(
            id=bound.id, title=bound.title, verdict="refused", detail=detail, evidence=result.evidence, limit=accepted
        )

    async def _send_bound(self, bound: Bound, number: int) -> ProbeResult:
        return await self._send_and_recheck(self._request_body(bound.make_body(number)), streams=False, path="")

    async def _run_experiment(self, step: Experiment, limit_name: str | None = None) -> ProbeFinding:
        body = self._request_body(
            step.body,
            "" if step.path else limit_name,
            READING_TOKENS if step.inspection in READING_INSPECTIONS else BRIEF_TOKENS,
        )
        result = await self._send_and_recheck(body, streams=step.streams, path=step.path)
        verdict, detail = result.verdict, result.message
        if result.response is not None and step.inspection is not None:
            has_effect, detail = step.inspection(self._observe(result))
            verdict = "accepted" if has_effect else "ignored"
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
                f"the server stopped answering after {self.connection.request_count} requests: {baseline.message}"
            )
        if result.has_timed_out:
            return result._replace(message=f"{result.message}; other requests are answered")
        second_result = await self._send_with_retry(body, streams=streams, path=path)
        if (
            second_result.verdict == "down"
            and second_result.evidence.status is not None
            and second_result.evidence.status not in RETRY_STATUSES
        ):
            return second_result._replace(
                verdict="refused", message=f"{second_result.message} (twice; other requests are answered)"
            )
        return second_result

    async def _send_with_retry(self, body: Body, *, streams: bool = False, path: str = "") -> ProbeResult:
        """Send a body, and once more after `Retry-After` if the server names a short wait."""
        result = await self.connection.send_request(body, streams=streams, path=path)
        if result.evidence.status in RETRY_STATUSES and 0 < result.retry_after <= MAX_RETRY_WAIT:
            await self._sleep(result.retry_after)
            result = await self.connection.send_request(body, streams=streams, path=path)
        return result

    async def _run_extras(self) -> None:
        baseline_body = self._baseline_body()

        async def send(body: Body) -> ProbeResult:
            return await self._send_and_recheck(body, streams=False, path="")

        assert self._baseline is not None
        self._record(extras.check_usage(self._baseline))
        self._record(await extras.check_invalid_request(send, baseline_body))
        if "model" in baseline_body:  # else the model is part of the URL
            self._record(await extras.check_unknown_model(send, baseline_body))
        if self._experiments.has_stored_responses:
            self._record(await extras.check_stream_order(self.connection, baseline_body))
            self._record(await extras.check_stored_response(send, baseline_body))
            self._record(await extras.check_websocket(self.connection, self._transport))

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
        draft = self._experiments.conclude(Verdicts(self.findings.values(), self._text_form))
        if target.key is not None and target.key_header != target.base_profile.key_header:
            draft.key_header = target.key_header
        return draft

    def profile(self) -> Profile:
        return parse_profile(self._profile_toml(), "probed", find_parent=load_profile)

    def _profile_toml(self) -> str:
        target = self.connection.target
        refused_count = sum(finding.verdict in ("refused", "ignored") for finding in self.findings.values())
        about = (
            f"{target.base_url}, model {target.model}; "
            f"made by `antiphon probe` from {self.connection.request_count} requests"
        )
        outcome = f"; incomplete: {self.stopped}" if self.stopped else f"; {refused_count} features refused or ignored"
        return self.draft().toml(f"{about}{outcome}.", self.findings.values())

    def _record(self, finding: ProbeFinding) -> None:
        self.findings[finding.id] = finding
        self._on_finding(finding)


def _is_endpoint_missing(result: ProbeResult) -> bool:
    """Whether the endpoint is missing, so that no other form or limit can help."""
    return result.evidence.status in (403, 404, 405)


def _merge_bodies(left: Body, right: Body) -> Body:
    merged_members = {
        name: {**left[name], **right[name]} for name in left if name in right and isinstance(left[name], dict)
    }
    return {**left, **right, **merged_members}


FORM_TITLES: Final = {"user.parts": "user message as parts", "user.string": "user message as a string"}
MINIMAL_TITLE: Final = "minimal request"
KEY_HEADERS: Final = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
#: Statuses that ask the client to retry later.
RETRY_STATUSES: Final = frozenset({408, 425, 429, 503, 529})
MAX_RETRY_WAIT: Final = 30.0
#: Requests about usage, errors and stored responses, and those that test the profile.
EXTRA_REQUESTS: Final = 12
#: Allowance for requests that are sent again.
REPEATED_REQUESTS: Final = 20
