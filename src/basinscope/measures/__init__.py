"""The public measurements, a file each: from a landscape to an estimate."""
