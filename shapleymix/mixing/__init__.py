"""From a fitted law and a budget to a certified mixture.

Modules, in reading order:

  groups        bounds on the summed ratio of some sources, as they are written: en+de<=0.3
  bounds        what a mixture must obey, as asked for and as it stands at one budget
  room          what bounds leave: sources without room, and how near to a mixture another can be
  feasibility   whether bounds leave a mixture, which do not, and the smallest repair
  weights       what each target counts for in the objective
  problem       what is to be minimised, under which bounds: the problem that every engine takes
  repeating     repeated tokens: the data term at the unique tokens at hand, and what it costs
  closed_forms  the paper's closed forms, as printed and corrected, and the exact solution where no bound binds
  fit_like      what is asked of a fit, which may be a user's own, and what more it may know
  demands       all that is asked of a mixture, and the problem that it makes at one budget
  regimes       mixtures without a target's own language, where a fit knows them for another regime
  pieces        the convex pieces of a law at one budget, as far as the bounds say which regime a target is in
  doubts        how sure a loss is, and a gain of one mixture over another: one rule for every answer
  gains         what an answer gains over its rivals: the promise, less the luck of the choice
  stationarity  the same where slopes span too many digits: by least squares
  multipliers   what the bounds weigh in a proof: multipliers by a linear program
  certificate   how far from optimal a mixture can be, whoever made it
  engine        the solvers: each takes a problem and returns p, nothing else
  outlooks      what a fit says of several mixtures at one budget, convex or not, and how sure that is
  candidates    which of several mixtures is better at one budget: each against the first, with paired intervals
  choices       what would have been chosen under each replicate, by what the runs tell of
  plateaus      whether the loss hardly depends on the ratios at an optimum, which then say nothing
  relaxing      what relaxing a bound saves at first, where several bounds meet
  prices        what the bounds that bind are worth, and how far that reaches
  cautious      the mixture whose gain over a baseline has the best lower bound
  judgement     what the fit itself says of the optimum and its rivals: outside, or above an untrained model
  what_if       what more unique data of a source would bring, or less of it cost
  mixtures      what an optimisation answers: the mixture with its proof, its error bars and its rivals
  grids         optimal mixtures at several budgets, as one result: one long table, warnings by budget
  sides         two sets of targets as they are written: en:rest, en+de:zh+ja
  curves        trade-off curves as they are reported: the points between two sets of targets
  frontier      the trade-off between the mean losses of two sets of targets, each point with its proof
  assembly      from a solved problem to the mixture that is reported: the only place that builds one
  optimization  from a fit and a budget to the mixture: optimum, proof, interval, and what it gains over every rival
  compute       N, D and the mixture together under a compute budget: a search over N
"""
