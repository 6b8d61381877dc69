"""Which of AIC, BIC, WBIC, WAIC and leave-one-out finds the width of the true network."""
