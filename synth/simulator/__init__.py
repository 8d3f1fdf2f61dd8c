"""What a plan costs: the official model by rounds, and the timeline."""

from synth.simulator.price import Cost, Simulation, simulate

__all__ = ["Cost", "Simulation", "simulate"]
