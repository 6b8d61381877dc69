"""The second-order picture of a basin: H, F and C as operators, their traces, spectra and soft ranks."""
