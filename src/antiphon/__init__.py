"""Antiphon: any LLM client to any LLM server, through Open Responses.

The public API is what this module, `antiphon.types`, `antiphon.producer` and `antiphon.testing` export. Every other
module is internal and may change in any release. Names are imported on their first use, so `import antiphon` is fast.

Example:
    import antiphon

    with antiphon.Client(model="mock-1") as client:
        print(client.create("What is the capital of Peru?").output_text)
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers read it as true; importing it from `typing` would take longer than all the rest

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "AntiphonError",
    "ApiError",
    "AsyncClient",
    "BlockingSocket",
    "BlockingStream",
    "Client",
    "ClientFault",
    "ConfigError",
    "InvalidJson",
    "InvalidTransition",
    "InvalidUnicode",
    "InvalidValue",
    "JsonTooDeep",
    "MissingField",
    "Model",
    "OrphanToolOutput",
    "ProfileError",
    "ResponseSocket",
    "ResponseStream",
    "Retries",
    "Timeouts",
    "ToolCall",
    "ToolRun",
    "Turn",
    "UnsupportedParameter",
    "UpstreamFault",
    "__version__",
    "agent",
    "image_from_file",
    "translate",
]

if TYPE_CHECKING:
    from antiphon import translate
    from antiphon.client import (
        AsyncClient,
        BlockingSocket,
        BlockingStream,
        Client,
        Model,
        ResponseSocket,
        ResponseStream,
        Retries,
        Timeouts,
        ToolCall,
        ToolRun,
        image_from_file,
    )
    from antiphon.errors import (
        AntiphonError,
        ApiError,
        ClientFault,
        ConfigError,
        InvalidJson,
        InvalidTransition,
        InvalidUnicode,
        InvalidValue,
        JsonTooDeep,
        MissingField,
        OrphanToolOutput,
        ProfileError,
        UnsupportedParameter,
        UpstreamFault,
    )
    from antiphon.producer.agent import Agent, agent
    from antiphon.producer.turn import Turn
else:
    # Each public name → the module that defines it.
    _MODULES = {
        "translate": "antiphon.translate",
        **dict.fromkeys(("Agent", "Turn", "agent"), "antiphon.producer"),
        **dict.fromkeys(
            (
                "AsyncClient",
                "BlockingSocket",
                "BlockingStream",
                "Client",
                "Model",
                "ResponseSocket",
                "ResponseStream",
                "Retries",
                "Timeouts",
                "ToolCall",
                "ToolRun",
                "image_from_file",
            ),
            "antiphon.client",
        ),
    }

    def __getattr__(name):
        """Imports a public name on its first use (PEP 562)."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(_MODULES.get(name, "antiphon.errors"))
        value = globals()[name] = module if name == "translate" else getattr(module, name)
        return value

    def __dir__():
        """Lists the public names too that are not imported yet."""
        return sorted({*globals(), *__all__})
