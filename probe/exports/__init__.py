"""What the probe writes for other tools: NCCL's topology XML and NCCL's settings."""
