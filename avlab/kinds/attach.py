"""A watch of a vLLM server that somebody else started."""

from avlab.kinds.base import Kind
from avlab.vllm.attach_config import AttachConfig

KIND = Kind(AttachConfig, watches=True)
