"""What several studies share: models of known truth, measurements, statistics, empty figures, files and sentences."""
