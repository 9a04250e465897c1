"""Profiles from files: the shipped ones by name, a user's own by path or by name from folders. All reading is in `_text_of`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from antiphon.errors import ProfileError
from antiphon.profiles.profile import Profile, parse_profile
from antiphon.profiles.suggestions import suggestion_or_known_names

PROFILE_SUFFIX = ".toml"


def load_profile(name_or_path: str | Path, *, folders: Iterable[str | Path] = ()) -> Profile:
    """A profile: by path if it looks like one (a slash, or `.toml`), else by name, in `folders` first, then among the shipped."""
    places: list[Traversable] = [*map(Path, folders), files("antiphon.profiles")]
    return _load(_find(str(name_or_path), places, ()), places, ())


def profile_names(*, folders: Iterable[str | Path] = ()) -> list[str]:
    """Every profile that can be loaded by name."""
    return _names([*map(Path, folders), files("antiphon.profiles")])


def is_profile_path(name_or_path: str) -> bool:
    """Whether a profile is meant by its file, not by its name."""
    return name_or_path.endswith(PROFILE_SUFFIX) or "/" in name_or_path or "\\" in name_or_path


def _load(file: Traversable, places: Sequence[Traversable], chain: tuple[Traversable, ...]) -> Profile:
    if file in chain:
        raise ProfileError(f"profiles extend each other in a circle: {' extends '.join(map(str, (*chain, file)))}")
    chain = (*chain, file)
    return parse_profile(
        _text_of(file),
        file.name.removesuffix(PROFILE_SUFFIX),
        file=str(file),
        find_parent=lambda name: _load(_find(name, places, chain), places, chain),
    )


def _find(name: str, places: Sequence[Traversable], chain: tuple[Traversable, ...]) -> Traversable:
    """The file behind a name, or behind a path; a path in a file is meant from its own folder."""
    if is_profile_path(name):
        beside = [Path(str(file)).parent for file in chain[-1:]]
        return Path(*beside, name).resolve()
    found = [place / f"{name}{PROFILE_SUFFIX}" for place in places if (place / f"{name}{PROFILE_SUFFIX}").is_file()]
    # A user's own file may extend the shipped one of the same name.
    found = [file for file in found if file not in chain[-1:]] or found
    if not found:
        raise ProfileError(f"no profile is named {name!r}{suggestion_or_known_names(name, _names(places))}")
    return found[0]


def _names(places: Iterable[Traversable]) -> list[str]:
    found = [file.name for place in places if place.is_dir() for file in place.iterdir()]
    return sorted({name.removesuffix(PROFILE_SUFFIX) for name in found if name.endswith(PROFILE_SUFFIX)})


def _text_of(file: Traversable) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{file}: is not UTF-8") from None
