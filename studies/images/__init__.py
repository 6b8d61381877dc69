"""Image classifiers through training: λ̂, basin and drop, and architectures at one test loss."""
