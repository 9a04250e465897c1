"""Seals compactions with AES-256-GCM, so that clients can neither read nor change them (CMP-2).

A sealed text has the id of its key and is bound to its owner: another owner cannot open it. The first key seals, all
keys open, so that keys can be rotated.
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
    """Encrypts and decrypts compactions. Loads the keys at the first use: most gateways never compact."""

    def __init__(self, keys: KeySource) -> None:
        self._keys = keys
        self._ciphers: dict[bytes, AESGCM] = {}  # by key id; the first one encrypts

    def encrypt(self, owner: str, content: bytes) -> str:
        """Encrypts `content` to text that only requests of this owner can decrypt."""
        id, cipher = next(iter(self._load_ciphers().items()))
        nonce = secrets.token_bytes(NONCE_BYTES)
        sealed = id + nonce + cipher.encrypt(nonce, content, _associated_data(id, owner))
        return SEAL_MARK + urlsafe_b64encode(sealed).decode().rstrip("=")

    def decrypt(self, owner: str, sealed: str) -> bytes | None:
        """The content; None if it is damaged, forged, of another owner, or sealed with a removed key."""
        from cryptography.exceptions import InvalidTag  # imported here: the package loads slowly

        text = sealed.removeprefix(SEAL_MARK)
        try:
            sealed_bytes = b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except ValueError:
            return None
        id, nonce, ciphertext = (
            sealed_bytes[:KEY_ID_BYTES],
            sealed_bytes[KEY_ID_BYTES : KEY_ID_BYTES + NONCE_BYTES],
            sealed_bytes[KEY_ID_BYTES + NONCE_BYTES :],
        )
        try:
            cipher = self._load_ciphers().get(id)
        except UnsupportedParameter:  # without keys, nothing was sealed here
            return None
        if cipher is None or not sealed.startswith(SEAL_MARK) or len(ciphertext) < TAG_BYTES:
            return None
        try:
            return cipher.decrypt(nonce, ciphertext, _associated_data(id, owner))
        except InvalidTag:
            return None

    def check_keys(self) -> None:
        """Raises if this gateway cannot seal, before any work is done."""
        self._load_ciphers()

    def load_keys(self) -> Sequence[bytes]:
        """The keys, for a worker process of this gateway."""
        return self._keys()

    def _load_ciphers(self) -> dict[bytes, AESGCM]:
        if not self._ciphers:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM

            self._ciphers = {_key_id(key): AESGCM(key) for key in self._keys()}
        return self._ciphers


def has_seal_mark(content: str) -> bool:
    """Whether the content has the mark of an Antiphon seal. The mark alone proves nothing."""
    return ANY_SEAL_MARK.match(content) is not None


def find_sealing_keys(config: Config, environ: Mapping[str, str]) -> KeySource:
    """The source of the keys: the environment, else a file beside the SQLite database, else, with one process and no
    store, memory."""
    if config.compaction.keys_env:
        return lambda: config.compaction.keys(environ)
    file = sqlite_path(config.store, environ)
    if file is not None:
        return lambda: [load_or_create_key(file.with_name(file.name + KEY_FILE_SUFFIX))]
    if config.store.url == "off" and config.server.workers == 1:
        return lambda: [secrets.token_bytes(KEY_BYTES)]
    return _raise_no_key


def load_or_create_key(file: Path) -> bytes:
    """The key in a file. Creates the file if it does not exist; safe with concurrent processes."""
    try:
        if not file.exists():
            _create_key_file(file)
        key = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except OSError as error:
        raise _key_file_error(f"{file} cannot be read or created ({error.strerror})") from error
    except ValueError:
        key = b""
    if len(key) != KEY_BYTES:
        raise _key_file_error(f"{file} contains no valid key: expected {2 * KEY_BYTES} hex digits")
    return key


def _create_key_file(file: Path) -> None:
    """Writes a temporary file and links it: readers see the whole key, and of concurrent writers the first one wins."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary_file = file.with_name(f"{file.name}.{secrets.token_hex(8)}")
    with open(os.open(temporary_file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as key_file:
        key_file.write(secrets.token_hex(KEY_BYTES) + "\n")
        key_file.flush()
        os.fsync(key_file.fileno())
    try:
        os.link(temporary_file, file)
    except FileExistsError:
        pass
    finally:
        temporary_file.unlink()


def _raise_no_key() -> Sequence[bytes]:
    raise UnsupportedParameter(
        "this gateway cannot compact: it has no key to seal compactions; set keys_env in [compaction]"
    )


def _key_file_error(problem: str) -> ConfigError:
    return ConfigError(f"{problem}; repair it, or set keys_env in [compaction]")


def _key_id(key: bytes) -> bytes:
    return sha256(b"antiphon: which key\0" + key).digest()[:KEY_ID_BYTES]


def _associated_data(id: bytes, owner: str) -> bytes:
    return SEAL_MARK.encode() + id + owner.encode("utf-8", "surrogatepass")


SEAL_MARK: Final = "antiphon1."  # a later form has another number
ANY_SEAL_MARK: Final = re.compile(r"antiphon\d+\.")
KEY_BYTES: Final = 32
KEY_ID_BYTES: Final = 4
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
KEY_FILE_SUFFIX: Final = "-compaction.key"
