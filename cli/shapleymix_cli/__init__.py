"""The `shapleymix` command line: parse, call the library, show. The only place that rounds numbers.

Modules, in reading order:

  console          what a command says: its result on standard output, remarks and failures on standard error
  inputs           logs, tables, fits and laws of one's own, each with its notices and its hash
  command_factory  commands made from functions: options from signatures, values from `shapleymix.toml`
  tables, fits, optimum, figures, exchange, sweeps
                   the commands
  main             the `shapleymix` command: all of them, and what they share
"""
