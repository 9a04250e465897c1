"""`dialects/messages/models`: listed models."""

from antiphon.dialects import messages


def test_list_names_its_first_and_last_model() -> None:
    listed = messages.models_from_hub(["a", "b"])
    assert (listed["first_id"], listed["last_id"], [model["id"] for model in listed["data"]]) == ("a", "b", ["a", "b"])


def test_empty_list_has_no_first_and_last_model() -> None:
    assert messages.models_from_hub([]) == {"data": [], "has_more": False, "first_id": None, "last_id": None}
