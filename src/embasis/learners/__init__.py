"""Classifiers of scikit-learn in the place of a network: any one in Python, those of trees on the command line."""
