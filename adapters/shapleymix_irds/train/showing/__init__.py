"""What a run shows while it goes on.

Modules, in reading order:

  measured   what a run has measured so far, for those who look on
  telemetry  what a run shows and keeps: its metrics, as plain lines and in metrics.jsonl
  heat       a matrix as a heat table
  picture    a matrix as a picture and as a text
  live       the live view of a run on a terminal
  loggers    TensorBoard, and Weights & Biases
"""
