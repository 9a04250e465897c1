"""`dialects/ollama/models`: the forms of `/api/tags` and `/api/show`."""

from antiphon.dialects.ollama import model_from_hub, models_from_hub


def test_list_names_each_model_twice() -> None:
    """Clients read `model`, older ones `name`."""
    listed = models_from_hub(["a", "b"])["models"]
    assert [(model["name"], model["model"]) for model in listed] == [("a", "a"), ("b", "b")]


def test_model_has_the_members_that_clients_require() -> None:
    shown = model_from_hub("a", ["completion"])
    assert {"details", "model_info", "capabilities", "modified_at"} <= shown.keys()
    assert shown["model_info"]["general.basename"] == "a"


def test_model_has_its_context_size_under_the_name_of_its_architecture() -> None:
    """Clients build the name of the field from `general.architecture`."""
    info = model_from_hub("a", ["completion"], 8192)["model_info"]
    assert info[f"{info['general.architecture']}.context_length"] == 8192
    assert not any("context_length" in name for name in model_from_hub("a", ["completion"])["model_info"])
