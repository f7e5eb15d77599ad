"""vLLM's environment holds no pyarrow: its worker starts without it, and reads its configuration by its kind."""

import subprocess
import sys

from places import ROOT

SCRIPT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyarrow", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, Missing())
import avlab.workers.vllm
from avlab.kinds.registry import make_config
print(make_config({"serve": "org/model"}, "vllm").kind)
"""


def test_the_worker_of_vllm_starts_without_pyarrow():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.stdout.split() == ["vllm"], done.stderr
