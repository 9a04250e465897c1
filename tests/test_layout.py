"""Every module has a test module: `a/b/c.py` has `a/b/test_c.py`, or a row in a table here."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest
from tests.sources import REPO

SOURCE = REPO / "src" / "antiphon"
TESTS = REPO / "tests"

#: Test modules that test modules of other names too, through their public functions.
TESTED_BY = {
    "api/test_app.py": ["api/models.py"],
    "api/test_openapi.py": [
        "api/dialect_operations.py",
        "api/documented_errors.py",
        "api/openapi_schemas.py",
        "api/operation.py",
        "api/routes.py",
    ],
    "api/test_completions.py": ["testing/completions.py"],
    "api/test_embeddings.py": [
        "dialects/common/embeddings.py",
        "dialects/gemini/embeddings.py",
        "dialects/ollama/embeddings.py",
        "gateway/routed_request.py",
        "protocol/embeddings.py",
        "testing/embeddings.py",
    ],
    "api/test_turn_endpoints.py": ["profiles/client_headers.py"],
    "api/test_state.py": ["api/stored_responses.py", "api/item_pages.py", "http/query_parameters.py"],
    "check/test_cases.py": ["check/case.py", "check/cases/*.py", "check/catalogue.py", "check/prompts.py"],
    "check/test_session.py": ["check/exchange.py", "check/findings.py", "check/run.py"],
    "check/test_stream.py": ["check/sse_form.py"],
    "cli/test_entry.py": ["__main__.py", "cli/exits.py"],
    "client/test_asynchronous.py": ["client/stream.py"],
    "client/test_exchange.py": ["client/retries.py"],
    "config/test_checks.py": ["config/problem.py"],
    "config/test_loading.py": ["profiles/toml_source.py"],
    "diagnosis/test_lint.py": ["diagnosis/*.py", "protocol/suggestions.py"],
    "dialects/common/test_token_count.py": ["dialects/messages/token_count.py", "dialects/responses/token_count.py"],
    "dialects/ollama/test_stream_in.py": ["dialects/ollama/response_wire.py"],
    "testing/ollama/test_rules.py": ["rules/ollama.py"],
    "rules/test_responses.py": ["rules/responses_members.py", "rules/responses_reasoning.py"],
    "dialects/test_registry.py": ["dialects/dialect.py", "rules/table.py"],
    "dialects/chat/test_stream_in.py": [
        "dialects/chat/answer_in.py",
        "dialects/chat/call_tracker.py",
        "dialects/chat/lenient_decoding.py",
        "dialects/chat/response_wire.py",
    ],
    "dialects/chat/test_stream_out.py": ["dialects/chat/answer_out.py"],
    "dialects/gemini/test_history_out.py": ["dialects/gemini/content_out.py"],
    "dialects/gemini/test_request_out.py": ["dialects/gemini/wire.py"],
    "dialects/gemini/test_stream_in.py": ["dialects/gemini/answer_in.py", "dialects/gemini/response_wire.py"],
    "dialects/gemini/test_stream_out.py": ["dialects/gemini/answer_out.py"],
    "dialects/messages/test_history_in.py": ["dialects/messages/content_in.py"],
    "dialects/messages/test_stream_in.py": [
        "dialects/messages/answer_in.py",
        "dialects/messages/lenient_decoding.py",
        "dialects/messages/response_wire.py",
    ],
    "dialects/messages/test_stream_out.py": ["dialects/messages/answer_out.py"],
    "dialects/responses/test_stream_in.py": ["dialects/responses/response_wire.py"],
    "dialects/vscode/test_history_in.py": ["dialects/vscode/content_in.py"],
    "dialects/vscode/test_request_in.py": ["dialects/vscode/wire.py"],
    "dialects/vscode/test_stream_out.py": ["dialects/vscode/errors.py"],
    "faults/test_background.py": ["api/background_*.py"],
    "gateway/test_background_runner.py": ["gateway/background_job.py"],
    "gateway/test_history.py": ["gateway/stored_items.py"],
    "gateway/test_output_limits.py": ["protocol/output_limits.py"],
    "gateway/test_prepare_turn.py": ["gateway/remote_preparation.py"],
    "gateway/test_turn.py": ["gateway/context.py"],
    "gateway/test_worker_pool.py": ["gateway/worker.py"],
    "gateway/routing/test_attempts.py": ["gateway/routing/records.py"],
    "ops/test_run.py": ["api/serve_api.py"],
    "ops/test_telemetry.py": ["ops/otel.py"],
    "probe/test_conclusions.py": ["probe/*.py"],
    "producer/test_agent.py": ["producer/integration.py", "producer/turn.py", "system_stamps.py"],
    "profiles/test_quirks.py": ["profiles/quirks/rewriting.py"],
    "protocol/test_codec.py": [
        "protocol/content.py",
        "protocol/conversation.py",
        "protocol/events.py",
        "protocol/items.py",
        "protocol/tools.py",
    ],
    "protocol/test_grammar.py": ["protocol/grammar_*.py"],
    "protocol/test_writer.py": ["protocol/stamps.py"],
    "rules/test_agreement.py": ["rules/gemini/refusing.py", "rules/messages/members.py"],
    "store/postgres/test_store.py": ["store/postgres/*.py"],
    "store/sqlite/test_store.py": ["store/sqlite/*.py"],
    "store/test_conversation_laws.py": ["store/conversations.py"],
    "store/test_laws.py": ["store/interface.py", "store/keys.py", "store/record.py"],
    "store/test_usage_laws.py": ["store/usage.py", "store/usage_sums.py"],
    "store/test_work_laws.py": ["store/work.py"],
    "testing/gemini/test_server.py": [
        "testing/gemini/errors.py",
        "testing/gemini/prompt.py",
        "testing/gemini/signatures.py",
        "testing/gemini/turn_rendering.py",
    ],
    "testing/messages/test_server.py": [
        "testing/messages/errors.py",
        "testing/messages/issued_thoughts.py",
        "testing/messages/prompt.py",
    ],
    "testing/responses/test_rules.py": ["testing/rules.py"],
    "testing/test_harness.py": ["testing/script.py"],
    "trace/test_writer.py": ["trace/finished_trace.py"],
    "upstream/test_embedded.py": ["upstream/embedded_child.py"],
}


def _mirror(module: str) -> str:
    """The path of the test module for a module: `api/test_app.py` for `api/app.py`."""
    folder, _, file = module.rpartition("/")
    return f"{folder}/test_{file.strip('_')}".lstrip("/").replace("__.py", ".py")


MODULES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py") if path.name != "__init__.py")
WITHOUT_MIRROR = [module for module in MODULES if not (TESTS / _mirror(module)).is_file()]
ROWS = [(test, pattern) for test, patterns in TESTED_BY.items() for pattern in patterns]


def test_every_module_has_a_test_module() -> None:
    untested = [module for module in WITHOUT_MIRROR if not any(fnmatch(module, pattern) for _, pattern in ROWS)]
    assert {module: f"write tests/{_mirror(module)}, or add a row to TESTED_BY" for module in untested} == {}


@pytest.mark.parametrize(("test", "pattern"), ROWS)
def test_rows_name_test_modules_and_modules_without_a_mirror(test: str, pattern: str) -> None:
    assert (TESTS / test).is_file(), "no such test module"
    assert any(fnmatch(module, pattern) for module in WITHOUT_MIRROR), "every such module has its own test module"


def test_mirrors_are_named_after_their_module() -> None:
    assert _mirror("api/app.py") == "api/test_app.py"
    assert _mirror("store/sqlite/work.py") == "store/sqlite/test_work.py"
    assert _mirror("testing/__main__.py") == "testing/test_main.py"
    assert _mirror("sse.py") == "test_sse.py"
