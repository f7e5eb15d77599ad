"""Lets vLLM's adaptive loop run without a GPU: its Triton kernels under Triton's interpreter, and stand-ins for what
only a GPU has (a driver, full graphs, timed graphs). Nothing that decides what is sampled is replaced.

Import this before vllm, in a process of its own. The environment must hold TRITON_INTERPRET=1.
"""

import importlib.abc
import importlib.util
import os
import sys

assert os.environ.get("TRITON_INTERPRET") == "1", "Triton reads it when it is imported"


def driver(backends) -> None:
    """A Triton backend named cpu, so that vLLM believes that Triton can run here."""
    base = backends.backends["nvidia"]

    class Driver(base.driver):
        def __init__(self):
            pass

        @staticmethod
        def is_active():
            return True

        def get_current_target(self):
            from triton.backends.compiler import GPUTarget

            return GPUTarget("cpu", 0, 1)

        def get_current_device(self):
            return 0

        def get_active_torch_device(self):
            import torch

            return torch.device("cpu")

        def get_device_interface(self):
            import torch

            return torch.cpu

        def get_current_stream(self, *_):
            return 0

    backends.backends["cpu"] = backends.Backend(base.compiler, Driver)


def masks(interpreter) -> None:
    """Masked loads and stores take masks of integers, as a compiled kernel does."""
    import numpy as np

    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def boolean(mask):
        if mask.data.dtype == np.bool_:
            return mask
        return interpreter.TensorHandle(mask.data.astype(np.bool_), interpreter.tl.int1)

    builder.create_masked_load = lambda self, p, mask, *rest: load(self, p, boolean(mask), *rest)
    builder.create_masked_store = lambda self, p, value, mask, *rest: store(
        self, p, value, boolean(mask), *rest
    )


def functions(libdevice) -> None:
    """CUDA's mathematical functions, by numpy."""
    import numpy as np

    def unary(function):
        def call(x, *_, **__):
            import triton.language as tl
            from triton.runtime.interpreter import TensorHandle

            handle = x.handle
            with np.errstate(all="ignore"):
                return tl.core.tensor(
                    TensorHandle(function(handle.data).astype(handle.data.dtype), handle.dtype), x.type
                )

        return call

    for name in ("log1p", "expm1", "log", "exp", "log2", "sqrt", "tanh"):
        setattr(libdevice, name, unary(getattr(np, name)))


MENDS = {
    "triton.backends": driver,
    "triton.runtime.interpreter": masks,
    "triton.language.extra.libdevice": functions,
}


class Mender(importlib.abc.MetaPathFinder):
    """Mends modules of Triton as they are imported."""

    def find_spec(self, name, path, target=None):
        mend = MENDS.pop(name, None)
        if mend is None:
            return None
        spec = importlib.util.find_spec(name)
        execute = spec.loader.exec_module

        def executed(module):
            execute(module)
            mend(module)

        spec.loader.exec_module = executed
        return spec


sys.meta_path.insert(0, Mender())


def without_graphs(draft_curve, verify_curve) -> None:
    """Adaptive verification without captured graphs, at these step costs instead of timed ones."""
    import vllm.config.vllm as configuration
    import vllm.v1.worker.cpu.shm
    import vllm.v1.worker.gpu.model_runner as runner
    import vllm.v1.worker.gpu.spec_decode.adaptive_verification as adaptive
    from vllm.config import CUDAGraphMode

    configuration.VllmConfig._validate_adaptive_verification = lambda self: None
    adaptive.get_varlen_cudagraph_unsupported_backend = lambda *_, **__: None
    runner.resolve_adaptive_cudagraph_mode = lambda mode, **_: CUDAGraphMode.NONE
    adaptive._assign_draft_token_budget_compiled = adaptive._assign_draft_token_budget
    begin = adaptive.AdaptiveVerificationManager.__init__

    def begun(self, *args, **named):
        begin(self, *args, **named)
        self.set_cost_curves(draft_curve, verify_curve)

    adaptive.AdaptiveVerificationManager.__init__ = begun
