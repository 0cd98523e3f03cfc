"""A HIP device that is none: it records every call, can fail each, and runs kernels on the simulator.

fake = FakeDriver(arch, target="gfx942:sramecc+:xnack-")
fake.teach(artifact)                                    # which kernel's IR stands for which code object
outputs = kinfolk_runtime.call(artifact, tensors, executor=HipExecutor(driver=fake))
"""

from __future__ import annotations

from kinfolk_runtime.hip.fake.driver import Call, FakeDriver, Launched

__all__ = ["Call", "FakeDriver", "Launched"]
