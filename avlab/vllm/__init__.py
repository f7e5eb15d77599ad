"""Everything that concerns vLLM. Only an engine that is opened imports it: the lab attaches and advises without.

    serve_line.py   a `vllm serve` command as data: read, changed, printed; options.py: the names that vLLM has
    launch.py       how people start it, in a shell; manifests.py, units.py, launch_files.py: compose, Kubernetes, units
    presets/        the systems the method was published with, one TOML file each
    settings.py     what decides whether adaptive verification starts, from a command or from a running server
    doctor/         the gates and cautions over such settings and a machine
    metrics.py      the text of /metrics, and what it says of an interval
    server.py       a server somebody else started: its endpoints, its key, its sentences
    attach.py       that server's run; intervals.py, inside.py: its counters as frames, its worker extension
    extension.py    what vLLM's own worker tells, and the switch of its verification; runs there
    telemetry.py    the same in a file, for servers in production; ring.py reads it; sidecar/: for Prometheus
    drained.py      what it told, as frames
    engine.py       vLLM behind the reference engine's methods; serving_config.py, reporting.py

Imports are absolute throughout, so that `vllm` is always the package of that name and this folder always `avlab.vllm`.
"""

PACKAGE = "vllm"
SERVED = "0.33.0"  # the version that requirements-gpu.txt installs


class VllmError(RuntimeError):
    """Something about vLLM that the reader must know. The message is one sentence."""


class NotInstalled(VllmError):
    """vLLM is needed and is not there."""

    def __init__(self, what: str):
        super().__init__(
            f"vLLM is not installed in this environment, and {what} needs it: make setup GPU=1 on a machine with a "
            "GPU, or pip install -r requirements-gpu.txt and pip install --no-deps -e . there."
        )
