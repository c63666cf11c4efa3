"""MLflow and Weights & Biases."""
