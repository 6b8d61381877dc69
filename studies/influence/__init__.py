"""What covariances over chains say of single samples and of single heads, beside retraining and exact answers."""
