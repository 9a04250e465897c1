"""What is wrong with tools and with schemas, in any dialect: the form of another dialect, names, schemas that nobody enforces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final, Literal, assert_never

from antiphon.diagnosis.finding import Findings, iter_objects, to_camel_case
from antiphon.profiles import Dialect
from antiphon.rules.report import as_json

Form = Literal["flat", "nested", "input_schema", "declarations"]


def lint_tools(body: dict[str, Any], dialect: Dialect, findings: Findings) -> None:
    tools = body.get("tools")
    names = frozenset() if tools is None else frozenset(_lint_tools(tools, dialect, findings))
    for path, name in _chosen(body, dialect):
        if name not in names:
            findings.keep("name", path, f"the tool {as_json(name)} is chosen, and not offered")
    choice = body.get("tool_choice")
    if isinstance(choice, dict) and choice.get("type") == "function":
        nested = isinstance(choice.get("function"), dict)
        if nested != (dialect == "chat"):
            findings.keep(
                "tool_form",
                "tool_choice",
                f"the name of the tool stands {'under `function`' if dialect == 'chat' else 'beside the type'} here",
            )


def _lint_tools(tools: Any, dialect: Dialect, findings: Findings) -> list[str]:
    """The names of the tools."""
    if not isinstance(tools, list):
        findings.keep("value", "tools", f"{as_json(tools)} is no list of tools")
        return []
    if not 1 <= len(tools) <= MOST_TOOLS:
        message = f"there are {len(tools)} tools; many servers take 1 to {MOST_TOOLS}, and a request without tools has no such field"
        findings.keep("value", "tools", message, certain=False)
    names: list[Any] = []
    for path, tool in iter_objects(tools, "tools"):
        form = form_of(tool)
        if form is None and isinstance(tool.get("name"), str):
            names.append(tool["name"])  # the server's own
        if form is not None and form != FORMS[dialect]:
            findings.keep(
                "tool_form",
                path,
                f"this tool is {SHAPES[form]}; servers of this dialect want it {SHAPES[FORMS[dialect]]}",
            )
            continue
        for place, function in _functions(tool, path, form):
            names.append(function.get("name"))
            lint_name(function.get("name"), f"{place}.name", dialect, findings)
            _lint_parameters(function, place, dialect, findings)
        if form is None and dialect in ("chat", "messages") and tool.get("type") in (None, "function", "custom"):
            findings.keep(
                "missing_field", path, f"this is no tool: servers of this dialect want it {SHAPES[FORMS[dialect]]}"
            )
        elif form is None and dialect == "responses":
            _lint_other(tool, path, findings)
    valid_names = [name for name in names if isinstance(name, str)]
    for name, count in Counter(valid_names).items():
        if count > 1:
            findings.keep("name", "tools", f"{count} tools are called {as_json(name)}; each needs a name of its own")
    return valid_names


def _chosen(body: dict[str, Any], dialect: Dialect) -> Iterator[tuple[str, str]]:
    """The names that the choice of tools names."""
    match dialect, body.get("tool_choice"):
        case ("chat", {"function": {"name": str(name)}} | {"custom": {"name": str(name)}}):
            yield "tool_choice", name
        case ("responses", {"type": "function" | "custom", "name": str(name)}) | (
            "messages",
            {"type": "tool", "name": str(name)},
        ):
            yield "tool_choice", name
        case ("responses", {"type": "allowed_tools", "tools": list(allowed)}):
            yield from (
                ("tool_choice", tool["name"])
                for _, tool in iter_objects(allowed, "")
                if isinstance(tool.get("name"), str)
            )


def form_of(tool: dict[str, Any]) -> Form | None:
    """In whose form a function is written; None for anything else."""
    if isinstance(tool.get("function"), dict) or isinstance(tool.get("custom"), dict):
        return "nested"
    if "input_schema" in tool:
        return "input_schema"
    if "functionDeclarations" in tool or "function_declarations" in tool:
        return "declarations"
    return "flat" if tool.get("type") in ("function", "custom") and "name" in tool else None


def lint_name(name: Any, path: str, dialect: Dialect, findings: Findings) -> None:
    pattern = NAMES[dialect]
    if name is None:
        findings.keep("missing_field", path, "a function has a name")
    elif not isinstance(name, str) or not pattern.fullmatch(name):
        findings.keep("name", path, f"{as_json(name)} is no name that servers take: wanted is {pattern.pattern}")


def lint_schema(schema: Any, path: str, findings: Findings, *, strict: bool) -> None:
    """A schema that a server enforces; `strict` has every object closed and every property required."""
    for place, part in _parts(schema, path, findings):
        _lint_part(part, place, findings, strict=strict)


def _parts(schema: Any, path: str, findings: Findings) -> Iterator[tuple[str, Any]]:
    """A schema and those inside of it, each before its own, until so many of the body were looked at."""
    waiting = [(path, schema)]
    while waiting:
        place, part = waiting.pop()
        if not findings.may_check_schema(place):
            return
        yield place, part
        if isinstance(part, dict) and place.count(".") < DEEPEST and len(place) < LONGEST:
            waiting += [(f"{place}.{step}", child) for step, child in reversed(_children(part))]


def _lint_part(schema: Any, path: str, findings: Findings, *, strict: bool) -> None:
    if not isinstance(schema, dict):
        findings.keep("schema", path, f"{as_json(schema)} is no JSON schema: wanted is an object")
        return
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, dict) or not isinstance(required, list):
        findings.keep("schema", path, "`properties` is an object and `required` a list of names")
        return
    unknown = [name for name in required if not isinstance(name, str) or name not in properties]
    if unknown:
        findings.keep("schema", f"{path}.required", f"{as_json(unknown)} are required, and no properties")
    if strict and (schema.get("type") == "object" or properties):
        if schema.get("additionalProperties") is not False:
            findings.keep("schema", path, "`additionalProperties` must be false in a strict schema", *STRICT)
        names = {name for name in required if isinstance(name, str)}
        optional = [name for name in properties if name not in names]
        if optional:
            findings.keep(
                "schema",
                f"{path}.required",
                f"a strict schema requires every property; {as_json(optional)} are not",
                *STRICT,
            )


def _functions(tool: dict[str, Any], path: str, form: Form | None) -> Iterator[tuple[str, dict[str, Any]]]:
    match form:
        case "nested":
            yield from [
                (f"{path}.{kind}", tool[kind]) for kind in ("function", "custom") if isinstance(tool.get(kind), dict)
            ]
        case "declarations":
            name = "functionDeclarations" if "functionDeclarations" in tool else "function_declarations"
            yield from iter_objects(tool[name], f"{path}.{name}")
        case "flat" | "input_schema":
            yield path, tool
        case None:
            pass
        case _ as never:
            assert_never(never)


def _lint_parameters(function: dict[str, Any], path: str, dialect: Dialect, findings: Findings) -> None:
    field = next((name for name in PARAMETERS if name in function), None)
    if field is None:
        return
    schema, place = function[field], f"{path}.{field}"
    kind = schema.get("type") if isinstance(schema, dict) else None
    if schema is not None and str(kind).lower() != "object":
        findings.keep(
            "schema", place, f"the schema of a function's parameters has the type object, not {as_json(kind)}"
        )
    elif dialect == "gemini" and field == "parameters" and schema is not None:
        _lint_openapi(schema, place, findings)
    elif schema is not None:
        lint_schema(schema, place, findings, strict=function.get("strict") is True and dialect in ("chat", "responses"))


def _lint_openapi(schema: dict[str, Any], path: str, findings: Findings) -> None:
    """The older kind of schema that servers of the gemini dialect have: a part of OpenAPI's."""
    for place, part in _parts(schema, path, findings):
        if not isinstance(part, dict):
            continue
        for word in sorted(name for name in part if to_camel_case(name) not in OPENAPI):
            message = f"`{word}` is no word of this kind of schema; `parametersJsonSchema` takes JSON schema as it is"
            findings.keep("schema", f"{place}.{word}", message, 'wire.schemas = "openapi"')
        if isinstance(part.get("type"), list):
            message = f"a type is one word, not {as_json(part['type'])}"
            findings.keep("schema", f"{place}.type", message, 'wire.schemas = "openapi"')


def _lint_other(tool: dict[str, Any], path: str, findings: Findings) -> None:
    kind = tool.get("type")
    if kind in ("function", "custom"):
        findings.keep("missing_field", f"{path}.name", "a function has its name beside its type")
    elif not isinstance(kind, str):
        findings.keep("discriminator", f"{path}.type", f"a tool says what it is; {as_json(kind)} stands there")
    else:
        message = f"{as_json(kind)} is a tool that the server would have to have itself, and not every server has"
        findings.keep("unsupported", f"{path}.type", message, 'wire.extension_tools = "flatten"', certain=False)


def _children(schema: dict[str, Any]) -> list[tuple[str, Any]]:
    findings: list[tuple[str, Any]] = [("items", schema["items"])] if isinstance(schema.get("items"), dict) else []
    for group in ("properties", "$defs", "definitions"):
        if isinstance(schema.get(group), dict):
            findings += [(f"{group}.{name}", child) for name, child in schema[group].items()]
    for group in ("anyOf", "allOf", "oneOf"):
        if isinstance(schema.get(group), list):
            findings += [(f"{group}[{at}]", child) for at, child in enumerate(schema[group])]
    return findings


FORMS: Final[dict[Dialect, Form]] = {
    "chat": "nested",
    "responses": "flat",
    "messages": "input_schema",
    "gemini": "declarations",
}
SHAPES: Final[dict[Form, str]] = {
    "flat": "flat, with its name and its schema beside its type",
    "nested": "nested, with its name and its schema under `function`",
    "input_schema": "with a name and an `input_schema`, and without the type `function`",
    "declarations": "in a list under `functionDeclarations`",
}
MOST_TOOLS: Final = 128
DEEPEST: Final = 100  # steps
LONGEST: Final = 1000  # characters of a path: names may have any length
STRICT: Final = ("wire.strict_tools = false",)
PARAMETERS: Final = ("parametersJsonSchema", "parameters", "input_schema")
PLAIN_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
NAMES: Final[dict[Dialect, re.Pattern[str]]] = {
    "chat": PLAIN_NAME,
    "responses": PLAIN_NAME,
    "messages": re.compile(r"[a-zA-Z0-9_-]{1,128}"),
    "gemini": re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"),
}
OPENAPI: Final = frozenset(
    {
        *(
            "type",
            "format",
            "title",
            "description",
            "nullable",
            "enum",
            "items",
            "maxItems",
            "minItems",
            "properties",
            "required",
        ),
        *(
            "propertyOrdering",
            "minProperties",
            "maxProperties",
            "minimum",
            "maximum",
            "minLength",
            "maxLength",
            "pattern",
        ),
        *("example", "default", "anyOf"),
    }
)
