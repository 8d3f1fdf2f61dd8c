"""PyTorch on top of a group: differentiable all-to-all, a mixture-of-experts layer, and unmodified code on plans."""
