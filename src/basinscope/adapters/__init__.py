"""Networks and data of other packages as what a `Landscape` takes: model, loss and data."""
