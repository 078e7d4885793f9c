"""Tables as other tools keep them: in other units, under other names, in other shapes, spread over several files.

Modules, in reading order:

  units             losses in bits, bits a byte, perplexity or percent; ratios in percent or as weights
  patterns          names with `{lang}` that stand for a column of each language
  summaries         names that stand for no language: averages, totals, auxiliary losses
  column_map        which column is what
  reading           how a log is read: its layout, units, map, and the tables joined to it
  table_joins       tables with a row a run, beside the one with the losses
  long_tables       a row for each run and language as a row for each run
  unfinished        runs that did not finish, by what tools export of their ends
  usual_maps        what tools call their columns, where their form fixes it
  arranging         any table in the columns of a run log
  recognising       what a table seems to be: the options that may read it, for a hint
"""
