"""Losses: what a translation could not carry, with path and reason (F-4, REQ-6)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct


class Loss(Struct, frozen=True, cache_hash=True):
    """One value that a translation could not carry."""

    path: str
    what: str
    why: str = ""

    def __str__(self) -> str:
        return f"{self.path}: {self.what}" + (f" ({self.why})" if self.why else "")


class Losses:
    """Collects losses. Equal ones are stored once, because a stream would repeat them with every chunk.

    At most `MAX_LISTED_LOSSES` are listed. The others are only counted, in one last loss. The count is an upper limit:
    a loss that is not stored cannot be recognised when it is repeated.
    """

    # Set with the first loss: most translations lose nothing, and a request makes eight of these.
    _listed: Mapping[Loss, None] = MappingProxyType({})
    _unlisted_count = 0

    def add(self, path: str, what: str, why: str = "") -> None:
        """Adds a loss. Clients read the names of their own members, without the prefix that they have in the hub."""
        if ":" in path or ":" in what:
            path, what = HUB_PREFIX.sub("", path), HUB_PREFIX.sub("", what)
        if max(len(path), len(what), len(why)) > MAX_TEXT_LENGTH:
            path, what, why = map(_truncate, (path, what, why))
        self._add_loss(Loss(path, what, why))

    @classmethod
    def merge(cls, parts: Iterable[Losses]) -> Losses:
        """The losses of several translations."""
        losses = cls()
        for part in parts:
            if part._listed:
                losses.extend(part)
        return losses

    def extend(self, others: Losses) -> None:
        if not others._listed:
            return
        if others._unlisted_count:
            self._unlisted_count += others._unlisted_count
        if not self._listed:
            self._listed = dict(others._listed)
            return
        if len(self._listed) + len(others._listed) <= MAX_LISTED_LOSSES:
            self._listed = {**self._listed, **others._listed}
            return
        for loss in others._listed:
            self._add_loss(loss)

    def _add_loss(self, loss: Loss) -> None:
        if len(self._listed) < MAX_LISTED_LOSSES:
            if not isinstance(self._listed, dict):
                self._listed = {}
            self._listed[loss] = None
        elif loss not in self._listed:
            self._unlisted_count += 1

    def __iter__(self) -> Iterator[Loss]:
        yield from self._listed
        if self._unlisted_count:
            yield Loss("...", f"up to {self._unlisted_count} more losses, which are not listed")

    def __len__(self) -> int:
        """The number of losses that iteration yields."""
        return len(self._listed) + (self._unlisted_count > 0)

    def __repr__(self) -> str:
        return f"Losses({list(self)!r})"


def _truncate(text: str) -> str:
    return text if len(text) <= MAX_TEXT_LENGTH else text[: MAX_TEXT_LENGTH - 1] + "…"


#: The prefix of a name that only one dialect has (REQ-7), at the start of a path or in the description of a loss. Names
#: of a client's own, such as those of its tools, may look the same and stay.
HUB_PREFIX: Final = re.compile(
    r"(?:^|(?<=field ')|(?<=option ')|(?<=type ')|(?<=choice '))"
    r"(?:chat|gemini|messages|ollama|responses):(?:body\.)?(?=\w)"
)
MAX_LISTED_LOSSES: Final = 1000
MAX_TEXT_LENGTH: Final = 500  # characters of a path, of what was lost, and of why
