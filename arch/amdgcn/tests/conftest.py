"""What the tests of amdgcn share. Test folders are no packages, so modules beside the tests are made importable."""

import importlib.util
import sys
from pathlib import Path

NAME = "lowered"
if NAME not in sys.modules:
    spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name(f"{NAME}.py"))
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
