"""What the tests of amdgcn share. Test folders are no packages, so modules beside the tests are made importable."""

import importlib.util
import sys
from pathlib import Path

for name in ("lowered", "by_words"):
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
