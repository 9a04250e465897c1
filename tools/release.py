"""Builds the files of a release and checks them: `python tools/release.py [--out dist] [--quick-start]`.

1. Builds sdist and wheels twice, from two exports of HEAD in different folders; the files must be equal.
2. Checks their metadata with twine, their links, and what they contain.
3. Installs the wheels into a clean environment, lists the licences of all that is installed, and writes an SBOM.
4. With `--quick-start`, starts the gateway there and asks the embedded model.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from tools import clean_install, package_description  # noqa: E402

#: Tools of the release, pinned so that two machines build the same files.
TOOLS: Final = ("build==1.6.1", "setuptools==84.2.1", "wheel==0.48.0", "twine==7.0.0", "cyclonedx-bom==7.5.0")
REQUIRED_FILES: Final = ("antiphon/py.typed", "antiphon/profiles/openai.toml", "licenses/LICENSE")
#: Parts of a path that must not be in a wheel or an sdist.
FORBIDDEN_PARTS: Final = ("tests", "bench", "soak", ".git", ".venv", "node_modules")
# Prints the licence of every distribution of an environment. `License-Expression` is the newest of three fields.
LICENCES: Final = """
import json
from importlib.metadata import distributions
rows = {}
for distribution in distributions():
    metadata = distribution.metadata
    classifiers = [line for line in metadata.get_all("Classifier", []) if line.startswith("License")]
    names = ", ".join(line.rpartition(" :: ")[2] for line in classifiers)
    licence = metadata.get("License-Expression") or names or metadata.get("License") or ""
    rows[metadata["Name"]] = [distribution.version, licence.partition("\\n")[0][:60]]
print(json.dumps(rows))
"""


class ReleaseError(Exception):
    """A check failed."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Builds and checks a release.")
    parser.add_argument("--out", type=Path, default=ROOT / "dist", help="the folder for the files")
    parser.add_argument("--quick-start", action="store_true", help="also ask the embedded model of the wheel")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as work:
            check_release(Path(work), args.out, has_quick_start=args.quick_start)
    except ReleaseError as error:
        sys.exit(f"the release is not ready: {error}")


def check_release(work: Path, out: Path, *, has_quick_start: bool) -> None:
    python = make_tools(work)
    epoch = commit_time()
    check_version(source_version(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    builds = [build(python, work / name, epoch) for name in ("first", "second/of/two")]
    check_equal(*builds)
    for file in builds[0]:
        check_contents(file)
        check_links(file)
    run(python, "-m", "twine", "check", "--strict", *map(str, builds[0]))
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    for file in builds[0]:
        shutil.copy(file, out)
        print(f"{digest(file)}  {file.name}")
    tools = clean_install.make_tools(work / "installers")
    for file in out.glob("antiphon-*.whl"):
        shutil.copy(file, tools.wheels)
    with clean_install.clean_environment(tools, work) as environment:
        command = clean_install.install_with_pip(tools, environment, sys.executable, "antiphon[local]")
        installed_python = str(Path(command[0]).with_name("python"))
        print(licence_table(json.loads(run(installed_python, "-c", LICENCES))))
        write_sbom(python, installed_python, out, epoch)
        if has_quick_start:
            answer = clean_install.first_answer(environment, command)
            if "Lima" not in answer:
                raise ReleaseError(f"the embedded model of the wheel answered {answer!r}")
            print(f"quick start: {clean_install.QUESTION} {answer}")
    print(f"the release is ready: {out}")


def make_tools(work: Path) -> str:
    run(sys.executable, "-m", "venv", str(work / "build-tools"))
    python = str(work / "build-tools" / "bin" / "python")
    run(python, "-m", "pip", "install", "-q", *TOOLS)
    return python


def commit_time() -> str:
    """The time of the commit, which all files of the release get."""
    return run("git", "-C", str(ROOT), "log", "-1", "--format=%ct").strip()


def source_version() -> str:
    text = (ROOT / "src/antiphon/__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise ReleaseError("src/antiphon/__init__.py has no __version__")
    return match[1]


def check_version(version: str, changelog: str) -> None:
    """The version is a release, and the newest one of the changelog."""
    if not re.fullmatch(r"\d+\.\d+\.\d+", version):
        raise ReleaseError(f"__version__ is {version!r}: expected three numbers, such as '0.1.0'")
    releases = re.findall(r"^## (\d+\.\d+\.\d+) — \d{4}-\d{2}-\d{2}$", changelog, re.MULTILINE)
    if releases[:1] != [version]:
        raise ReleaseError(f"the newest release of CHANGELOG.md is {releases[:1]}: expected {version!r} with its date")


def build(python: str, folder: Path, epoch: str) -> list[Path]:
    """Builds both packages from an export of HEAD. Returns the files in the order of their names."""
    source, out = folder / "source", folder / "dist"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "-C", str(ROOT), "archive", "HEAD"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(source, filter="data")
    prepare_metadata(source, package_description.repository_address(os.environ))
    variables = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    run(python, "-m", "build", "--no-isolation", "--outdir", str(out), str(source), env=variables)
    model_package = str(source / "tools/build_model_package.py")
    run(python, model_package, "--out", str(out), env=variables)
    for file in out.glob("*.tar.gz"):
        normalize_sdist(file, int(epoch))
    return sorted(out.iterdir())


def prepare_metadata(source: Path, repository: str | None) -> None:
    """Makes the README of an export fit for a package index, and adds the addresses of the project."""
    tag = f"v{source_version()}"
    readme, pyproject = source / "README.md", source / "pyproject.toml"
    text = package_description.description(readme.read_text(encoding="utf-8"), repository, tag)
    readme.write_text(text, encoding="utf-8")
    text = package_description.with_addresses(pyproject.read_text(encoding="utf-8"), repository, tag)
    pyproject.write_text(text, encoding="utf-8")


def normalize_sdist(file: Path, epoch: int) -> None:
    """Writes an sdist again without what differs between machines: times, owners, and the order of its files."""
    content = io.BytesIO()
    with tarfile.open(file) as old, tarfile.open(fileobj=content, mode="w", format=tarfile.PAX_FORMAT) as new:
        for member in sorted(old.getmembers(), key=lambda member: member.name):
            member.mtime = epoch
            member.uid = member.gid = 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    with file.open("wb") as output, gzip.GzipFile("", "wb", 9, output, mtime=epoch) as compressed:
        compressed.write(content.getvalue())


def check_equal(first: list[Path], second: list[Path]) -> None:
    digests = [{file.name: digest(file) for file in files} for files in (first, second)]
    different = {name for name in digests[0].keys() | digests[1].keys() if digests[0].get(name) != digests[1].get(name)}
    if different:
        raise ReleaseError(f"two builds differ: {', '.join(sorted(different))}")


def digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_contents(file: Path) -> None:
    """A wheel has its licence, its types and its data, and no file has tests or tools of the project."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            names = wheel.namelist()
    else:
        with tarfile.open(file) as sdist:
            names = [name.partition("/")[2] for name in sdist.getnames()]
    required = REQUIRED_FILES if file.name.startswith("antiphon-") and file.suffix == ".whl" else ("LICENSE",)
    missing = [part for part in required if not any(name.endswith(part) for name in names)]
    if missing:
        raise ReleaseError(f"{file.name} lacks {', '.join(missing)}")
    unwanted = [name for name in names if set(Path(name).parts) & set(FORBIDDEN_PARTS)]
    if unwanted:
        raise ReleaseError(f"{file.name} contains {unwanted[0]}")


def check_links(file: Path) -> None:
    """The description in the metadata has no link that a package index cannot resolve."""
    if file.suffix == ".whl":
        with zipfile.ZipFile(file) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            text = wheel.read(name).decode()
        if links := package_description.relative_links(text):
            raise ReleaseError(f"the description in {file.name} has relative links: {', '.join(links)}")


def licence_table(rows: Mapping[str, Iterable[str]]) -> str:
    """The licences of the installed packages."""
    unknown = [name for name, (_, licence) in rows.items() if not licence]
    if unknown:
        raise ReleaseError(f"packages without a licence: {', '.join(sorted(unknown))}")
    lines = [
        f"{name} {version}: {licence}" for name, (version, licence) in sorted(rows.items(), key=lambda row: row[0])
    ]
    return "\n".join(["licences of what an installation has:", *(f"  {line}" for line in lines)])


def write_sbom(python: str, installed_python: str, out: Path, epoch: str) -> None:
    """Writes the software bill of materials of an installation with the embedded model, in CycloneDX's format."""
    file = out / "sbom.cdx.json"
    command = str(Path(python).with_name("cyclonedx-py"))
    options = ["--output-reproducible", "--pyproject", str(ROOT / "pyproject.toml"), "-o", str(file)]
    run(command, "environment", *options, installed_python, env={**os.environ, "SOURCE_DATE_EPOCH": epoch})
    components = json.loads(file.read_bytes())["components"]
    if "msgspec" not in {component["name"] for component in components}:
        raise ReleaseError("the SBOM lacks msgspec")
    print(f"SBOM: {len(components)} components, {file.name}")


def run(*command: str, env: Mapping[str, str] | None = None) -> str:
    """Runs a command to its end and returns its output."""
    result = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if result.returncode:
        raise ReleaseError(f"{' '.join(command)} ended with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


if __name__ == "__main__":
    main()
