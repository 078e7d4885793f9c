"""Figures of results, for the screen and for print: matplotlib, which is loaded when the first one is drawn.

Modules, in reading order:

  canvas     a blank figure in the one style of all; fonts, and names that any of them can show
  pictures   a figure with its caption and the numbers that are drawn; saved by its suffix, the same bytes each time
  marks      colours and marks that stay apart for the colour-blind and in grey
  numbers    numbers as figures and captions write them
  ticks      labels along an axis, turned and thinned, and beside points: never one over another
  matrices   one or two transfer matrices as figures take them: of one kind of values, in one order
  heatmaps   a transfer matrix as a heat map, or two side by side
  agreement  one transfer matrix against another, entry by entry
  points     the runs of a log as a fit's figure takes them: at one token count a size, told apart where held out
  own_logs   the log that a fit was made of, read again where its file still is what it was
  paths      what a law says between the runs, as a line with its band
  fits       loss against Theta, or against the prediction, for each target and size
  scores     scores on tasks against losses: the line of each task with its band
  bars       a mixture as bars, with its intervals and bounds, beside its rivals
  laws       laws on the same held-out runs; the held-out error of one against the number of runs
  shares     ratios of several mixtures as a map
  frontiers  the trade-off between two sets of targets
  designs    planned runs: their mixtures, and what each brings
"""
