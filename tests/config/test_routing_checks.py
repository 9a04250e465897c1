"""Faults of `[[models]]`: unknown upstreams, duplicates, and rules that can never apply."""

from __future__ import annotations

import pytest

from antiphon.config import Config, ModelConfig, TargetConfig, UpstreamConfig
from antiphon.config.checks import find_problems

UPSTREAMS = [UpstreamConfig(name=name, dialect="chat", base_url=f"http://{name}/v1") for name in ("one", "two")]
ONE, TWO = TargetConfig(upstream="one", model="x"), TargetConfig(upstream="two", model="y")
HEAVY = TargetConfig(upstream="one", model="x", weight=3)
SECOND = TargetConfig(upstream="two", model="y", priority=2)


def problems_of(*models: ModelConfig) -> list[str]:
    return [str(problem) for problem in find_problems(Config(upstreams=UPSTREAMS, models=[*models]), {})]


def test_valid_models_have_no_problems() -> None:
    assert (
        problems_of(
            ModelConfig(name="a", targets=[ONE, SECOND], on_context_length=[TWO]),
            ModelConfig(name="b", targets=[ONE, TWO], strategy="fastest", prefer="fewest-losses"),
            ModelConfig(name="c", targets=[ONE], on_refusal=[TWO]),
            ModelConfig(name="d", targets=[HEAVY, TWO]),
        )
        == []
    )


@pytest.mark.parametrize(
    ("model", "path", "words"),
    [
        (ModelConfig(name="", targets=[ONE]), "name", "expected the name of a model"),
        (ModelConfig(name="gpt-*", targets=[ONE]), "name", 'without *, got "gpt-*"'),
        (ModelConfig(name="m", targets=[]), "targets", "empty: expected at least one target"),
        (
            ModelConfig(name="m", targets=[TargetConfig(upstream="oen", model="x")]),
            "targets[0].upstream",
            "did you mean 'one'?",
        ),
        (
            ModelConfig(name="m", targets=[ONE], on_refusal=[TargetConfig(upstream="two", model="*")]),
            "on_refusal[0].model",
            "without *",
        ),
        (ModelConfig(name="m", targets=[ONE, ONE]), "targets[1]", "the same target as an earlier one"),
        (ModelConfig(name="m", targets=[ONE, SECOND], strategy="fastest"), "strategy", "can never apply"),
        (ModelConfig(name="m", targets=[ONE], prefer="fewest-losses"), "prefer", "can never apply"),
        (ModelConfig(name="m", targets=[ONE], on_context_length=[ONE]), "on_context_length[0]", "can never apply"),
        (ModelConfig(name="m", targets=[ONE], on_refusal=[TWO, ONE]), "on_refusal[1]", "can never apply"),
        (ModelConfig(name="m", targets=[HEAVY, SECOND]), "targets[0].weight", "no other target has the priority 1"),
        (ModelConfig(name="m", targets=[TWO], on_refusal=[HEAVY]), "on_refusal[0].weight", "can never apply"),
    ],
)
def test_faulty_model_has_one_problem_with_its_path(model: ModelConfig, path: str, words: str) -> None:
    (problem,) = problems_of(model)
    assert problem.startswith(f"models[0].{path}: ")
    assert words in problem


def test_second_entry_of_a_name_can_never_apply() -> None:
    (problem,) = problems_of(ModelConfig(name="m", targets=[ONE]), ModelConfig(name="m", targets=[TWO]))
    assert problem.startswith('models[1].name: duplicate name "m"')
