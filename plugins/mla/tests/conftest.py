"""What the tests of MLA share. Test folders are no packages, so modules beside the tests are made importable here."""

import importlib.util
import sys
from pathlib import Path

NAMES = ("mla_requests", "mla_batches", "mla_toy_arch")
for name in NAMES:
    if name not in sys.modules and importlib.util.find_spec("kinfolk_mla"):
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
