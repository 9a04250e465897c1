"""Translates reasoning effort to thinking (RSN-4), and drops what thinking excludes: forced tools, sampling, prefilled
answers.

The model's name decides what it accepts (`model_thinking`). The thinking settings of a client of this dialect are kept
if the model accepts them.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from antiphon.dialects.common.effort import EFFORT_BUDGETS, EFFORT_ORDER, effort_of, supported_effort, token_budget
from antiphon.dialects.messages.history_out import SystemAndMessages
from antiphon.dialects.messages.wire import MessagesWire, ThinkingConfigOut, ThinkingType, ToolChoiceOut, model_thinking
from antiphon.protocol.losses import Losses
from antiphon.protocol.request import ReasoningEffort, Request

T = TypeVar("T")


class ThinkingFromHub:
    """The thinking settings of one request for one server."""

    def __init__(self, request: Request, wire: MessagesWire, max_tokens: int, losses: Losses) -> None:
        self._wire = wire
        self._model = model_thinking(wire, request.model or "")
        self._losses = losses
        self._max_tokens = max_tokens
        reasoning = request.reasoning or None
        extra = request.extra or {}
        self._effort: ReasoningEffort | None = (reasoning.effort or None) if reasoning else None
        self._client_budget = token_budget(request)
        self._wants_summary = bool(reasoning and reasoning.summary)
        self.thinking: ThinkingConfigOut | Raw | UnsetType = UNSET
        #: The effort for `output_config`.
        self.effort: ReasoningEffort | UnsetType = UNSET
        self._is_switched_off = False
        if THINKING_FIELD in extra:
            self._use_client_thinking(extra[THINKING_FIELD])
        elif self._effort is not None:
            self._use_effort(self._effort)
        if self._wants_summary:
            self._request_summary()

    @property
    def is_on(self) -> bool:
        return self._type_in_use in ("enabled", "adaptive")

    def permitted_choice(self, choice: ToolChoiceOut | UnsetType) -> ToolChoiceOut | UnsetType:
        """The tool choice, which cannot force a call if the model always thinks and the server refuses both."""
        can_force = self._model.forced_tools or not self._always_thinks
        if not choice or choice.type not in FORCED_CHOICES or can_force:
            return choice
        self._losses.add("tool_choice", "a forced tool call", f"{ALWAYS_THINKS}, and the server refuses both together")
        return replace(choice, type="auto", name=UNSET)

    def disable_if_refused(self, history: SystemAndMessages, choice: ToolChoiceOut | UnsetType) -> None:
        """Switch thinking off if the server would refuse the request with it."""
        if not self.is_on:
            return
        can_force = self._model.forced_tools and self._type_in_use == "adaptive"
        if choice and choice.type in FORCED_CHOICES and not can_force:
            self._switch_off("the server refuses it together with a forced tool call")
        elif history.ends_with_assistant:
            self._switch_off("the conversation ends with an assistant message")
        elif self._type_in_use == "enabled" and history.has_tool_loop_without_thinking:
            self._switch_off("the thinking before the last tool calls is missing or from another server")

    def drop_beside_thinking(self, name: str, value: T | UnsetType, *, allowed: bool = False) -> T | UnsetType:
        """Drop a setting that servers refuse together with thinking, unless its value is allowed."""
        if value is UNSET or not self.is_on or allowed:
            return value
        self._losses.add(name, f"the field {name!r}", "the server refuses it together with thinking")
        return UNSET

    def client_effort(self, effort_name: Any) -> Any:
        """The effort that a client of this dialect set, as the model accepts it; UNSET if it is not sent."""
        if self._is_switched_off:  # dropped with thinking, as part of that loss
            return UNSET
        if not self._model.efforts:
            self._losses.add("output_config.effort", "the effort", "the model does not accept an effort")
            return UNSET
        return self._nearest_effort(effort_name, "output_config.effort") if effort_name in EFFORT_ORDER else effort_name

    @property
    def _type_in_use(self) -> str:
        if isinstance(self.thinking, Raw):
            return _type_of(msgspec.json.decode(self.thinking))
        return self.thinking.type if self.thinking else ""

    def _use_client_thinking(self, raw: Raw) -> None:
        """Use the client's thinking if the model accepts it; else an accepted form with the same effort."""
        client_thinking = msgspec.json.decode(raw)
        kind = _type_of(client_thinking)
        if client_thinking is None:  # the client did not set it
            return
        if kind in self._model.thinking or kind not in get_args(ThinkingType):
            self.thinking = raw
            if kind == "adaptive" and self._effort is not None:
                self.effort = self._nearest_effort(self._effort)
        elif kind in OFF_TYPES:
            self._use_client_off(kind)
        else:
            why = f"the model accepts {self._on_type!r} instead" if self._on_type else NO_THINKING
            self._losses.add("thinking", f"thinking of type {kind!r}", why)
            if self._on_type:
                self._use_effort(self._effort or "medium")

    def _use_client_off(self, kind: str) -> None:
        self.thinking = self._off_config()
        if self.thinking:
            self._losses.add(
                "thinking", f"thinking of type {kind!r}", f"the model accepts {self.thinking.type!r} instead"
            )
        elif self._on_type:
            self._losses.add("thinking", f"thinking of type {kind!r}", ALWAYS_THINKS)

    @property
    def _on_type(self) -> ThinkingType | None:
        """The type that switches thinking on."""
        return next((kind for kind in self._model.thinking if kind not in OFF_TYPES), None)

    @property
    def _always_thinks(self) -> bool:
        return self._on_type is not None and not self._off_config()

    def _off_config(self) -> ThinkingConfigOut | UnsetType:
        """The configuration that switches thinking off; UNSET if there is none."""
        kind = next((kind for kind in self._model.thinking if kind in OFF_TYPES), None)
        return ThinkingConfigOut(type=kind) if kind else UNSET

    def _use_effort(self, effort: ReasoningEffort) -> None:
        if self._on_type is None:
            if effort != "none":
                self._losses.add("reasoning.effort", f"the effort {effort!r}", NO_THINKING)
        elif effort == "none":
            self.thinking = self._off_config()
            if not self.thinking:
                self._losses.add("reasoning.effort", "the effort 'none'", ALWAYS_THINKS)
        elif self._client_budget is not None and "enabled" in self._model.thinking:
            self.thinking = self._budget_config(effort)
        elif self._on_type == "adaptive":
            self.thinking, self.effort = ThinkingConfigOut(type="adaptive"), self._nearest_effort(effort)
        else:
            self.thinking = self._budget_config(effort)

    def _nearest_effort(self, effort: ReasoningEffort, path: str = "reasoning.effort") -> ReasoningEffort | UnsetType:
        if not self._model.efforts:
            self._losses.add(path, f"the effort {effort!r}", "the model does not accept an effort")
            return UNSET
        return supported_effort(effort, self._model.efforts, self._losses, path)

    def _budget_config(self, effort: ReasoningEffort) -> ThinkingConfigOut | UnsetType:
        """Thoughts count towards the token limit, so part of it is left for the answer."""
        budget, max_budget = EFFORT_BUDGETS[effort], self._max_tokens * 3 // 4
        if self._client_budget is not None:  # a number of tokens stays the number if it is below the limit
            budget = self._client_budget
            max_budget = max(budget, max_budget) if budget < self._max_tokens else max_budget
        if max_budget < MIN_BUDGET:
            self._losses.add(
                "reasoning.effort",
                f"the effort {effort!r}",
                f"{self._max_tokens} output tokens leave no room for thinking",
            )
            return UNSET
        if budget > max_budget and (self._client_budget is not None or effort_of(max_budget) != effort):
            why = f"the output limit leaves room for {max_budget}"
            self._losses.add("reasoning.effort", f"a budget of {budget} tokens", why)
        elif budget < MIN_BUDGET:
            self._losses.add("reasoning.effort", f"a budget of {budget} tokens", f"the minimum is {MIN_BUDGET} tokens")
        return ThinkingConfigOut(type="enabled", budget_tokens=max(min(budget, max_budget), MIN_BUDGET))

    def _request_summary(self) -> None:
        if isinstance(self.thinking, ThinkingConfigOut) and self.is_on and self._wire.thinking_display:
            self.thinking = replace(self.thinking, display="summarized")
        elif not self.is_on:
            self._losses.add("reasoning.summary", "a summary of the reasoning", "thinking is not switched on")

    def _switch_off(self, why: str) -> None:
        self.thinking, self.effort = self._off_config(), UNSET
        self._is_switched_off = True
        what = "thinking is disabled for this request" if self.thinking else "the model decides how it thinks"
        self._losses.add("thinking", what, why)


def _type_of(client_thinking: Any) -> str:
    kind = client_thinking.get("type") if isinstance(client_thinking, dict) else None
    return kind if isinstance(kind, str) else ""


THINKING_FIELD: Final = "messages:thinking"
MIN_BUDGET: Final = 1024
NO_THINKING: Final = "the server has no thinking setting"
ALWAYS_THINKS: Final = "the model always thinks"
FORCED_CHOICES: Final = ("any", "tool")
#: Types without thinking, or with the least thinking that the model allows.
OFF_TYPES: Final = ("disabled", "between_tools")
