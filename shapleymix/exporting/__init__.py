"""A mixture as trainers take it: a file or keywords, exact, in the trainer's unit, with the epochs that it makes.

Modules, in reading order:

  corpora       where each language's data lie: paths, their unique tokens and mean lengths, read from a table
  streams       what a trainer draws from: corpora with weights that sum to one exactly, in its unit
  limits        what a mixture's bounds allow a run, whose tokens may be others than those of the optimum
  blends        a mixture as a trainer draws it: without zeros, over corpora, with the epochs that it makes
  notation      values as YAML and Python that read back the same, and the lines that say what a blend is
  formats       what every format states: its unit, what it draws, its keywords and its file
  megatron      Megatron-LM: weights and prefixes, for training alone or a split each
  hugging_face  Hugging Face datasets and LLaMA-Factory, which draw documents
  samples       MosaicML Streaming and LitData, which draw samples
  olmo_core     OLMo-core: target ratios, and how often a source may repeat
  torchtitan    torchtitan: data sources of packed sequences
  configs       nanotron, levanter, and plain JSON
  export        the formats by their names, and a mixture in one of them
"""
