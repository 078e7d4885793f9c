"""The `shapleymix` command line: parse, call the core, show. The only place that rounds numbers.

Modules, in reading order:

  streams    the three standard streams: stand-ins where they were closed; a result that cannot be written is an error
  budgets    sizes and token counts that a command works at: those given, or the one that the fit knows
  own_laws   laws by name, or from a user's own file, whose faults are told as the user's
  documents  what `--json` prints and `-o` writes
  flags      keywords of the core in a text as the flags of the command that runs
  console    what a command says: its result on standard output, everything else on standard error
  failures   failures as people and programs see them: one message with its place and hint, and an exit code
  project    what `shapleymix.toml` adds to what is typed
  completing  completion in bash, zsh and fish: what each value may be
  forms      the form of all commands: help that begins with examples, what the project adds, the call as provenance
  health     what a run rests on, checked one by one
  options    options that commands share, and the types of their values
  reading    run logs on the command line: their names, and the options that say how they are written
  groups     commands with commands of their own, whose help begins with all their examples
  chosen     the one mixture that a command was given: a text, or the document that another command wrote
  bounding   the options that bound a mixture, as `optimize` and `plan` take them
  inputs     files as the commands take them, with their notices
  scoring    `--downstream` and `--task-weights`: a fit of losses as one of scores on tasks
  planning   from mixtures to planned runs: the options that plans share, `plan game` and `plan grid`
  listing    `plan mixtures` without a design: mixtures that somebody has thought of, those in use, and random ones
  figures    the figures of `plot`, a file for each source of what they show
  sweeps     runs of a plan as processes: claimed, started, watched, ended
  views      what people see of each result: text and tables, with rounded numbers
  commands   one file a command
  main       the `shapleymix` command: a group whose commands are imported only when they run
"""
