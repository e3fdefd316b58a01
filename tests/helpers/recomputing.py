"""Scores from labels and predictions, by scikit-learn and SciPy, without our own code."""

from collections.abc import Sequence

import scipy.stats
import sklearn.metrics


def recompute(metric: str, labels: Sequence[float], answers: Sequence[float]) -> float:
    """Computes a metric; a correlation counts as 0 if all predictions are the same."""
    if metric in ("pearson", "spearman"):
        if len(set(answers)) == 1:
            return 0.0
        correlate = {"pearson": scipy.stats.pearsonr, "spearman": scipy.stats.spearmanr}[metric]
        return float(correlate(labels, answers)[0])
    compute = {
        "accuracy": sklearn.metrics.accuracy_score,
        "f1": sklearn.metrics.f1_score,
        "matthews": sklearn.metrics.matthews_corrcoef,
    }[metric]
    return float(compute([int(label) for label in labels], [int(answer) for answer in answers]))
