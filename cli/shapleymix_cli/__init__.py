"""The `shapleymix` command line: parse, call the library, show. The only place that rounds numbers.

Modules, in reading order:

  tables      what people see of every result: lines, and tables that fold at the width of the page
  console     what a command says: its result on standard output, everything else on standard error
  failures    failures as one message with its place and hint, and an exit code
  signatures  options made from the functions of the library
  project     values of options from `shapleymix.toml`
  making      commands made from functions
  inputs      logs, tables, fits and laws of one's own, each with its notices and its hash
  commands    tables, fits, mixtures, figures, trainers, sweeps
  main        the `shapleymix` command
"""
