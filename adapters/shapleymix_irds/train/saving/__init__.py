"""What outlives a process: checkpoints, what is read of them, and the model that is left.

Modules, in reading order:

  checksums       the checksums of a folder, in the format of `sha256sum`
  shards          one rank's part of a checkpoint: a safetensors file of the blocks that it holds
  tensors         the tensors of a run by name: those of the model, and those that its optimiser keeps
  checkpoint      checkpoints that are whole or not there: weights, optimiser, data position and tracker of one step
  recorded        what a checkpoint says of its run, held against what a run can have
  resuming        where a run goes on: at its newest checkpoint that is whole, if it is the same run
  exported        the folder of an exported model: new, empty, or an earlier export as it was written
  export          a trained model as a folder that `transformers` loads, in safetensors of at most 5 GB each
  export_command  `shapleymix-irds export`
"""
