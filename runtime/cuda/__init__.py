"""The GPU side: fused kernels, memory, handles and graphs, all through CuPy."""
