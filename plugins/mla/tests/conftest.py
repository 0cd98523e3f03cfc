"""What the tests of MLA share. Test folders are no packages, so modules beside the tests are made importable here."""

import importlib.util
import sys
from pathlib import Path

NAME = "mla_requests"
if NAME not in sys.modules and importlib.util.find_spec("kinfolk_mla"):
    spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name(f"{NAME}.py"))
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
