"""Names of sources that are no files: stores of MLflow, projects of Weights & Biases."""

from __future__ import annotations

WANDB = "wandb:"
MLFLOW = ("sqlite:", "http://", "https://", "mlflow:", "postgresql", "mysql", "databricks", "file:")


def is_address(name: str) -> bool:
    """Whether a name is an address, which is the same in every folder."""
    return name.startswith((WANDB, *MLFLOW))
