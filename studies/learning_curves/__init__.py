"""n times the generalization error beside λ, and its anti-correlation with leave-one-out."""
