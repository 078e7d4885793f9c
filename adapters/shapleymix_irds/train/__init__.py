"""Train one language model on one mixture: the proxy runs, the coalition runs and the Shapley run."""
