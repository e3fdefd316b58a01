"""Metrics over a whole data set, from scikit-learn and SciPy."""

import scipy.stats
import sklearn.metrics

# Functions of true and predicted class numbers, or of true and predicted scores.
METRICS = {
    "accuracy": sklearn.metrics.accuracy_score,
    "f1": sklearn.metrics.f1_score,
    "matthews": sklearn.metrics.matthews_corrcoef,
    "pearson": lambda true, predicted: scipy.stats.pearsonr(true, predicted).statistic,
    "spearman": lambda true, predicted: scipy.stats.spearmanr(true, predicted).statistic,
}
