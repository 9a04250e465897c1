"""Tests of the parser that runs the Dockerfile without Docker; `make check-image` runs the whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.image_in_root import Stage, Step, parse_dockerfile, run_step

ROOT = Path(__file__).parents[2]


def test_dockerfile_is_read_with_continued_lines_and_without_comments() -> None:
    text = "# a comment\nFROM x AS build\nRUN one \\\n    && two\n# another\nUSER 5\n"
    assert parse_dockerfile(text) == [Step("FROM", "x AS build"), Step("RUN", "one && two"), Step("USER", "5")]


def test_settings_of_a_stage_are_those_of_its_instructions(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"PATH": "/bin"})
    for step in (
        Step("ENV", "PATH=/opt/bin:$PATH HOME=/data"),
        Step("USER", "10001"),
        Step("WORKDIR", "/data"),
        Step("ENTRYPOINT", '["antiphon"]'),
        Step("HEALTHCHECK", '--interval=15s CMD ["true"]'),
        Step("EXPOSE", "8080"),
    ):
        run_step(step, stage, {})
    assert stage.variables == {"PATH": "/opt/bin:/bin", "HOME": "/data"}
    assert (stage.user, stage.folder, stage.entry_point, stage.health_check) == (
        "10001",
        "/data",
        ("antiphon",),
        ("true",),
    )
    assert (tmp_path / "data").is_dir()


def test_files_are_copied_from_the_project_and_from_other_stages(tmp_path: Path) -> None:
    build, final = Stage(tmp_path / "a", {}, "/src"), Stage(tmp_path / "b", {})
    (tmp_path / "a/src").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    run_step(Step("COPY", "LICENSE README.md ./"), build, {})
    run_step(Step("COPY", "--from=build /src /opt/src"), final, {"build": build})
    assert (tmp_path / "b/opt/src/LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("name", ["FROM", "RUN", "COPY", "USER", "HEALTHCHECK", "ENTRYPOINT", "VOLUME"])
def test_dockerfile_of_the_project_has_the_instruction(name: str) -> None:
    steps = parse_dockerfile((ROOT / "Dockerfile").read_text(encoding="utf-8"))
    assert name in {step.name for step in steps}
