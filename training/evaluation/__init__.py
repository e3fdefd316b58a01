"""What models predict and how good it is: metrics, calibration, likelihoods, baselines, plots."""
