"""Description of the machine and its software versions."""

import platform
import re
from collections.abc import Iterator
from importlib import metadata
from typing import Any

PACKAGES = r"jax|jaxlib|jax[-_].*|libtpu|flax|optax|numpy|orbax-checkpoint|nvidia-(cudnn|cublas|cuda-nvcc).*"


def look(seconds: float) -> Iterator[dict[str, Any]]:
    """Yield the devices and versions (in a child process)."""
    del seconds
    import jax

    from fedjax_sel import strategies

    jax.block_until_ready(jax.jit(lambda x: x + 1)(1))
    device = jax.devices()[0]
    limit = (device.memory_stats() or {}).get("bytes_limit")
    yield {
        "platform": device.platform,
        "devices": f"{len(jax.devices())} x {device.device_kind}",
        "device_megabytes": None if limit is None else round(limit / 1e6),
        "compute_capability": getattr(device, "compute_capability", None),
        "driver": " ".join(str(device.client.platform_version).split()),
        "python": platform.python_version(),
        "strategies": list(strategies.names()),
        "versions": {
            name: one.version
            for one in sorted(metadata.distributions(), key=lambda one: str(one.metadata["Name"]))
            if re.fullmatch(PACKAGES, name := str(one.metadata["Name"]).lower())
        },
    }
