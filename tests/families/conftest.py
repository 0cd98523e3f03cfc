"""The families here are examples that nobody installs: their own tests import them from their sources."""

import sys
from pathlib import Path

sys.path[:0] = [str(folder) for folder in sorted(Path(__file__).parent.glob("*/src"))]
