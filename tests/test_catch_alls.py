"""A handler that catches every exception and does not re-raise it hides bugs. Only the places in a table here may."""

from __future__ import annotations

import ast

import pytest
from tests.sources import REPO

pytestmark = pytest.mark.without_coverage
SOURCE = REPO / "src" / "antiphon"
#: Each module with such handlers → how many it has, and why.
ALLOWED = {
    "client/functions.py": 1,  # runs the user's function; the model gets the error
    "gateway/request_scope.py": 2,  # the scope of a request, and of a call for a connection outside of a request
    "gateway/worker.py": 1,  # a worker process reports the fault of a job to the gateway
    "producer/agent.py": 1,  # runs the user's agent; the client gets an error, the log the exception
    "store/sqlite/threads.py": 2,  # hand the exception to the caller in another thread
    "upstream/http_response.py": 1,  # hands the exception of a sink from the socket to the task that waits
}


@pytest.mark.slow
def test_catch_alls_are_listed() -> None:
    counts = {
        path.relative_to(SOURCE).as_posix(): count
        for path in sorted(SOURCE.rglob("*.py"))
        if (count := _count_catch_alls(path.read_text(encoding="utf-8")))
    }
    assert counts == ALLOWED


def test_catch_alls_are_found_in_every_form() -> None:
    handlers = ["except:", "except Exception:", "except BaseException as e:", "except (OSError, Exception):"]
    for handler in handlers:
        assert _count_catch_alls(f"try:\n    f()\n{handler}\n    pass\n") == 1, handler
        assert _count_catch_alls(f"try:\n    f()\n{handler}\n    raise\n") == 0, handler
    assert _count_catch_alls("with suppress(Exception):\n    f()\n") == 1
    assert _count_catch_alls("try:\n    f()\nexcept OSError:\n    pass\n") == 0


def _count_catch_alls(source: str) -> int:
    nodes = list(ast.walk(ast.parse(source)))
    handlers = [node for node in nodes if isinstance(node, ast.ExceptHandler) and _catches_all(node.type)]
    swallowing = [handler for handler in handlers if not any(isinstance(node, ast.Raise) for node in ast.walk(handler))]
    suppressing = [
        node
        for node in nodes
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "suppress"
        and any(_catches_all(argument) for argument in node.args)
    ]
    return len(swallowing) + len(suppressing)


def _catches_all(kind: ast.expr | None) -> bool:
    if isinstance(kind, ast.Tuple):
        return any(_catches_all(member) for member in kind.elts)
    return kind is None or (isinstance(kind, ast.Name) and kind.id in ("Exception", "BaseException"))
