"""A run's configuration as the engine is built from it."""

from pathlib import Path

from avlab.config import RunConfig
from avlab.engine.build import BuildSettings
from avlab.engine.engine import EngineConfig


def build_settings(config: RunConfig) -> BuildSettings:
    """The settings that concern the engine."""
    return BuildSettings(
        target=config.target,
        drafter=config.drafter,
        K=config.K,
        arm=config.arm,
        arm_chosen="policy" in config.model_fields_set,
        head=config.head,
        features=config.reading([config.arm]).recorded_features,
        device=config.device,
        dtype=config.dtype,
        max_model_len=config.max_model_len,
        costs=Path(config.costs).expanduser() if config.costs else None,
        serving=EngineConfig(
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            new_request=config.new_request,
            measure_costs=config.measures_costs,
        ),
    )
