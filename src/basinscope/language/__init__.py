"""Language models as they stand: their own module, in place, on token sequences of any number."""
