"""`dialects/gemini/models`: resource names, requests at paths, and listed models."""

import pytest

from antiphon.dialects import gemini
from antiphon.dialects.gemini.models import model_resource_name
from antiphon.errors import InvalidValue

BODY = b'{"contents":[{"parts":[{"text":"Hi"}]}]}'


@pytest.mark.parametrize("model", ["..", "../files", "models/../files", "a//b", "a/./b", "a/", "/a", "models/"])
def test_model_with_path_traversal_is_refused(model: str) -> None:
    """Security: no field of a request chooses another path of the server."""
    with pytest.raises(InvalidValue) as caught:
        model_resource_name(model)
    assert caught.value.param == "model"


@pytest.mark.parametrize(("action", "streams"), [("generateContent", False), ("streamGenerateContent", True)])
def test_path_has_the_model_and_the_choice_of_a_stream(action: str, streams: bool) -> None:
    request, _ = gemini.request_at_path(f"/v1beta/models/lab/m:1:{action}", BODY)
    assert (request.model, request.stream) == ("lab/m:1", streams)


def test_models_are_listed_by_resource_names() -> None:
    actions = ["generateContent", "streamGenerateContent", "countTokens"]
    model = {"name": "models/m", "displayName": "m", "supportedGenerationMethods": actions}
    assert gemini.models_from_hub(["m"]) == {"models": [model]}
