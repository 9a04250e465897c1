"""The values of thinking and effort that models of the Messages API accept, by the API's guides (November 2026).

The lists are written by hand and share nothing with the gateway's profiles. A model with any other name accepts all
values. A server may offer other models under these names, so these violations are not certain.
"""

from __future__ import annotations

import re
from typing import Any, Final

from msgspec import Struct

from antiphon.rules.report import Report, as_json


class ModelRules(Struct, frozen=True):
    """One row: the types of `thinking` and the words of `output_config.effort` that are accepted; None: all."""

    name: re.Pattern[str]
    types: tuple[str, ...] | None
    efforts: tuple[str, ...] | None
    #: Whether the two highest efforts are refused if thinking is switched off.
    capped: bool = False
    #: Whether a tool can be forced beside adaptive thinking: from 4.6 on. A model that always
    #: thinks takes no forced tool.
    forced: bool = True


def find_model_rules(name: Any) -> ModelRules:
    matches = (model for model in MODELS if isinstance(name, str) and model.name.match(name))
    return next(matches, UNKNOWN)


def check_type(model: ModelRules, name: Any, kind: str, report: Report) -> None:
    """Check the type of `thinking` for the model of this name."""
    if model.types is None or kind in model.types:
        return
    # "adaptive thinking is not supported on this model": the models before 4.6.
    message = "adaptive thinking is not supported on this model"
    if {"adaptive", "enabled"}.isdisjoint(model.types) and kind != "disabled":
        # "'claude-3-5-haiku-20241022' does not support thinking.": the models before 3.7.
        message = f"'{name}' does not support thinking."
    elif kind != "adaptive":
        # '"thinking.type.enabled" is not supported for this model. Use …': from 4.7 on there are no budgets.
        hint = 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
        if kind == "disabled" and "between_tools" in model.types:
            hint = (
                'Use "thinking.type.between_tools" for the lowest thinking setting, or "thinking.type.adaptive" and '
                '"output_config.effort" to control thinking behavior.'
            )
        message = f'"thinking.type.{kind}" is not supported for this model. {hint}'
    problem = f"this model accepts the types {', '.join(model.types)}, not {as_json(kind)}"
    settings = tuple(f'wire.thinking = "{value}"' for value in ("budget" if kind == "adaptive" else "adaptive", "none"))
    report.add("reasoning", "thinking.type", message, problem, is_certain=False, settings=settings)


def check_effort(model: ModelRules, effort: str, kind: str, report: Report) -> None:
    """Check the effort, beside this type of `thinking`."""
    message = ""
    # Models before 4.6 do not know the parameter at all, but for one.
    if model.efforts == ():
        message = "This model does not support the effort parameter."
    # "… does not support effort level 'xhigh'. Supported levels: …", in the order of the alphabet.
    elif model.efforts is not None and effort not in model.efforts:
        levels = ", ".join(sorted(model.efforts))
        message = f"This model does not support effort level '{effort}'. Supported levels: {levels}."
    # "output_config.effort 'xhigh' is not supported when thinking is disabled on this model. …": from 5 on.
    elif effort in ("xhigh", "max") and kind in ("disabled", "between_tools") and model.capped:
        message = (
            f"output_config.effort '{effort}' is not supported when thinking is disabled on this model. "
            "Use effort 'high' or below, or enable thinking."
        )
    if message:
        report.add("unsupported", "output_config.effort", message, is_certain=False)


def _model(name: str, types: str, efforts: str, *, capped: bool = False, forced: bool = True) -> ModelRules:
    return ModelRules(re.compile(name), tuple(types.split()), tuple(efforts.split()), capped, forced)


UNKNOWN: Final = ModelRules(re.compile(""), None, None)
#: The first row that fits counts.
MODELS: Final = (
    _model(r"claude-(fable|mythos-5|opus-5[-.]5)", "adaptive", "low medium high xhigh max", forced=False),
    _model(r"claude-mythos-preview", "adaptive enabled", "low medium high max", forced=False),
    _model(r"claude-sonnet-5[-.]5", "adaptive between_tools", "low medium high xhigh max", capped=True),
    _model(r"claude-(opus-5|haiku-5)", "adaptive disabled", "low medium high xhigh max", capped=True),
    _model(r"claude-(opus-4[-.][78]|sonnet-5)", "adaptive disabled", "low medium high xhigh max"),
    _model(r"claude-(opus|sonnet)-4[-.]6", "adaptive enabled disabled", "low medium high max"),
    _model(r"claude-opus-4[-.]5", "enabled disabled", "low medium high"),
    _model(r"claude-((opus|sonnet|haiku)-4|3[-.]7)", "enabled disabled", ""),
    _model(r"claude-(3|2|instant)", "disabled", ""),
)
