"""The commands, a file for each part of the work: each is the function of its name."""
