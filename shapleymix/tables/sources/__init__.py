"""Runs where other tools keep them: folders, databases and servers, each as one sheet.

Modules, in reading order:

  histories    runs with the numbers that they logged at each step, as a sheet
  tensorboard  folders of TensorBoard events
  mlflow       MLflow's stores: a database, a server, a folder
  wandb        runs of Weights & Biases, by its API
  opening      any source as a sheet: which reader
"""
