"""Conversations (API-4): what a client sends and is told of them. What they are made of are items, as everywhere."""

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
    """That it is gone."""

    id: str
    object: Literal["conversation.deleted"] = "conversation.deleted"
    deleted: Literal[True] = True
