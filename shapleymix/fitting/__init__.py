"""From run logs to fitted laws, predictions and comparisons; modules are nouns, and none knows the mixing wing."""
