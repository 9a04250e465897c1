"""What the content of a compaction is sealed with: AES-256-GCM, so that clients can neither read nor change it (CMP-2).

A seal says which key made it, and is bound to its owner: what is somebody else's does not open. The first key seals, all of them
open, so that keys can be changed while old seals are still about.
"""

from __future__ import annotations

import os
import re
import secrets
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from antiphon.config import Config
from antiphon.errors import ConfigError, UnsupportedParameter
from antiphon.store.opening import sqlite_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KeySource = Callable[[], Sequence[bytes]]


class Seal:
    """Seals and opens. The keys are looked for when one is needed first: most gateways never compact anything."""

    def __init__(self, keys: KeySource) -> None:
        self._keys = keys
        self._ciphers: dict[bytes, AESGCM] = {}  # by the id of the key; the first seals

    def encrypt(self, owner: str, content: bytes) -> str:
        """`content` as text that only this owner's requests can bring back."""
        id, cipher = next(iter(self._ready().items()))
        nonce = secrets.token_bytes(NONCE)
        sealed = id + nonce + cipher.encrypt(nonce, content, _bound_to(id, owner))
        return SEAL_MARK + urlsafe_b64encode(sealed).decode().rstrip("=")

    def decrypt(self, owner: str, sealed: str) -> bytes | None:
        """The content; None if it is damaged, forged, somebody else's, or older than the oldest key."""
        from cryptography.exceptions import InvalidTag  # the package takes a while to load, which most need not wait for

        text = sealed.removeprefix(SEAL_MARK)
        try:
            data = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        id, nonce, rest = data[:KEY_ID], data[KEY_ID : KEY_ID + NONCE], data[KEY_ID + NONCE :]
        try:
            cipher = self._ready().get(id)
        except UnsupportedParameter:  # without a key nothing can be ours
            return None
        if cipher is None or not sealed.startswith(SEAL_MARK) or len(rest) < TAG:
            return None
        try:
            return cipher.decrypt(nonce, rest, _bound_to(id, owner))
        except InvalidTag:
            return None

    def check_keys(self) -> None:
        """Raises what keeps this gateway from sealing anything, before any work is done for it."""
        self._ready()

    def _ready(self) -> dict[bytes, AESGCM]:
        if not self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = {_id_of(key): AESGCM(key) for key in self._keys()}
        return self._ciphers


def has_seal_mark(content: str) -> bool:
    """Whether a gateway like this one sealed it, or somebody who would like us to think so."""
    return ANY_MARK.match(content) is not None


def find_sealing_keys(config: Config, environ: Mapping[str, str]) -> KeySource:
    """Where the keys are: in the environment, else in a file beside the SQLite database, else, where nothing is kept and there is
    one process, in its memory alone."""
    if config.compaction.keys_env:
        return lambda: config.compaction.keys(environ)
    file = sqlite_path(config.store, environ)
    if file is not None:
        return lambda: [load_or_create_key(file.with_name(file.name + KEY_FILE_SUFFIX))]
    if config.store.url == "off" and config.server.workers == 1:
        return lambda: [secrets.token_bytes(KEY)]
    return _no_key


def load_or_create_key(file: Path) -> bytes:
    """The key in a file, which is made if it is not there: by one of all who look for it at once."""
    try:
        if not file.exists():
            _make(file)
        key = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except OSError as error:
        raise _unusable(f"{file} cannot be read or made ({error.strerror})") from error
    except ValueError:
        key = b""
    if len(key) != KEY:
        raise _unusable(f"{file} holds no key: wanted {2 * KEY} hex digits")
    return key


def _make(file: Path) -> None:
    """Written aside and then put in its place: whoever finds it finds all of it, and whoever comes second finds the first one's."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    aside = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    with open(os.open(aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as written:
        written.write(secrets.token_hex(KEY) + "\n")
        written.flush()
        os.fsync(written.fileno())
    try:
        os.link(aside, file)
    except FileExistsError:
        pass
    finally:
        aside.unlink()


def _no_key() -> Sequence[bytes]:
    raise UnsupportedParameter(
        "this gateway cannot compact: it has no key to seal what it makes. Whoever runs it names one in [compaction] keys_env"
    )


def _unusable(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; mend it, or name a key in [compaction] keys_env")


def _id_of(key: bytes) -> bytes:
    return sha256(b"antiphon: which key\0" + key).digest()[:KEY_ID]


def _bound_to(id: bytes, owner: str) -> bytes:
    return SEAL_MARK.encode() + id + owner.encode("utf-8", "surrogatepass")


SEAL_MARK: Final = "antiphon1."  # a later form has another number
ANY_MARK: Final = re.compile(r"antiphon\d+\.")
KEY: Final = 32
KEY_ID: Final = 4
NONCE: Final = 12
TAG: Final = 16
KEY_FILE_SUFFIX: Final = "-compaction.key"
