"""What the lean walk must show: time and memory of its draws, and exact answers."""
