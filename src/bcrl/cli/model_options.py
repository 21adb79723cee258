"""The options of verbs that let policies act in a model of the log: estimate, calibrate, choose."""

import textwrap
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bcrl.budget import Execution
from bcrl.errors import BCRLError

if TYPE_CHECKING:
    from bcrl.data import Dataset
    from bcrl.estimates import Model
    from bcrl.policy import Policy

OVER = "over: share of the model's episodes that cost more than the threshold"
"""Under tables of estimates."""
_PASSED_ON = ("model", "horizon", "execution", "candidates")


@dataclass(kw_only=True)
class ModelOptions:
    """What `bcrl estimate`, `bcrl calibrate` and `bcrl choose` share."""

    data: Path
    """The log that the policies were trained on."""
    model: Path | None = None
    """File of the learned model, such as log.model: read if it is there, else written."""
    horizon: int | None = None
    """Steps of an episode (default, and at most: the longest logged episode)."""
    execution: Execution = "finite-horizon"
    """How the budget is tracked while acting."""
    candidates: int = 0
    """Draw this many actions each step and take the best of those the cost critic allows; 0 is off."""
    starts: int = 64
    """Logged first states to act from, at most."""
    seed: int = 0
    """Decides the model, the held-out episodes and all draws."""

    def read_log(self) -> "Dataset":
        """The log, in memory."""
        from bcrl.data import load_data

        return load_data(self.data, storage="memory")

    def arguments(self, policies: "Collection[Policy]", data: "Dataset") -> dict[str, Any]:
        """The keyword arguments of `bcrl.estimate`, `bcrl.calibrate` and `bcrl.choose`."""
        from bcrl.estimates.log import check_policies

        check_policies(policies, data)  # before a model is learned for nothing
        return {
            "model": self._model(data),
            "horizon": self.horizon,
            "execution": self.execution,
            "candidates": self.candidates,
            "starts": self.starts,
            "seed": self.seed,
        }

    def print_episodes(self, data: "Dataset") -> None:
        """Says which episodes the numbers are for."""
        lengths, steps = data.episode_lengths, self.horizon or data.horizon
        said = f"of {steps} steps at most"
        if lengths.min() < lengths.max() and not data.terminals.any():  # the model ends none of them early
            said = f"all of {steps} steps; the log's episodes have {lengths.mean():.4g} on average"
        print(textwrap.fill(f"for episodes that start as the log's do, {said}", 80))

    def passed_on(self) -> list[object]:
        """What `bcrl calibrate` is to be given as this command was, where it is not the default."""
        given = ((name, getattr(self, name)) for name in _PASSED_ON)
        pairs = [(f"--{name}", value) for name, value in given if value != getattr(ModelOptions, name)]
        return [word for pair in pairs for word in pair]

    def _model(self, data: "Dataset") -> "Model | None":
        """The model in the file; if there is no file, it is learned and written there."""
        from bcrl.cli.out import check_writable
        from bcrl.estimates import Model, fit_model

        if self.model is None:
            return None
        if self.model.is_file():
            model = Model.load(self.model)
            try:
                model.check(data)
            except BCRLError as error:
                raise BCRLError(f"--model {self.model}: {error}, or name another file") from None
            return model
        check_writable(self.model)
        model = fit_model(data, seed=self.seed)
        model.save(self.model)
        print(f"the model: {self.model}")
        return model
