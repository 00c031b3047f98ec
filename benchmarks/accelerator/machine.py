"""What this machine is, and which code it runs."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PACKAGES = r"jax|jaxlib|jax[-_].*|libtpu|flax|optax|numpy|orbax-checkpoint|nvidia-(cudnn|cublas|cuda-nvcc).*"


def look(seconds: float) -> Iterator[dict[str, Any]]:
    """Yield what the devices are, and the versions (in a child process)."""
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
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "python": platform.python_version(),
        "strategies": list(strategies.names()),
        "versions": {
            name: one.version
            for one in sorted(metadata.distributions(), key=lambda one: str(one.metadata["Name"]))
            if re.fullmatch(PACKAGES, name := str(one.metadata["Name"]).lower())
        },
    }


def answer(seconds: float) -> Iterator[dict[str, Any]]:
    """Yield something once the devices are there: with a flag that XLA does not know they never are."""
    yield from look(seconds)


def processor() -> str:
    """Return the CPU's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if os.path.exists("/proc/cpuinfo") else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def commit() -> str | None:
    """Return the commit of this checkout, with a mark where files differ from it; None where git cannot tell."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        return None

    def git(*arguments: str) -> str:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "HEAD") + (" and changes" if changed else "")) or None
