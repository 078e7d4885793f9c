"""Which runs to train next: mixtures that tell most about the law, chosen before anybody trains them.

Modules, in reading order:

  region      mixtures within bounds: a point inside, draws, corners, and the way from outside to within
  candidates  the mixtures that runs are chosen from, as given or drawn, and those over which errors are averaged
  belief      what is believed of the log losses of mixtures never trained: before any run, and under a fitted law
  questions   what is to be known better: the losses over a region, or what mixtures gain that may be the best
  exchange    the runs that shrink the variance of the questions most: one after another, then exchanged one by one
  knowledge   what is known before a plan: the runs so far and the law fitted to them
  optimum     where the optimum may lie, under the fitted law and each of its replicates
  designs     what a plan answers: the mixtures in the order in which to train them, and what each of them brings
  design      from the runs so far, bounds and a number of runs to the mixtures to train next
"""
