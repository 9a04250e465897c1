"""Wire types of conversations (API-4). Their items are the ordinary item types."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from antiphon.protocol.base import Shape
from antiphon.protocol.items import ItemParam
from antiphon.protocol.request import Metadata

NewItems = Annotated[list[ItemParam], Meta(max_length=20)]


class CreateConversation(Shape, frozen=True, kw_only=True):
    """The body of `POST /conversations`."""

    items: NewItems | None | UnsetType = UNSET
    metadata: Metadata | None | UnsetType = UNSET


class UpdateConversation(Shape, frozen=True, kw_only=True):
    """The body of `POST /conversations/{id}`."""

    metadata: Metadata | None


class AddItems(Shape, frozen=True, kw_only=True):
    """The body of `POST /conversations/{id}/items`."""

    items: NewItems


class ConversationResource(Shape, frozen=True, kw_only=True):
    """A conversation, without its items."""

    id: str
    object: Literal["conversation"] = "conversation"
    created_at: int
    metadata: Metadata


class DeletedConversation(Shape, frozen=True, kw_only=True):
    """The answer to `DELETE /conversations/{id}`."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: Literal[True] = True
