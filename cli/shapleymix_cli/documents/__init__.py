"""What `--json` prints and `-o` writes."""
