"""vLLM's own Python code from an unpacked wheel, on a machine without a GPU: what needs CUDA is a stand-in.

Import this before vLLM. `pretend(vendor, capability, ...)` makes vLLM believe in a GPU; its selector, its backends,
their builders' class methods, its validators and EngineArgs are its own and run on configurations alone.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types
from unittest.mock import MagicMock

ABSENT = (
    "vllm._C_stable_libtorch", "vllm._moe_C_stable_libtorch", "vllm._C", "vllm._moe_C", "vllm._qutlass_C",
    "vllm.cumem_allocator", "vllm._flashmla_C", "vllm._flashmla_extension_C", "vllm.spinloop", "vllm._rocm_C",
    "vllm.vllm_flash_attn._vllm_fa2_C", "vllm.vllm_flash_attn._vllm_fa3_C", "flashinfer", "deep_gemm",
    "vllm.third_party.deep_gemm", "pynvml", "vllm.third_party.pynvml", "tokenspeed_mla", "flash_mla", "cutlass",
    "tvm_ffi", "quack", "xgrammar", "llguidance", "outlines_core", "lmformatenforcer", "anthropic", "mcp",
    "opentelemetry", "cv2", "nvtx", "tilelang", "uvicorn", "cuda", "model_hosting_container_standards", "amdsmi",
)  # fmt: skip


MORE = ("aiter",) if os.environ.get("AVLAB_AITER") else ()  # AMD's library, in every image for ROCm
KERNELS = {
    "cutlass_scaled_mm_supports_block_fp8",
    "cutlass_scaled_mm_supports_fp8",
    "cutlass_scaled_mm_supports_fp4",
}


class _Absent(types.ModuleType):
    """A module of which every name is a mock."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = MagicMock(name=f"{self.__name__}.{name}")
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in (*ABSENT, *MORE)):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        return _Absent(spec.name)

    def exec_module(self, module):
        pass


def prepare():
    """Put the unpacked wheel and the stand-ins in place."""
    os.environ |= {"TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}
    sys.meta_path.insert(0, _Finder())
    sys.path[:0] = [os.environ["AVLAB_VLLM_WHEEL"]]
    if more := os.environ.get("AVLAB_VLLM_LIBRARIES"):
        sys.path.append(more)
    compilation = types.ModuleType(
        "vllm.compilation.backends"
    )  # compiles for CUDA; the selector asks for the tag
    compilation.model_tag = "backbone"
    sys.modules["vllm.compilation.backends"] = compilation
    import torch

    made = torch.empty

    def elsewhere(*shape, device=None, **more):  # workspaces that modules take at import
        return made(*shape, device="meta" if str(device).startswith("cuda") else device, **more)

    torch.empty = elsewhere
    plain = torch._ops._OpNamespace.__getattr__

    def forgiving(self, name):
        try:
            return plain(self, name)
        except AttributeError:
            if name not in KERNELS:
                raise
            return MagicMock(name=name)

    torch._ops._OpNamespace.__getattr__ = forgiving


def pretend(vendor, capability, name="stand-in", memory_gib=80.0):
    """Make vLLM's platform this GPU. Call it before any of vLLM's attention modules is imported."""
    import vllm.platforms as platforms
    from vllm.platforms.interface import DeviceCapability

    if vendor == "amd":
        import amdsmi  # the stand-in

        generation = {"target_graphics_version": "gfx950" if tuple(capability) >= (9, 5) else "gfx942"}
        amdsmi.amdsmi_get_processor_handles = lambda: [0]
        amdsmi.amdsmi_get_gpu_asic_info = lambda handle: generation
        from vllm.platforms.rocm import RocmPlatform as Base
    else:
        from vllm.platforms.cuda import CudaPlatformBase as Base
    told = DeviceCapability(*capability)

    class Platform(Base):
        @classmethod
        def get_device_capability(cls, device_id=0):
            return told

        @classmethod
        def has_device_capability(cls, capability, device_id=0):
            asked = capability if isinstance(capability, tuple) else divmod(capability, 10)
            return tuple(told) >= tuple(asked)

        @classmethod
        def get_device_name(cls, device_id=0):
            return name

        @classmethod
        def get_device_total_memory(cls, device_id=0):
            return int(memory_gib * 2**30)

        @classmethod
        def num_compute_units(cls, device_id=0):
            return 132

        @classmethod
        def device_count(cls):
            return 8

    platforms._current_platform = Platform()
    import vllm.utils.deep_gemm as deep_gemm
    import vllm.utils.flashinfer as flashinfer

    deep_gemm.has_deep_gemm = lambda: True
    flashinfer.has_nvidia_artifactory = lambda: True
    flashinfer.has_flashinfer = lambda: True
    return Platform
