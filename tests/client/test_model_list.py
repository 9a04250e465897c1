"""The list of models of a server."""

from __future__ import annotations

import pytest

from antiphon.client.model_list import read_models
from antiphon.errors import UpstreamFault


def test_read_models_reads_the_form_of_every_dialect() -> None:
    """API-5."""
    [model] = read_models(b'{"object":"list","data":[{"id":"mock-1","object":"model","owned_by":"lab","more":1}]}')
    assert (model.id, model.owned_by) == ("mock-1", "lab")
    [model] = read_models(b'{"models":[{"name":"models/mock-1","displayName":"Mock"}]}')
    assert (model.id, model.owned_by) == ("mock-1", "")
    assert read_models(b'{"data":[]}') == []


@pytest.mark.parametrize("body", [b'{"object": "list"}', b"[]", b'{"data":[{"name":"x"}]}', b"<html>"])
def test_read_models_refuses_anything_else(body: bytes) -> None:
    with pytest.raises(UpstreamFault, match="not a list of models") as caught:
        read_models(body)
    assert caught.value.code == "upstream_invalid_response"
