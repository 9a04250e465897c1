"""Runs the functions of one driver, each a feature of a client, and writes a line of JSON for each.

`python run.py DRIVER FOLDER FEATURE…`: `DRIVER` is a module beside this file with a function for each feature.
`FOLDER/setup_FEATURE.py` is the documented set-up of the client, for the model of this feature. `SETUP_VARIABLE` names the
variable of the set-up that is the model, if it has several. The results are in
`FOLDER/results.jsonl`; a function that raises has its traceback as `error`.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace


def main(driver: str, folder: Path, features: list[str]) -> None:
    module = importlib.import_module(driver)
    with (folder / "results.jsonl").open("w", encoding="utf-8") as results:
        for feature in features:
            try:
                setup = folder / f"setup_{feature}.py"
                names = SimpleNamespace(**runpy.run_path(str(setup))) if setup.exists() else None
                if variable := os.environ.get("SETUP_VARIABLE"):
                    names.model = getattr(names, variable)
                result = getattr(module, feature)(names, f"lab-{feature}")
            except Exception:
                result = {"error": traceback.format_exc()}
            results.write(json.dumps({"feature": feature, **result}) + "\n")
            results.flush()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])
