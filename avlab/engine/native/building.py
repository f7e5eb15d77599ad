"""Building the native library: once, in the cache folder, under a name made of source, compiler and processor."""

import functools
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

from avlab.engine.fetch import cache_folder

SOURCES = sorted(path for path in Path(__file__).parent.iterdir() if path.suffix in (".cpp", ".h"))
FLAGS = (
    *("-O3", "-march=native", "-std=c++17", "-fopenmp", "-shared", "-fPIC"),
    # sums may be reordered, so that they use vectors; infinities and what is not a number keep their meaning
    *("-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros"),
)


@functools.cache
def built() -> tuple[str, str]:
    """The path of the library, built where it is not yet; or why there is none."""
    name = os.environ.get("CXX", "g++")
    compiler = shutil.which(name)
    if os.environ.get("AVLAB_NATIVE") == "0":
        return "", "AVLAB_NATIVE=0 turns them off"
    if platform.system() != "Linux":
        return "", f"they are built on Linux only, this is {platform.system()}"
    if compiler is None:
        return "", f"there is no compiler {name} here"
    try:
        version = subprocess.run([compiler, "--version"], capture_output=True, check=True, timeout=20).stdout
        parts = [*(path.read_bytes() for path in SOURCES), repr(FLAGS).encode(), version, _processor()]
        digest = hashlib.sha256(b"\0".join(parts)).hexdigest()
        path = cache_folder() / "native" / f"{digest[:20]}.so"
        if not path.exists():
            _build(compiler, path)
        return str(path), ""
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        return (
            "",
            f"{name} failed: {next((line for line in said if 'error' in line), said[-1] if said else '')}",
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return "", f"they could not be built: {error}"


def _build(compiler: str, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / "native.so"
        units = [str(source) for source in SOURCES if source.suffix == ".cpp"]
        subprocess.run(
            [compiler, *FLAGS, *units, "-o", str(made)], capture_output=True, check=True, timeout=300
        )
        made.replace(path)  # several processes may build at once, with the same result


def _processor() -> bytes:
    """What -march=native depends on: the processor's model and its extensions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    wanted = {line for line in lines if line.split("\t")[0].split(" ")[0] in ("model", "flags", "Features")}
    return "\n".join(sorted(wanted)).encode()
