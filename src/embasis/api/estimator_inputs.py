"""Arrays with a classifier of scikit-learn in the place of a network, for `EMBasisClassifier(estimator=…)`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
from torch import nn

from embasis.config import Config
from embasis.errors import ConfigError, join_names, require
from embasis.inputs import InputSettings
from embasis.inputs.table_inputs import TableInputs, fill_for_learner
from embasis.learners import LEARNER_PLAN
from embasis.learners.estimator import EstimatorNetwork, refuse_estimator, warn_of_weights
from embasis.types import Problem


class EstimatorInputs(TableInputs):
    """As tables, with this classifier to learn them."""

    def __init__(self, estimator: Any) -> None:
        refuse_estimator(estimator)
        self.estimator = estimator

    def fill_config(self, config: Config, problem: Problem) -> Config:
        """What a learner needs beside its rows."""
        return fill_for_learner(config, len(problem.labelled))

    def resolve(self, config: Config, shape: tuple[int, ...], same_domain: bool) -> InputSettings:
        """The settings of arrays; those of the classifier are its own."""
        name, given = type(self.estimator).__name__, dict(config.network)
        network = given.pop("name", "linear")
        rule = f"estimator = {name} and network = {network!r} are two learners for one model: leave one out"
        require(network == "linear", rule, ConfigError)
        cure = f"they are parameters of {name} itself"
        require(
            not given,
            f"settings of a network do nothing for estimator = {name}: {join_names(given)}; {cure}",
            ConfigError,
        )
        chosen = super().resolve(msgspec.structs.replace(config, network={}), shape, same_domain)
        return replace(chosen, plan_name=LEARNER_PLAN, resolved={**chosen.resolved, "network": {"name": name}})

    def make_network(self, config: Config, shape: tuple[int, ...], classes: int) -> nn.Module:
        """The classifier as a network."""
        warn_of_weights(self.estimator)
        return EstimatorNetwork(self.estimator, shape, classes)
