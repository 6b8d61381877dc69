"""The models and the data that the studies use: `zoo.models` and `zoo.data`."""
