"""Which criterion chooses the model that predicts best, and which one the true model."""
