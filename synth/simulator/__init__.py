"""What a plan costs: the official model by rounds, and the timeline."""

from synth.simulator.price import LAUNCH_NS, Cost, Simulation, simulate

__all__ = ["LAUNCH_NS", "Cost", "Simulation", "simulate"]
