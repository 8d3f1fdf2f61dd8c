"""Transports: MPI on host memory, NCCL through nccl4py or CuPy, and threads of one process."""

from runtime.communicators.base import DEADLINE, Call, Communicator

__all__ = ["DEADLINE", "Call", "Communicator"]
