"""Metrics over a whole data set, from scikit-learn."""

import sklearn.metrics

# Functions of true and predicted class numbers.
METRICS = {
    "accuracy": sklearn.metrics.accuracy_score,
    "matthews_correlation": sklearn.metrics.matthews_corrcoef,
}
