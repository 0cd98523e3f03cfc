"""What the tests of lowering share. Test folders are no packages, so a module beside the tests is made importable here."""

import importlib.util
import sys
from pathlib import Path

NAME = "lowered"
if NAME not in sys.modules:
    spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name(f"{NAME}.py"))
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
