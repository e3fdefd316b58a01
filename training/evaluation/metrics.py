"""Metrics over a whole data set, from scikit-learn and SciPy."""

from collections.abc import Callable

import numpy as np
import scipy.stats
import sklearn.metrics

Metric = Callable[[np.ndarray, np.ndarray], float]

# Functions of true and predicted class indices, or of true and predicted scores.
METRICS: dict[str, Metric] = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1": sklearn.metrics.f1_score,
    "matthews": sklearn.metrics.matthews_corrcoef,
    "pearson": lambda true, predicted: scipy.stats.pearsonr(true, predicted).statistic,
    "spearman": lambda true, predicted: scipy.stats.spearmanr(true, predicted).statistic,
}
