"""What people see of each result: text and tables, with rounded numbers.

Modules, in reading order:

  numbers    numbers as people read them
  tables     aligned plain tables that fold between columns at the width of the page; coloured on a terminal only
  runs       a run log, and what a table holds for one, on the screen
  baselines  baselines on the screen: their ratios and realised epochs side by side
  doctor     the checks of an installation on the screen
  laws       the list of laws on the screen
  measures   losses, or scores of tasks, as they are printed
  optimize   optimal mixtures on the screen
  export     a mixture for a trainer on the screen: its file, or what is in it
  frontier   a trade-off curve on the screen
  plan       planned runs on the screen
  sweeps     plans of runs, and how far they are, on the screen
  predict    predicted losses, and mixtures side by side, on the screen
  downstream  calibrated tasks on the screen
  scores     scores of laws on the screen
  fit        a fit on the screen
  learning_curve  a learning curve on the screen
  shapley    Shapley values on the screen
  transfer   transfer matrices, and how alike two are, on the screen
"""
