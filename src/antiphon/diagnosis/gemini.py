"""Rules of the gemini dialect: report what every server of the dialect should refuse."""

from __future__ import annotations

from typing import Any, Final

from antiphon.diagnosis.content import lint_role
from antiphon.diagnosis.finding import Findings, iter_objects
from antiphon.diagnosis.tools import lint_name
from antiphon.rules.report import as_json


def lint_gemini(body: dict[str, Any], findings: Findings) -> None:
    contents = body.get("contents")
    if not contents:
        instead = next(
            (f"; `{name}` is a field of another dialect" for name in ("messages", "input") if name in body), ""
        )
        findings.keep(
            "missing_field", "contents", f"there is nothing to answer: `contents` is a list of contents{instead}"
        )
    alone = isinstance(contents, dict) or (isinstance(contents, list) and len(contents) == 1)
    waiting: list[tuple[str, Any]] = []
    for path, content in iter_objects([contents] if isinstance(contents, dict) else contents, "contents"):
        role = content.get("role")
        if not (alone and role is None):
            lint_role(
                role, f"{path}.role", ("user", "model", "function"), findings, *(SYSTEM if role == "system" else ())
            )
        if "content" in content and "parts" not in content:
            findings.keep("unknown_field", f"{path}.content", "content is a list under `parts`, each text as `text`")
        elif not content.get("parts"):
            findings.keep("missing_field", f"{path}.parts", "a content has at least one part")
        parts = content.get("parts")
        parts = [parts] if isinstance(parts, dict) else parts
        for place, part in iter_objects(parts, f"{path}.parts"):
            _lint_part(part, place, findings)
        waiting = _lint_pairs(parts, path, waiting, findings, by_model=role == "model")
    if isinstance(contents, list) and contents and _calls(contents[0]):
        findings.keep(
            "order", "contents[0]", "a conversation does not begin with a call: the first content is the user's"
        )
    _lint_unanswered(waiting, findings)
    if (
        isinstance(contents, list)
        and contents
        and isinstance(contents[-1], dict)
        and contents[-1].get("role") == "model"
    ):
        problem = "the last content is the model's; many servers require one of the user, or the result of a call"
        findings.keep("order", f"contents[{len(contents) - 1}]", problem, "wire.ends_with_model = false", certain=False)
    _lint_choice(body, findings)


def _lint_part(part: dict[str, Any], path: str, findings: Findings) -> None:
    data = [name for name in part if name in DATA]
    if "type" in part:
        findings.keep(
            "discriminator",
            f"{path}.type",
            "a part has no type here: its one field (`text`, `inlineData` …) is its type",
        )
    elif not data:
        findings.keep(
            "missing_field", path, "a part has one of text, inlineData, fileData, functionCall, functionResponse"
        )
    elif len(data) > 1:
        findings.keep("combination", path, f"a part is one thing, and this is {' and '.join(data)}")
    for spelled in ("functionCall", "function_call", "functionResponse", "function_response"):
        if isinstance(part.get(spelled), dict):
            lint_name(part[spelled].get("name"), f"{path}.{spelled}.name", "gemini", findings)


def _calls(content: Any) -> bool:
    parts = content.get("parts") if isinstance(content, dict) else None
    return any("functionCall" in part or "function_call" in part for _, part in iter_objects(parts, ""))


def _lint_pairs(
    parts: Any, path: str, waiting: list[tuple[str, Any]], findings: Findings, *, by_model: bool
) -> list[tuple[str, Any]]:
    """Match results with calls; return the calls that the next content must answer."""
    calls: list[tuple[str, Any]] = []
    results = 0
    for place, part in iter_objects(parts, f"{path}.parts"):
        call = part.get("functionCall", part.get("function_call"))
        result = part.get("functionResponse", part.get("function_response"))
        if isinstance(call, dict):
            calls.append((place, call.get("name")))
        if isinstance(result, dict):
            results += 1
            if results > len(waiting) or by_model:
                problem = (
                    f"this is the result of a call that is not in the content before: {as_json(result.get('name'))}"
                )
                findings.keep("orphan_result", place, problem, 'wire.orphan_outputs = "text"')
            elif "id" not in result and result.get("name") != waiting[results - 1][1]:
                expected, actual = as_json(waiting[results - 1][1]), as_json(result.get("name"))
                problem = f"the call in its place is of {expected}, not of {actual}"
                findings.keep("orphan_result", place, problem, 'wire.orphan_outputs = "text"')
    if by_model and not results:
        return waiting + calls  # consecutive contents of the model are one turn
    _lint_unanswered(waiting[results:], findings)
    return calls


def _lint_unanswered(waiting: list[tuple[str, Any]], findings: Findings) -> None:
    for path, name in waiting:
        findings.keep(
            "unanswered_call",
            path,
            f"the content right after it has no `functionResponse` for the call of {as_json(name)}",
        )


def _lint_choice(body: dict[str, Any], findings: Findings) -> None:
    config = body.get("toolConfig", body.get("tool_config"))
    if isinstance(config, dict) and (config.get("functionCallingConfig") or config.get("function_calling_config")):
        tools = body.get("tools")
        if not any(
            "functionDeclarations" in tool or "function_declarations" in tool
            for _, tool in iter_objects(tools, "tools")
        ):
            findings.keep(
                "combination",
                "toolConfig.functionCallingConfig",
                "it is for requests with functions, and there are none",
            )


DATA: Final = frozenset(
    {
        *(
            "text",
            "inlineData",
            "fileData",
            "functionCall",
            "functionResponse",
            "executableCode",
            "codeExecutionResult",
        ),
        *("inline_data", "file_data", "function_call", "function_response", "executable_code", "code_execution_result"),
        *("toolCall", "toolResponse"),
    }
)
SYSTEM: Final = ('wire.system = "as_user"', 'wire.system = "first"')
