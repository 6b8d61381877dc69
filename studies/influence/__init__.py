"""What chains know besides λ̂: influence, kernels, susceptibilities and the auditor, each beside the truth."""
