"""The memory that a paper config needs on one GPU: ``python scripts/memory.py experiment=arlas_gemma3_12b``."""

from __future__ import annotations

import hydra
from _entry import entry
from omegaconf import DictConfig

from arlas.build import model_name, register, typed
from arlas.memory import SHAPES, memory
from arlas.types import ConfigurationError

register()


@hydra.main(version_base="1.3", config_path="../conf", config_name="train")
@entry
def main(config: DictConfig) -> None:
    """Prints a line for each part, in GiB."""
    run = typed(config)
    model = model_name(run)
    if model not in SHAPES:
        raise ConfigurationError(
            f"the sizes of {model} are not in arlas.memory.SHAPES; there are {', '.join(SHAPES)}"
        )
    shape = SHAPES[model]
    adapter = shape.lora_parameters(run.lora.rank)
    print(f"{model}: {shape.parameters() / 1e9:.2f} G parameters, adapter {adapter / 1e6:.0f} M")
    for name, size in memory(shape, run).items():
        print(f"{size:7.1f} GiB  {name}")


if __name__ == "__main__":
    main()
