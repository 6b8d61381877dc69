"""Adapters from other packages: their networks and data as the model, loss and data of a `Landscape`."""
