"""Load profiles from files: shipped profiles by name, the user's by path or by name from folders.

Only `_read_text` reads files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from antiphon.errors import ProfileError
from antiphon.profiles.profile import Profile, parse_profile
from antiphon.protocol.suggestions import suggest_names

PROFILE_SUFFIX = ".toml"


def load_profile(name_or_path: str | Path, *, folders: Iterable[str | Path] = ()) -> Profile:
    """Load a profile: by path if the argument has a slash or ends in `.toml`; else by name, from `folders` first, then
    from the shipped profiles."""
    search_folders: list[Traversable] = [*map(Path, folders), files("antiphon.profiles")]
    return _load_file(_find_file(str(name_or_path), search_folders, ()), search_folders, ())


def profile_names(*, folders: Iterable[str | Path] = ()) -> list[str]:
    """Return the names of all profiles that can be loaded by name."""
    return _profile_names_in([*map(Path, folders), files("antiphon.profiles")])


def is_profile_path(name_or_path: str) -> bool:
    """Whether the argument is a path and not a name."""
    return name_or_path.endswith(PROFILE_SUFFIX) or "/" in name_or_path or "\\" in name_or_path


def _load_file(file: Traversable, search_folders: Sequence[Traversable], chain: tuple[Traversable, ...]) -> Profile:
    if file in chain:
        raise ProfileError(f"circular extends: {' extends '.join(map(str, (*chain, file)))}")
    chain = (*chain, file)
    return parse_profile(
        _read_text(file),
        file.name.removesuffix(PROFILE_SUFFIX),
        file=str(file),
        find_parent=lambda name: _load_file(_find_file(name, search_folders, chain), search_folders, chain),
    )


def _find_file(name: str, search_folders: Sequence[Traversable], chain: tuple[Traversable, ...]) -> Traversable:
    """Return the file for a name or a path. A path in a profile is relative to that profile's folder."""
    if is_profile_path(name):
        base_folders = [Path(str(file)).parent for file in chain[-1:]]
        return Path(*base_folders, name).resolve()
    matches = [
        folder / f"{name}{PROFILE_SUFFIX}"
        for folder in search_folders
        if (folder / f"{name}{PROFILE_SUFFIX}").is_file()
    ]
    # A user's own file may extend the shipped one of the same name.
    matches = [file for file in matches if file not in chain[-1:]] or matches
    if not matches:
        raise ProfileError(f"unknown profile {name!r}{suggest_names(name, _profile_names_in(search_folders))}")
    return matches[0]


def _profile_names_in(search_folders: Iterable[Traversable]) -> list[str]:
    file_names = [file.name for folder in search_folders if folder.is_dir() for file in folder.iterdir()]
    return sorted({name.removesuffix(PROFILE_SUFFIX) for name in file_names if name.endswith(PROFILE_SUFFIX)})


def _read_text(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{file}: is not UTF-8") from None
