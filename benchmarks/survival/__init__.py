"""Studies under attack: processes killed at random, many jobs, several machines."""
