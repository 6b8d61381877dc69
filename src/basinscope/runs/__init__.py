"""Studies of many independent jobs: every result kept the moment it exists, here or on a cluster, resumed at will."""
