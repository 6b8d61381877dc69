"""How far each layer of a network can be squeezed, in bits and in rank, beside its learning coefficient."""
