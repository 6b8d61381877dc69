from hypothesis import settings

# No time limit per example: fractions and shared machines are slow. The same examples in every run.
settings.register_profile("exact", deadline=None, derandomize=True)
settings.load_profile("exact")
