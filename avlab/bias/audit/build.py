"""The target and the drafter of an audit: on the CPU or the device asked for, and a block drafter."""

from avlab.bias.audit.rules import AuditError
from avlab.config import RunConfig
from avlab.engine.build import Progress, choose_device, choose_drafter, choose_dtype
from avlab.engine.drafters.block import BlockDrafter
from avlab.engine.fetch import target_folder
from avlab.engine.target import Target
from avlab.engine.text import Text

CONTEXT = 512  # positions of an audit's target


def load(
    config: RunConfig, K: int, context: int | None, progress: Progress = lambda text, done, total: None
) -> tuple[Target, BlockDrafter, Text]:
    """Weights as the configuration names them. Raises AuditError, CheckpointError or FetchError.

    context: positions of the target of an audit, which is in float32; None to serve as a run would.
    """
    import torch

    folder, device = target_folder(config.target), choose_device(config.device)
    kind, drafter_folder, _ = choose_drafter(config.drafter, folder)
    if kind is None or kind.name != "block" or drafter_folder is None:
        raise AuditError(
            "An audit needs a block drafter that fits the target: leave --drafter at default with the default "
            "target, or give the folder of one."
        )
    progress("loading the target", 0, 0)
    dtype = torch.float32 if context else choose_dtype(config.dtype, device)
    target = Target(folder, dtype, device, context or config.max_model_len)
    progress("loading the drafter", 0, 0)
    return target, BlockDrafter(drafter_folder, target, K), Text(folder)
