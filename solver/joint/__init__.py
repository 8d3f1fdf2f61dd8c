"""Several collectives at the same time on shared links, planned together."""

from solver.joint.solve import Ask, Joint, solve_together

__all__ = ["Ask", "Joint", "solve_together"]
