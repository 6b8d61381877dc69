"""What several studies share: jobs of plain values, models of known truth, empty figures, sentences of pages."""
