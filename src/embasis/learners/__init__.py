"""Classifiers of scikit-learn in the place of a network: any one in Python (estimator.py), and those of trees, which a
run folder can keep without a pickle (trees.py). An entry's settings are its signature, as with networks."""

from embasis.learners.trees import extra_trees, hist_gradient_boosting, random_forest

LEARNERS = {
    "hist_gradient_boosting": hist_gradient_boosting,
    "random_forest": random_forest,
    "extra_trees": extra_trees,
}
LEARNER_PLAN = "learner"
"""The entry of PLANS (runs/parts.py) that all of them are fitted by."""

__all__ = ["LEARNERS", "LEARNER_PLAN"]
