"""torchtitan's trainer with the validator of the page `logging.md`: `torchrun ... by_language.py FOLDER`."""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torchtitan_runs import ROOT, STEPS, Case, Loader, config_of, part

PAGE = ROOT / "adapters/docs/logging.md"


class Held(Loader):
    """Two batches of one language, which end."""

    @dataclass(kw_only=True, slots=True)
    class Config(Loader.Config):
        infinite: bool = False
        number: int = 0

    def __init__(self, config: Config, **given: Any) -> None:
        super().__init__(config, **given)
        self.number = config.number

    def __iter__(self) -> Any:
        for step in range(2):
            x, y, _ = part(100 * self.number + step, self.rank)
            yield {"input": x}, y


def main() -> None:
    dist.init_process_group("gloo")
    space: dict[str, Any] = {"__name__": "by_language_page"}
    (block,) = [one for one in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "torchtitan" in one]
    sys.modules["by_language_page"] = sys.modules[__name__]  # where the dataclass looks its module up
    exec(block, space)
    config = config_of(Case("validated"), False, str(Path(sys.argv[1]) / "mix-01"))
    languages = {name: Held.Config(labels=False, number=place) for place, name in enumerate(("en", "de"))}
    config.validator = space["ByLanguage"].Config(enable=True, freq=1, languages=languages)
    config.metrics = replace(config.metrics, enable_tensorboard=True, log_freq=1)
    trainer = config.build()
    trainer.train()
    model, losses = trainer.model_parts[0], {}
    for name, dataloader in languages.items():
        batches = [part(100 * dataloader.number + step, 0) for step in range(2)]
        with torch.no_grad():
            sums = [
                torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten(), reduction="sum")
                for x, y, _ in batches
            ]
        losses[name] = float(sum(sums) / sum((y != -100).sum() for _, y, _ in batches))
    Path(sys.argv[1], "rank0.json").write_text(repr(losses).replace("'", '"'))
    trainer.close()
    assert trainer.step == STEPS
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
