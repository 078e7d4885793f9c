"""What comes in: run logs, Shapley value matrices, languages tables, and the labels and numbers in them."""
