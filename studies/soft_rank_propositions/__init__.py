"""The soft rank's propositions, measured: limits of the gap, bounds on networks, and the penalty at work."""
