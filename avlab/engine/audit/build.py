"""The target and the drafter of an audit: float32 on the CPU or the device asked for, and a block drafter."""

from avlab.config import RunConfig
from avlab.engine.audit.rules import AuditError
from avlab.engine.audit.shared import SharedDrafter
from avlab.engine.build import Progress, choose_device, choose_drafter
from avlab.engine.fetch import target_folder
from avlab.engine.target import Target
from avlab.engine.text import Text

CONTEXT = 512


def load(
    config: RunConfig, K: int = 2, progress: Progress = lambda text, done, total: None
) -> tuple[Target, SharedDrafter, Text]:
    """Weights as the configuration names them. Raises AuditError, CheckpointError or FetchError."""
    import torch

    folder = target_folder(config.target)
    kind, drafter_folder, _ = choose_drafter(config, folder)
    if kind != "block" or drafter_folder is None:
        raise AuditError(
            "An audit needs a block drafter that fits the target: leave --drafter at default with the default "
            "target, or "
            "give the folder of one."
        )
    progress("loading the target", 0, 0)
    target = Target(folder, torch.float32, choose_device(config.device), CONTEXT)
    progress("loading the drafter", 0, 0)
    return target, SharedDrafter(drafter_folder, target, K), Text(folder)
